"""Every number that a comment, a test or a page cites can be looked up in the repository."""

from __future__ import annotations

import re
import subprocess

from tests.support.command import REPO

#: A letter and two digits; the lookbehind leaves out literals such as "<u8" and names such as Z85_KEY.
CODE = re.compile(r"(?<![\w<.#%\\/-])[A-Z][0-9]{2}(?![\w.%])")
DECISION = re.compile(r"(?<![\w])D[0-9]{1,2}(?![\w])")
#: Not citations: numpy's types, the encoding of keys, the fault that does not exist.
WORDS = {"U16", "U32", "U64", "Z85", "F99"}


def texts() -> dict[str, str]:
    names = subprocess.run(["git", "ls-files"], cwd=REPO, capture_output=True, text=True, check=True).stdout.split()
    wanted = (".py", ".md", ".yaml", ".proto")
    return {
        name: (REPO / name).read_text(encoding="utf-8")
        for name in names
        if name.endswith(wanted) and "_pb2" not in name and (REPO / name).is_file()
    }


def test_every_code_is_a_fault_or_a_decision_of_the_pages() -> None:
    faults = (REPO / "docs" / "reference" / "faults.md").read_text(encoding="utf-8")
    decisions = (REPO / "docs" / "decisions.md").read_text(encoding="utf-8")
    security = (REPO / "docs" / "howto" / "security.md").read_text(encoding="utf-8")
    known = set(re.findall(r"^\| ([FU]\d\d)", faults, re.M)) | set(re.findall(r"^\| (D\d+) ", decisions, re.M)) | WORDS
    known |= set(re.findall(r"^\| (S\d\d) ", security, re.M))
    assert {"F01", "F39", "D1", "D16", "S01", "S17"} <= known
    unknown = {
        (name, code)
        for name, text in texts().items()
        for code in (*CODE.findall(text), *DECISION.findall(text))
        if code not in known
    }
    assert not unknown, sorted(unknown)
