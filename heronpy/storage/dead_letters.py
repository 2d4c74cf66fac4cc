"""Dead letters on disk: tuples whose attempts are used up, as one JSON object per line.

Each task has one current file and one older file below `<working_dir>/dead-letters/`. Invariants: the two files
together never exceed the allowed size; only the last line of a file can be incomplete, after the machine has died, and
readers skip it; values that JSON cannot represent are written as text, not dropped.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

from heronpy.common.folders import make_folders

FOLDER = "dead-letters"
_SUFFIX = ".jsonl"
#: Size in bytes of the largest payload that is kept completely. Only the beginning of a larger payload is kept.
PAYLOAD_MAX_BYTES = 1 << 20
TRACEBACK_MAX_CHARS = 64 * 1024


class DeadLetterFile:
    """The dead letters of one task. The file is opened for each letter, because dead letters are rare."""

    def __init__(self, working_dir: str | os.PathLike[str], name: str, max_bytes: int) -> None:
        self.path = Path(working_dir) / FOLDER / (name + _SUFFIX)
        self._half = max(1, max_bytes // 2)

    def append(self, letter: dict[str, Any]) -> None:
        """Write one dead letter. Raises OSError if that fails."""
        line = json.dumps(letter, ensure_ascii=True).encode() + b"\n"
        if len(line) > self._half:
            shown = str(letter.get("payload"))[: self._half // 8]
            line = json.dumps({**letter, "payload": [shown], "truncated": True, "traceback": ""}).encode() + b"\n"
        make_folders(self.path.parent)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size and size + len(line) > self._half:
                os.replace(self.path, self.path.with_suffix(_SUFFIX + ".1"))
                os.close(descriptor)
                descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def last_number(self, topology_id: str) -> int:
        """Return the `number` of this topology's newest letter; 0 if there is no letter, or the file cannot be read."""
        try:
            lines = self.path.read_bytes().splitlines()
        except OSError:
            return 0
        for line in reversed(lines):
            letter = letter_of(line)
            if letter is not None:
                number = letter.get("number")
                return number if letter.get("topology_id") == topology_id and isinstance(number, int) else 0
        return 0


def encode_payload(values: list[Any]) -> tuple[list[Any], bool]:
    """Return a tuple's values as JSON types, and whether they were truncated."""
    try:
        payload = [_encode(value, 0) for value in values]
        if len(json.dumps(payload)) <= PAYLOAD_MAX_BYTES:
            return payload, False
        return [str(payload)[: PAYLOAD_MAX_BYTES // 8]], True
    except Exception as error:
        # `repr` of a value runs user code, which may raise.
        return [f"not shown: {type(error).__name__}"], True


def _encode(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else {"repr": repr(value)}
    if isinstance(value, bytes | bytearray):
        return {"base64": base64.b64encode(value[:PAYLOAD_MAX_BYTES]).decode()}
    if depth < 16 and isinstance(value, list | tuple):
        return [_encode(item, depth + 1) for item in value]
    if depth < 16 and isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _encode(item, depth + 1) for key, item in value.items()}
    return {"repr": repr(value)[:PAYLOAD_MAX_BYTES]}


def files_of(working_dir: str | os.PathLike[str]) -> list[Path]:
    """Return the files of all tasks; each task's older file comes first."""
    folder = Path(working_dir) / FOLDER
    current = sorted(folder.glob(f"*{_SUFFIX}"))
    older = {path: path.with_suffix(_SUFFIX + ".1") for path in current}
    return [file for path in current for file in (older[path], path) if file.exists()]


def letter_of(line: bytes) -> dict[str, Any] | None:
    """Return the dead letter in a line; None for an invalid line."""
    try:
        letter = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return letter if isinstance(letter, dict) else None
