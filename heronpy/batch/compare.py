"""Compares the rows of two batch runs or folders as multisets. Memory does not grow with the number of rows.

Digests of the rows are distributed over temporary files, which are compared one by one. If the rows differ, both sides
are read again.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct

from heronpy.common.errors import ConfigError
from heronpy.connectors.unit_output import PREFIX, prefix_of
from heronpy.proto import components_of, topology_pb2

#: Number of differences that are shown for each sink.
SHOWN = 20
_DIGEST = 16
#: Number of temporary files for each side, and number of bytes that are buffered for each file.
PARTS, BUFFER_BYTES = 1024, 8192

Rows = Callable[[], Iterable[bytes]]


class Difference(Struct, frozen=True):
    """A row that one side contains more often than the other."""

    row: str
    #: Number of occurrences of the row on the first side, and on the second side.
    first: int
    second: int


class Compared(Struct, frozen=True, kw_only=True):
    """The result of comparing the rows of one sink."""

    sink: str
    #: Number of rows of each side, and number of rows that the other side contains less often or does not contain.
    first: int
    second: int
    only_first: int
    only_second: int
    differences: tuple[Difference, ...]

    @property
    def is_equal(self) -> bool:
        """Whether both sides have the same rows, each the same number of times, in any order."""
        return not self.only_first and not self.only_second


def compare(sink: str, first: Rows, second: Rows) -> Compared:
    """Compare two multisets. Both are read once, and a second time if they differ."""
    more = Counter[bytes]()
    with tempfile.TemporaryDirectory(prefix="heron-compare-") as folder:
        spools = Path(folder, "first"), Path(folder, "second")
        counts = [_spool(rows(), spool) for rows, spool in zip((first, second), spools)]
        only = [0, 0]
        for part in range(PARTS):
            found = Counter(_digests(spools[0] / str(part)))
            found.subtract(_digests(spools[1] / str(part)))
            for digest, times in found.items():
                only[times < 0] += abs(times)
                if times and len(more) < SHOWN:
                    more[digest] = times
    differences = list(_differences(more, first, second)) if more else []
    return Compared(
        sink=sink, first=counts[0], second=counts[1], only_first=only[0], only_second=only[1],
        differences=tuple(sorted(differences, key=lambda one: one.row)),
    )  # fmt: skip


def _differences(wanted: Counter[bytes], first: Rows, second: Rows) -> Iterator[Difference]:
    texts, times = dict[bytes, bytes](), (Counter[bytes](), Counter[bytes]())
    for side, rows in enumerate((first, second)):
        for row in rows():
            digest = _digest(row)
            if digest in wanted:
                texts[digest] = row
                times[side][digest] += 1
    for digest, row in texts.items():
        yield Difference(row.decode("utf-8", "replace"), times[0][digest], times[1][digest])


def _digest(row: bytes) -> bytes:
    return blake2b(row, digest_size=_DIGEST).digest()


def _spool(rows: Iterable[bytes], folder: Path) -> int:
    """Distribute the digests of rows over files, and return the number of rows."""
    folder.mkdir()
    buffers = [bytearray() for _ in range(PARTS)]
    count = 0
    for row in rows:
        digest = _digest(row)
        part = int.from_bytes(digest[:2]) % PARTS
        buffer = buffers[part]
        buffer += digest
        count += 1
        if len(buffer) >= BUFFER_BYTES:
            _append(folder / str(part), buffer)
    for part, buffer in enumerate(buffers):
        if buffer:
            _append(folder / str(part), buffer)
    return count


def _append(path: Path, buffer: bytearray) -> None:
    with open(path, "ab") as file:
        file.write(buffer)
    buffer.clear()


def _digests(path: Path) -> Iterator[bytes]:
    data = path.read_bytes() if path.exists() else b""
    return (data[at : at + _DIGEST] for at in range(0, len(data), _DIGEST))


# ---- files with rows ---------------------------------------------------------------------------


def files_of_run(folder: Path, topology: topology_pb2.Topology) -> dict[str, list[Path]]:
    """Return a map from sink to the files with its rows in the folder of a batch run, published or not."""
    prefixes = {prefix_of(name): name for name in components_of(topology)}
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.glob(f"*/unit=*/{PREFIX}*")):
        sink = next((name for prefix, name in prefixes.items() if path.name.startswith(prefix)), path.name)
        found.setdefault(sink, []).append(path)
    return found


def files_of_folder(folder: Path) -> list[Path]:
    """Return the files in a sink's folder and its subfolders, except files and folders named `.*` or `_*`."""
    known = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in known if not any(one[0] in "._" for one in path.relative_to(folder).parts)]


def rows_of(files: Iterable[Path], root: Path | None = None) -> Iterator[bytes]:
    """Yield the rows of files: lines of text, or rows of Parquet and Arrow files as JSON.

    Below `root`, values in folder names, such as hour=12, are part of a row.
    """
    for path in files:
        parts = path.relative_to(root).parts[:-1] if root is not None else ()
        values = "/".join(part for part in parts if "=" in part and not part.startswith("unit="))
        try:
            yield from map(f"{values} ".encode().__add__, _rows(path)) if values else _rows(path)
        except (OSError, ValueError, EOFError) as error:
            raise ConfigError(f"{path} cannot be read ({error}); remove or repair it") from None


def _rows(path: Path) -> Iterator[bytes]:
    if path.suffix in (".parquet", ".arrow"):
        yield from _columns(path)
        return
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        for line in file:
            yield line.rstrip(b"\r\n")


def _columns(path: Path) -> Iterator[bytes]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ConfigError(f"reading {path} needs pyarrow: pip install 'heronpy[parquet]'") from None
    if path.suffix == ".parquet":
        batches = pq.ParquetFile(path).iter_batches()
    else:
        reader = pa.ipc.open_file(path)
        batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
    for batch in batches:
        for row in batch.to_pylist():
            yield json.dumps(row, default=str, sort_keys=True, ensure_ascii=False).encode()
