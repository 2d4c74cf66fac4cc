"""A dependency in the package: classes by path, out of the archive alone."""

from __future__ import annotations

import importlib
import os
import sys
import zipfile
import zipimport


def load_class(archive, class_path):
    archive = os.path.abspath(archive)
    folder = os.path.dirname(archive)
    with zipfile.ZipFile(archive) as opened:
        names = opened.namelist()
    distributions = {"/".join(name.split("/")[:2]) for name in names if name.startswith(".deps/")}
    for path in (folder, *(os.path.join(folder, name) for name in sorted(distributions)), archive):
        if path not in sys.path:
            sys.path.insert(0, path)
    top, _, name = class_path.rpartition(".")
    module = importlib.import_module(top)
    if top.startswith("plain_parts"):
        assert module.__file__.startswith(archive + os.sep), f"{module.__file__} is not out of {archive}"
        assert zipimport.zipimporter(archive).find_spec("plain_parts") is not None
        # The content lies unpacked next to the archive, data files included.
        assert os.path.isfile(os.path.join(folder, "plain_parts", "words.txt")), os.listdir(folder)
    return getattr(module, name)
