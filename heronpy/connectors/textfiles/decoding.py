"""Decodes bytes of a text file into lines, each with the offset of its first byte."""

from __future__ import annotations

import codecs
from contextlib import suppress
from itertools import accumulate

from heronpy.common.errors import FatalError


class TextFileError(FatalError):
    """A text file cannot be read as configured."""


def raw_lines(data: bytes) -> list[bytes]:
    """Split data into lines without line endings; only the last line may be incomplete."""
    return data.split(b"\n")[: -1 if data.endswith(b"\n") else None]


def offsets_of(start: int, data: bytes) -> list[int]:
    """Return the offsets of the lines of `data`, which begins at offset `start`."""
    return list(accumulate((len(line) + 1 for line in raw_lines(data)), initial=start))[:-1]


class LineDecoder:
    """Decodes complete lines, and an incomplete last line."""

    def __init__(self, encoding: str = "utf-8", errors: str = "strict") -> None:
        """Raises ValueError if the encoding is unknown, or the handler `errors` of bytes that are not in it."""
        self._strip_bom, self._encoding = _check_encoding(encoding)
        self._errors = errors
        with suppress(UnicodeDecodeError):
            try:
                b"\xff".decode("ascii", errors)
            except (LookupError, TypeError):  # TypeError: the handler is for encoding only
                raise ValueError(f"decode_errors is {errors!r:.100}; it must be strict, replace or ignore") from None

    def split(self, path: str, start: int, data: bytes) -> tuple[list[str], list[int]]:
        """Return the lines of `data`, which begins at offset `start`, without line endings, and their offsets."""
        return self.texts(path, start, data), offsets_of(start, data)

    def texts(self, path: str, start: int, data: bytes) -> list[str]:
        """Return the lines as `split` does, but without the offsets, which take longer to compute than the lines."""
        lines = self._decode(path, start, data).split("\n")
        unfinished = not data.endswith(b"\n")
        if not unfinished:
            lines.pop()
        if len(lines) != data.count(b"\n") + unfinished:
            # A lenient decoder took a line break for a part of a broken character.
            lines = [self._decode(path, *one) for one in zip(offsets_of(start, data), raw_lines(data), strict=True)]
        if b"\r" in data:
            lines = [line.removesuffix("\r") for line in lines]
        if start == 0 and self._strip_bom:
            lines[0] = lines[0].removeprefix("\ufeff")
        return lines

    def line(self, path: str, offset: int, data: bytes) -> str:
        """Return one line without its line ending."""
        line = self._decode(path, offset, data.removesuffix(b"\n").removesuffix(b"\r"))
        return line.removeprefix("\ufeff") if self._strip_bom and offset == 0 else line

    def _decode(self, path: str, start: int, data: bytes) -> str:
        try:
            return data.decode(self._encoding, self._errors)
        except UnicodeDecodeError as error:
            raise TextFileError(
                f"{path} is not valid {self._encoding} at byte {start + error.start}; set the right encoding, or choose"
                " how decode errors are handled"
            ) from error


def _check_encoding(encoding: str) -> tuple[bool, str]:
    """Return whether to strip a byte order mark, and the codec's name."""
    try:
        name = codecs.lookup(encoding).name
    except LookupError:
        raise ValueError(
            f"encoding {encoding!r} is unknown; use the name of a Python codec, such as utf-8 or latin-1"
        ) from None
    strip = name == "utf-8-sig"
    if strip:
        name = "utf-8"
    if "\n".encode(name) != b"\n":
        raise ValueError(
            f"encoding {encoding!r} does not encode a line break as one byte, so files cannot be divided into blocks;"
            " convert the files to utf-8"
        )
    return strip, name
