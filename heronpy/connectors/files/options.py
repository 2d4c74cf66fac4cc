"""Options of a FileSink, and their encoding in the component's configuration."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from heronpy.api.api_constants import TOPOLOGY_TICK_TUPLE_FREQ_MS
from heronpy.common.errors import ConfigError
from heronpy.connectors.files.columns import ARROW, PARQUET, common_schema, format_problem
from heronpy.connectors.files.lines import JSON, TEXT
from heronpy.wire.arrow_values import schema_of, schema_to_bytes

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "file.sink.folder"
FORMAT = "file.sink.format"
FIELDS = "file.sink.fields"
SCHEMA = "file.sink.schema"
ROLL_BYTES = "file.sink.roll_bytes"
ROLL_INTERVAL_S = "file.sink.roll_interval_s"
_TICK_MIN_MS, _TICK_MAX_MS = 20, 500
FORMATS = (JSON, TEXT, ARROW, PARQUET)
#: Formats that need an Arrow schema.
COLUMNS = (ARROW, PARQUET)
#: File name suffixes by format.
SUFFIXES = {JSON: "jsonl", TEXT: "txt", ARROW: "arrow", PARQUET: "parquet"}


class FileOptions(Struct, frozen=True):
    folder: str
    format: str = JSON
    #: Names of the values. Without names, the lines are JSON arrays.
    fields: tuple[str, ...] = ()
    #: Arrow schema of the rows, for the column formats.
    schema: pa.Schema | None = None
    roll_bytes: int = 64 * 1024 * 1024
    roll_interval_s: float = 5.0

    def validate(self) -> None:
        if not self.folder or not Path(self.folder).is_absolute():
            raise ConfigError(f"folder {self.folder!r} of a FileSink must be an absolute path")
        if self.format not in FORMATS:
            raise ConfigError(f"format {self.format!r} of a FileSink must be one of {', '.join(FORMATS)}")
        self._validate_schema()
        if len(set(self.fields)) != len(self.fields):
            raise ConfigError(f"fields of a FileSink must have different names, but they are {list(self.fields)}")
        for name, value in (("roll_bytes", self.roll_bytes), ("roll_interval_s", self.roll_interval_s)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
                raise ConfigError(f"{name} of a FileSink must be a number above zero, not {value!r}")

    def _validate_schema(self) -> None:
        if self.format not in COLUMNS:
            if self.schema is not None:
                raise ConfigError(
                    f"schema of a FileSink works with the formats {' and '.join(COLUMNS)}, not with {self.format};"
                    " remove the schema, or use one of these formats"
                )
            return
        if self.schema is None:
            raise ConfigError(f"format {self.format!r} of a FileSink needs an Arrow schema; give schema=")
        wrong = format_problem(self.format, self.schema)
        if wrong:
            raise ConfigError(f"a FileSink cannot write this schema with format={self.format!r}: {wrong}")
        if self.fields and list(self.fields) != list(self.schema.names):
            raise ConfigError(
                f"fields of a FileSink are {list(self.fields)} but its schema has {self.schema.names}; leave out"
                " fields="
            )

    def with_schema_of(self, declared: list[pa.Schema | None]) -> FileOptions:
        """Return a copy with the schema that the input streams declare, if the format needs a schema."""
        if self.format not in COLUMNS:
            return self
        return replace(self, schema=common_schema(f"format={self.format!r} of a FileSink", self.schema, declared))

    def to_config(self) -> dict[str, Any]:
        """Return the component configuration that carries these options."""
        self.validate()
        return {
            FOLDER: self.folder,
            FORMAT: self.format,
            FIELDS: list(self.fields),
            **({} if self.schema is None else {SCHEMA: base64.b64encode(schema_to_bytes(self.schema)).decode()}),
            ROLL_BYTES: self.roll_bytes,
            ROLL_INTERVAL_S: self.roll_interval_s,
            # The age of a file is checked on ticks.
            TOPOLOGY_TICK_TUPLE_FREQ_MS: int(min(_TICK_MAX_MS, max(_TICK_MIN_MS, self.roll_interval_s * 200))),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], component: str) -> FileOptions:
        if FOLDER not in config:
            raise ConfigError(f"FileSink {component} needs {FOLDER} in its configuration, or FileSink.spec(folder=...)")
        given = {"folder": os.fspath(config[FOLDER]), "format": config.get(FORMAT), "fields": config.get(FIELDS),
                 "roll_bytes": config.get(ROLL_BYTES), "roll_interval_s": config.get(ROLL_INTERVAL_S)}  # fmt: skip
        given = {name: value for name, value in given.items() if value is not None}
        if "fields" in given:
            fields = given["fields"]
            given["fields"] = tuple(fields.split(",") if isinstance(fields, str) else fields)
        if SCHEMA in config:
            given["schema"] = schema_of(base64.b64decode(config[SCHEMA]))
        options = cls(**given)
        options.validate()
        return options
