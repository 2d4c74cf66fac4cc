"""Streams between components, and the groupings that choose the receiving tasks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn, TypeAlias

from heronpy.api.custom_grouping import ICustomGrouping
from heronpy.api.serializer import default_serializer
from heronpy.proto import topology_pb2
from heronpy.wire.arrow_values import arrow, schema_problem

if TYPE_CHECKING:
    import pyarrow


class Stream:
    """An output stream: its name, the names of its fields, and whether the emitter chooses the tasks.

    `schema` is a `pyarrow.Schema` with the same field names. If `emit_batch` gets a
    RecordBatch or Table with this schema, it is sent as Arrow. Raises TypeError or ValueError for invalid arguments.
    """

    DEFAULT_STREAM_ID = "default"

    def __init__(
        self,
        fields: Sequence[str] | None = None,
        name: str = DEFAULT_STREAM_ID,
        direct: bool = False,
        schema: pyarrow.Schema | None = None,
    ) -> None:
        if fields is None:
            fields = [] if schema is None else _names_of(schema)
        if not isinstance(fields, (list, tuple)):
            raise TypeError(f"stream fields must be a list, tuple or None, given: {fields!r}")
        for field in fields:
            if not isinstance(field, str):
                raise TypeError(f"all field names must be strings, given: {field!r}")
        if not isinstance(name, str):
            raise TypeError(f"stream name must be a string, given: {name!r}")
        if not name:
            raise ValueError("stream name must not be empty")
        if not isinstance(direct, bool):
            raise TypeError(f"'direct' must be either True or False, given: {direct!r}")
        if schema is not None:
            _check_schema(schema, fields, name)
        self.fields = list(fields)
        self.stream_id = name
        self.direct = direct
        self.schema = schema

    def __repr__(self) -> str:
        direct = ", direct=True" if self.direct else ""
        schema = ", schema=..." if self.schema is not None else ""
        return f"Stream(fields={self.fields!r}, name={self.stream_id!r}{direct}{schema})"


def _names_of(schema: Any) -> list[str]:
    if not isinstance(schema, arrow().Schema):
        raise TypeError(f"the schema of a stream must be a pyarrow.Schema, given: {schema!r:.100}")
    return list(schema.names)


def _check_schema(schema: Any, fields: Sequence[str], stream: str) -> None:
    names = _names_of(schema)
    if names != list(fields):
        raise ValueError(f"stream {stream!r} declares the fields {list(fields)!r} and a schema of {names!r}; drop one")
    wrong = schema_problem(schema)
    if wrong:
        raise ValueError(f"the schema of stream {stream!r} cannot be used: {wrong}")


class LocalOrShuffle(int):
    """SHUFFLE that prefers tasks in the emitter's container.

    It equals `Grouping.SHUFFLE`, as in Apache heronpy, but is a separate type.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "Grouping.LOCAL_OR_SHUFFLE"


class FieldGrouping(NamedTuple):
    """Sends tuples with equal values of `fields` to the same task."""

    gtype: int
    fields: list[str]


class CustomGrouping(NamedTuple):
    """A grouping that a serialized `ICustomGrouping` instance or class path defines."""

    gtype: int
    python_serialized: bytes


#: The types accepted as the grouping of an input: one of `Grouping`'s constants, or a result of its methods.
AnyGrouping: TypeAlias = int | FieldGrouping | CustomGrouping


class Grouping:
    """The groupings: each chooses which tasks of a consumer receive a tuple."""

    SHUFFLE: ClassVar[int] = topology_pb2.Grouping.Value("SHUFFLE")
    ALL: ClassVar[int] = topology_pb2.Grouping.Value("ALL")
    LOWEST: ClassVar[int] = topology_pb2.Grouping.Value("LOWEST")
    NONE: ClassVar[int] = topology_pb2.Grouping.Value("NONE")
    DIRECT: ClassVar[int] = topology_pb2.Grouping.Value("DIRECT")
    FIELDS = FieldGrouping
    CUSTOM = CustomGrouping
    GLOBAL: ClassVar[int] = LOWEST
    LOCAL_OR_SHUFFLE: ClassVar[int] = LocalOrShuffle(SHUFFLE)

    @classmethod
    def is_grouping_sane(cls, gtype: Any) -> bool:
        """Return whether `gtype` is a valid grouping."""
        if isinstance(gtype, FieldGrouping):
            return gtype.gtype == topology_pb2.Grouping.Value("FIELDS") and gtype.fields is not None
        if isinstance(gtype, CustomGrouping):
            return gtype.gtype == topology_pb2.Grouping.Value("CUSTOM") and gtype.python_serialized is not None
        return (
            isinstance(gtype, int)
            and not isinstance(gtype, bool)
            and gtype in (cls.SHUFFLE, cls.ALL, cls.LOWEST, cls.NONE, cls.DIRECT)
        )

    @classmethod
    def fields(cls, *fields: str | Sequence[str]) -> FieldGrouping:
        """Send tuples with equal values of these fields (names, or one list of names) to the same task."""
        names: list[str] = []
        for name in fields[0] if len(fields) == 1 and isinstance(fields[0], (list, tuple)) else fields:
            if not isinstance(name, str):
                raise TypeError(f"fields grouping takes field names, given: {name!r}")
            names.append(name)
        if not names:
            raise ValueError("fields grouping needs at least one field name")
        return FieldGrouping(topology_pb2.Grouping.Value("FIELDS"), names)

    @classmethod
    def custom(cls, customgrouper: ICustomGrouping | str) -> CustomGrouping:
        """Choose the tasks with an `ICustomGrouping` instance, or with the class at this path."""
        if not isinstance(customgrouper, (ICustomGrouping, str)):
            raise TypeError(
                f"argument to custom() must be an ICustomGrouping instance or a class path, given: {customgrouper!r}"
            )
        return cls.custom_serialized(default_serializer.serialize(customgrouper), is_java=False)

    @classmethod
    def custom_serialized(cls, serialized: bytes, is_java: bool = True) -> CustomGrouping:
        """Choose the tasks with a grouping that `default_serializer` has already serialized; see `custom`."""
        if not isinstance(serialized, bytes):
            raise TypeError(
                f"argument to custom_serialized() must be a serialized Python grouping as bytes, given: {serialized!r}"
            )
        if is_java:
            raise NotImplementedError(
                "custom groupings written in Java cannot run here; pass a Python grouping to custom(), or is_java=False"
            )
        return CustomGrouping(topology_pb2.Grouping.Value("CUSTOM"), serialized)

    @classmethod
    def custom_object(cls, java_class_name: str, arg_list: Any) -> NoReturn:
        """Raise an error: a Java class cannot run here."""
        raise NotImplementedError(
            f"custom grouping {java_class_name} is a Java class and cannot run here; "
            "write it in Python and pass it to Grouping.custom()"
        )
