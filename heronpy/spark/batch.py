"""The argument of the user's aggregate function for a batch, and the staging of its output.

An attempt writes its output for a table to `<table>/_staging/<id>-<attempt>`, which readers do not see, because
Spark and pyarrow skip names that start with an underscore. The gateway publishes the output as
`<table>/batch=<id>` once the attempt has succeeded. With several hosts, the name of an attempt also contains the
sink's incarnation and the gateway's epoch, so that a gateway touches only its own staged output.
"""

from __future__ import annotations

import copy
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heronpy.common.errors import ConfigError, StateError
from heronpy.common.folders import make_output, open_private, sync_path
from heronpy.connectors.spark.handover import Manifest
from heronpy.connectors.spark.tables import LINEAGE, STAGING, drop_staged, stage_object
from heronpy.storage.objects.url import Url, is_url, place_of

_STAGING_TRIES = 100


class Batch:
    """One micro-batch. Only `attempt` differs between attempts.

    id: permanent id, unique among all batches of all topologies that write to a table. component, task: the sink
    task that wrote the batch. number: the number of the batch in that task, increasing and never reused. attempt: 1,
    then 2 ... if the batch is repeated. rows: number of rows. options: the options given to SparkSink.spec. For work
    units (`SparkBatches`), `component` is the keepers' component, `task` is 0, and `number` is the dispatch's number.
    """

    def __init__(
        self, manifest: Manifest, options: dict[str, Any], epoch: int = 0, shared: Sequence[Path] | None = None
    ) -> None:
        """`epoch`: the epoch of the gateway, if other gateways may also process the batch. `shared`: the folders that
        all hosts share.
        """
        self.id = manifest.id
        self.component = manifest.component
        self.task = manifest.task
        self.number = manifest.number
        self.attempt = manifest.started
        self.rows = manifest.rows
        self.options = options
        #: Prefix of the names of this gateway's attempts at this batch.
        self._mark = manifest.mark or (f"{manifest.incarnation}.{epoch}." if epoch else "")
        self._lineage = Path(manifest.lineage) if manifest.lineage else None
        self._name = f"{self.id}-{self._mark}{self.attempt}"
        self._shared = shared
        self._staged: dict[Path, Path] = {}
        self._tables: dict[Url, list[Any]] = {}
        #: Default number of files of a table.
        self._files = 1
        #: In a batch run, the batches of its sinks.
        self._parts: list[Batch] = []

    def __repr__(self) -> str:
        return f"Batch({self.id}, attempt {self.attempt}, {self.rows} rows)"

    def part(self, name: str, component: str, rows: int, options: dict[str, Any]) -> Batch:
        """Return the batch of one sink in a batch run; all sinks are published together."""
        made = copy.copy(self)
        made.id, made.component, made.rows, made.options = name, component, rows, options
        made._name = f"{name}-{self._mark}{self.attempt}"
        made._staged, made._tables, made._files, made._parts = {}, {}, 0, []
        self._parts.append(made)
        return made

    def path(self, folder: str | os.PathLike[str], suffix: str = "") -> str:
        """Return a path that belongs to this batch: `<folder>/batch=<id><suffix>`; a folder is created, a URL is used
        unchanged.

        Write there with *overwrite*, so that a repeated attempt replaces the output of an earlier attempt.
        Readers see this output before the batch is committed, unlike output of `write_parquet`.
        """
        text = os.fspath(folder)
        if is_url(text):
            return f"{text.rstrip('/')}/batch={self.id}{suffix}"
        parent = self._reached(_absolute(folder))
        make_output(parent)
        return str(parent / f"batch={self.id}{suffix}")

    def write_parquet(self, df: Any, table: str | os.PathLike[str], files: int | None = None) -> None:
        """Add a Spark or pandas DataFrame, or a pyarrow Table, to a table of Parquet files: a folder, or a URL.

        The rows appear as `batch=<id>` when your function has returned and the batch is committed: completely and once,
        even if the batch is repeated. `files` is the number of files for a Spark DataFrame; with 0, Spark chooses the
        number. The default is 0 in a batch run, and otherwise 1. The folder must be on a file system that all Spark
        executors share. In an object store (`s3://`, `gs://`, `az://`, with the extra `objects`) the batch is one file,
        which the gateway writes, so the rows must fit into the gateway's memory.
        """
        place = place_of(os.fspath(table)) if is_url(os.fspath(table)) else None
        if isinstance(place, Url):
            if files not in (None, 1):
                raise ConfigError(f"a batch is one file in the object store {place}; remove files={files}")
            self._tables.setdefault(place, []).append(_arrow(df))
            return
        folder = self._reached(place or _absolute(table))
        staged = folder / STAGING / self._name
        if folder not in self._staged:
            drop_staged(folder, self.id, self._mark)
            _make_staged(staged)
            self._staged[folder] = staged
        if _is_of_spark(df):
            files = self._files if files is None else files
            (df.coalesce(files) if files > 0 else df).write.mode("append").parquet(f"file://{staged}")
            return
        import pyarrow.parquet as pq

        pq.write_table(_arrow(df), staged / f"part-{len(os.listdir(staged)):05d}.parquet")

    def _reached(self, folder: Path) -> Path:
        """Return the folder. Raises ConfigError if the folder must be shared between hosts, but is not."""
        if self._shared is not None and not any(one == folder or one in folder.parents for one in self._shared):
            raise ConfigError(
                f"table {folder} is in a folder that the hosts do not share; put it below heron.engine.shared"
                " (engine.yaml) or into an object store"
            )
        return folder

    # -- for the gateway ----------------------------------------------------------------------

    def staged_tables(self) -> list[list[str]]:
        """Sync the staged output to disk; return pairs [staged, published] of folders and objects, ready to publish."""
        self._refuse_shared()
        pairs = [pair for part in self._parts for pair in part.staged_tables()]
        for folder, staged in self._staged.items():
            if staged.is_dir():
                if self._lineage is not None:
                    _write(staged / LINEAGE, self._lineage.read_bytes())
                _sync_tree(staged)
                sync_path(staged.parent)
                pairs.append([str(staged), str(folder / f"batch={self.id}")])
            elif self._mark:
                raise StateError(f"{staged} was removed; no other program may use the folders of a table")
        for table, parts in self._tables.items():
            staged_url = str(table / STAGING / self._name)
            stage_object(staged_url, _parquet(parts))
            pairs.append([staged_url, str(table / f"batch={self.id}")])
        return pairs

    def _refuse_shared(self) -> None:
        """Raise ConfigError if two sinks of a batch run write to the same table."""
        writers: dict[Path | Url, str] = {}
        for part in self._parts:
            tables: list[Path | Url] = [*part._staged, *part._tables]
            for table in tables:
                first = writers.setdefault(table, part.component)
                if first != part.component:
                    raise ConfigError(
                        f"sinks '{first}' and '{part.component}' write to the same table {table}; give each sink"
                        " a separate table"
                    )

    def drop_staged(self) -> None:
        """Remove the output of this attempt."""
        for part in self._parts:
            part.drop_staged()
        places: list[Path | Url] = [*self._staged, *self._tables]
        for place in places:
            drop_staged(place, self.id, self._mark)


def _is_of_spark(df: Any) -> bool:
    return hasattr(df, "sparkSession") or hasattr(df, "rdd")


def _arrow(df: Any) -> Any:
    """Return a DataFrame as a pyarrow Table. Raises ConfigError for any other type."""
    import pyarrow as pa

    if isinstance(df, pa.Table):
        return df
    if _is_of_spark(df):
        return df.toArrow()
    try:
        return pa.Table.from_pandas(df, preserve_index=False)
    except (AttributeError, TypeError):
        raise ConfigError(
            f"write_parquet accepts a Spark or pandas DataFrame or a pyarrow Table, not {type(df).__name__}"
        ) from None


def _parquet(parts: list[Any]) -> memoryview:
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(pa.concat_tables(parts), out)
    return out.getbuffer()


def _absolute(folder: str | os.PathLike[str]) -> Path:
    path = Path(folder)
    if not path.is_absolute():
        raise ConfigError(f"path {str(folder)!r} must be absolute: the Spark gateway runs in another folder")
    return path


def _make_staged(staged: Path) -> None:
    """Create a staging folder; the publication of another batch may concurrently remove the empty parent."""
    for _ in range(_STAGING_TRIES):
        try:
            make_output(staged.parent)
            staged.mkdir(exist_ok=True)
        except FileNotFoundError:
            continue
        except FileExistsError:
            # Python also raises this for an existing folder that is removed before Python checks its type.
            if any(place.exists() and not place.is_dir() for place in (*staged.parents, staged)):
                raise
        else:
            return
    raise StateError(f"another program keeps removing {staged.parent}; no other program may use the folders of a table")


def _write(path: Path, data: bytes) -> None:
    with open(open_private(path, os.O_WRONLY | os.O_TRUNC), "wb") as out:
        out.write(data)


def _sync_tree(folder: Path) -> None:
    for root, _, names in os.walk(folder):
        for name in names:
            sync_path(os.path.join(root, name))
        sync_path(root)
