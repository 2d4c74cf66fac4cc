"""What the user's aggregate function sees of a batch, and the staging of what it writes.

Owns the folders that one attempt at a batch writes into a table: `<table>/_staging/<id>-<attempt>`,
invisible to readers (names that start with an underscore are skipped by Spark and pyarrow), published
by the gateway as `<table>/batch=<id>` in one rename, once the attempt has succeeded.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

from heronpy.common.errors import ConfigError, StateError
from heronpy.common.folders import make_output
from heronpy.connectors.durable_files import sync_folder
from heronpy.connectors.spark.handover import Manifest

STAGING = "_staging"
_STAGING_TRIES = 100


class Batch:
    """One micro-batch. The same in every attempt, except for `attempt`.

    id: permanent id, unique among all batches of all topologies that write to a table.
    component, task: the sink task it comes from. number: its number there, increasing and never reused.
    attempt: 1, then 2 ... when it is repeated. rows: number of rows. options: as given to SparkSink.spec.
    """

    def __init__(self, manifest: Manifest, options: dict[str, Any]) -> None:
        self.id = manifest.id
        self.component = manifest.component
        self.task = manifest.task
        self.number = manifest.number
        self.attempt = manifest.started
        self.rows = manifest.rows
        self.options = options
        self._staged: dict[Path, Path] = {}

    def __repr__(self) -> str:
        return f"Batch({self.id}, attempt {self.attempt}, {self.rows} rows)"

    def path(self, folder: str | os.PathLike[str], suffix: str = "") -> str:
        """A path that belongs to this batch: `<folder>/batch=<id><suffix>`; the folder is made.

        Write there with *overwrite*, so that a repeated attempt replaces what an earlier one wrote.
        Readers see it before the batch is committed; `write_parquet` avoids that.
        """
        parent = _absolute(folder)
        make_output(parent)
        return str(parent / f"batch={self.id}{suffix}")

    def write_parquet(self, df: Any, table: str | os.PathLike[str], files: int = 1) -> None:
        """Add a DataFrame (of Spark, pandas or a pyarrow Table) to a table: a folder of Parquet files.

        It appears there, as `batch=<id>`, when your function has returned and the batch is committed:
        completely and once, however often the batch is repeated. `files` is the number of files to
        write a Spark DataFrame to (a micro-batch is small); 0 leaves that to Spark. The folder must be
        on a file system that all Spark executors share.
        """
        folder = _absolute(table)
        staged = folder / STAGING / f"{self.id}-{self.attempt}"
        if folder not in self._staged:
            drop_staged(folder, self.id)
            _make_staged(staged)
            self._staged[folder] = staged
        if hasattr(df, "sparkSession") or hasattr(df, "rdd"):
            (df.coalesce(files) if files > 0 else df).write.mode("append").parquet(f"file://{staged}")
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not isinstance(df, pa.Table):
            try:
                df = pa.Table.from_pandas(df, preserve_index=False)
            except (AttributeError, TypeError):
                raise ConfigError(
                    f"write_parquet takes a DataFrame of Spark or pandas or a pyarrow Table, not {type(df).__name__}"
                ) from None
        pq.write_table(df, staged / f"part-{len(os.listdir(staged)):05d}.parquet")

    # -- for the gateway ----------------------------------------------------------------------

    def staged_tables(self) -> list[list[str]]:
        """Pairs [staged folder, published folder], synced to disk and ready to publish."""
        pairs = []
        for folder, staged in self._staged.items():
            if staged.is_dir():
                _sync_tree(staged)
                sync_folder(staged.parent)
                pairs.append([str(staged), str(folder / f"batch={self.id}")])
        return pairs

    def drop_staged(self) -> None:
        """Remove what this attempt wrote."""
        for folder in self._staged:
            drop_staged(folder, self.id)


def drop_staged(table: Path, batch_id: str) -> None:
    """Remove what attempts at a batch left in a table's staging folder."""
    staging = table / STAGING
    try:
        names = os.listdir(staging)
    except FileNotFoundError:
        return
    for name in names:
        if name.rpartition("-")[0] == batch_id:
            shutil.rmtree(staging / name, ignore_errors=True)
    _remove_if_empty(staging)


def publish(tables: list[list[str]]) -> None:
    """Make staged folders visible; idempotent, completes an interrupted call."""
    for staged_name, published_name in tables:
        staged, published = Path(staged_name), Path(published_name)
        if staged.is_dir():
            if published.exists():
                shutil.rmtree(published)
            os.rename(staged, published)
            sync_folder(published.parent)
            _remove_if_empty(staged.parent)
        elif not published.is_dir():
            table = published.parent
            raise ConfigError(f"staged files {staged} are gone; something else removes files of table {table}")


def _absolute(folder: str | os.PathLike[str]) -> Path:
    path = Path(folder)
    if not path.is_absolute():
        raise ConfigError(f"path {str(folder)!r} must be absolute: the Spark gateway runs in another folder")
    return path


def _make_staged(staged: Path) -> None:
    """Make a staging folder; publishing another batch at the same time may remove its empty parent."""
    for _ in range(_STAGING_TRIES):
        make_output(staged.parent)
        with contextlib.suppress(FileNotFoundError):
            staged.mkdir(exist_ok=True)
            return
    raise StateError(f"something else keeps removing {staged.parent}; no other program may use the folders of a table")


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # Other batches are being staged there.
        folder.rmdir()


def _sync_tree(folder: Path) -> None:
    for root, _, names in os.walk(folder):
        for name in names:
            fd = os.open(os.path.join(root, name), os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        sync_folder(Path(root))
