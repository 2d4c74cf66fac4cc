"""Layer base: what `jobs.yaml` of a cluster, beside its files of settings, says for all jobs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from heronpy.common.errors import ConfigError
from heronpy.common.settings import JOBS_FILE, read_yaml
from heronpy.jobs.documents import Leaves, leaves_of
from heronpy.jobs.merge import merge


def read_base(conf_dirs: Iterable[str | os.PathLike[str]], cluster: str) -> Leaves:
    """The leaves of the layer; of several files the last wins. ConfigError names the file and the key."""
    layers = []
    for file in (Path(folder) / cluster / JOBS_FILE for folder in conf_dirs):
        if file.is_file():
            try:
                layers.append(leaves_of({key: value for key, (value, _) in read_yaml(file).items()}, "base"))
            except ConfigError as error:
                text = str(error)
                raise ConfigError(text if text.startswith(str(file)) else f"{file}: {text}") from None
    return merge(layers)
