from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Optional as _Optional, Union as _Union

ACK: Kind
BARRIER: Kind
CLAMP: Kind
COMPLETE: Kind
CREDIT: Kind
DATA: Kind
DESCRIPTOR: _descriptor.FileDescriptor
FAIL: Kind
FORGET: Kind
KIND_NONE: Kind
LEAVE: Kind
LINK_OPEN: Kind
REGISTER: Kind

class Frame(_message.Message):
    __slots__ = ["attempt", "channel_frames", "checkpoint", "codec", "consumed_bytes", "consumed_frames", "consumed_tuples", "count", "derived_edges", "dest_task", "edge", "failed", "granted_bytes", "granted_tuples", "kind", "on", "origin_ns", "pace", "payload", "reason", "registered", "root_base", "root_counts", "root_task", "root_tasks", "roots", "run_edge", "run_first", "run_length", "savepoint", "settled_tuples", "skip", "source_task", "stream", "streams", "trace", "trace_clock", "trace_emitted", "trace_hops", "trace_index", "trace_left", "trace_parent", "trace_sealed", "tracked", "unaligned", "values"]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FRAMES_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    CODEC_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_FRAMES_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_TUPLES_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    DERIVED_EDGES_FIELD_NUMBER: _ClassVar[int]
    DEST_TASK_FIELD_NUMBER: _ClassVar[int]
    EDGE_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    GRANTED_BYTES_FIELD_NUMBER: _ClassVar[int]
    GRANTED_TUPLES_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ON_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_NS_FIELD_NUMBER: _ClassVar[int]
    PACE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    ROOT_BASE_FIELD_NUMBER: _ClassVar[int]
    ROOT_COUNTS_FIELD_NUMBER: _ClassVar[int]
    ROOT_TASKS_FIELD_NUMBER: _ClassVar[int]
    ROOT_TASK_FIELD_NUMBER: _ClassVar[int]
    RUN_EDGE_FIELD_NUMBER: _ClassVar[int]
    RUN_FIRST_FIELD_NUMBER: _ClassVar[int]
    RUN_LENGTH_FIELD_NUMBER: _ClassVar[int]
    SAVEPOINT_FIELD_NUMBER: _ClassVar[int]
    SETTLED_TUPLES_FIELD_NUMBER: _ClassVar[int]
    SKIP_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TASK_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    TRACE_CLOCK_FIELD_NUMBER: _ClassVar[int]
    TRACE_EMITTED_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    TRACE_HOPS_FIELD_NUMBER: _ClassVar[int]
    TRACE_INDEX_FIELD_NUMBER: _ClassVar[int]
    TRACE_LEFT_FIELD_NUMBER: _ClassVar[int]
    TRACE_PARENT_FIELD_NUMBER: _ClassVar[int]
    TRACE_SEALED_FIELD_NUMBER: _ClassVar[int]
    TRACKED_FIELD_NUMBER: _ClassVar[int]
    UNALIGNED_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    channel_frames: int
    checkpoint: int
    codec: int
    consumed_bytes: int
    consumed_frames: int
    consumed_tuples: int
    count: int
    derived_edges: bool
    dest_task: int
    edge: int
    failed: bool
    granted_bytes: int
    granted_tuples: int
    kind: Kind
    on: bool
    origin_ns: int
    pace: float
    payload: bytes
    reason: str
    registered: bool
    root_base: int
    root_counts: bytes
    root_task: int
    root_tasks: bytes
    roots: bytes
    run_edge: bytes
    run_first: bytes
    run_length: bytes
    savepoint: bool
    settled_tuples: int
    skip: int
    source_task: int
    stream: int
    streams: bytes
    trace: int
    trace_clock: int
    trace_emitted: int
    trace_hops: _containers.RepeatedScalarFieldContainer[int]
    trace_index: int
    trace_left: int
    trace_parent: int
    trace_sealed: int
    tracked: bool
    unaligned: bool
    values: bytes
    def __init__(self, kind: _Optional[_Union[Kind, str]] = ..., source_task: _Optional[int] = ..., dest_task: _Optional[int] = ..., stream: _Optional[int] = ..., count: _Optional[int] = ..., codec: _Optional[int] = ..., skip: _Optional[int] = ..., tracked: bool = ..., registered: bool = ..., root_base: _Optional[int] = ..., root_task: _Optional[int] = ..., edge: _Optional[int] = ..., derived_edges: bool = ..., roots: _Optional[bytes] = ..., root_tasks: _Optional[bytes] = ..., root_counts: _Optional[bytes] = ..., values: _Optional[bytes] = ..., streams: _Optional[bytes] = ..., attempt: _Optional[int] = ..., payload: _Optional[bytes] = ..., origin_ns: _Optional[int] = ..., trace: _Optional[int] = ..., trace_parent: _Optional[int] = ..., trace_index: _Optional[int] = ..., trace_clock: _Optional[int] = ..., trace_emitted: _Optional[int] = ..., trace_sealed: _Optional[int] = ..., trace_left: _Optional[int] = ..., trace_hops: _Optional[_Iterable[int]] = ..., granted_bytes: _Optional[int] = ..., granted_tuples: _Optional[int] = ..., consumed_bytes: _Optional[int] = ..., consumed_tuples: _Optional[int] = ..., consumed_frames: _Optional[int] = ..., pace: _Optional[float] = ..., settled_tuples: _Optional[int] = ..., run_first: _Optional[bytes] = ..., run_length: _Optional[bytes] = ..., run_edge: _Optional[bytes] = ..., failed: bool = ..., on: bool = ..., reason: _Optional[str] = ..., checkpoint: _Optional[int] = ..., channel_frames: _Optional[int] = ..., unaligned: bool = ..., savepoint: bool = ...) -> None: ...

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
