from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

CHECKPOINT: Kind
DESCRIPTOR: _descriptor.FileDescriptor
SAVEPOINT: Kind

class CheckpointLog(_message.Message):
    __slots__ = ["aborted", "complete", "completed", "failed", "next_attempt", "next_checkpoint", "restore_from", "topology_id"]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    NEXT_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    NEXT_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FROM_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    aborted: int
    complete: _containers.RepeatedCompositeFieldContainer[CheckpointRecord]
    completed: int
    failed: int
    next_attempt: int
    next_checkpoint: int
    restore_from: str
    topology_id: str
    def __init__(self, topology_id: _Optional[str] = ..., next_checkpoint: _Optional[int] = ..., next_attempt: _Optional[int] = ..., complete: _Optional[_Iterable[_Union[CheckpointRecord, _Mapping]]] = ..., restore_from: _Optional[str] = ..., completed: _Optional[int] = ..., aborted: _Optional[int] = ..., failed: _Optional[int] = ...) -> None: ...

class CheckpointRecord(_message.Message):
    __slots__ = ["abandoned", "checkpoint", "damage", "damaged", "duration_s", "kind", "location", "publishes", "taken_at", "total_bytes", "uploaded_bytes"]
    ABANDONED_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    DAMAGE_FIELD_NUMBER: _ClassVar[int]
    DURATION_S_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    PUBLISHES_FIELD_NUMBER: _ClassVar[int]
    TAKEN_AT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    UPLOADED_BYTES_FIELD_NUMBER: _ClassVar[int]
    abandoned: bool
    checkpoint: int
    damage: str
    damaged: bool
    duration_s: float
    kind: Kind
    location: str
    publishes: bool
    taken_at: float
    total_bytes: int
    uploaded_bytes: int
    def __init__(self, checkpoint: _Optional[int] = ..., kind: _Optional[_Union[Kind, str]] = ..., location: _Optional[str] = ..., taken_at: _Optional[float] = ..., total_bytes: _Optional[int] = ..., uploaded_bytes: _Optional[int] = ..., duration_s: _Optional[float] = ..., damaged: bool = ..., damage: _Optional[str] = ..., abandoned: bool = ..., publishes: bool = ...) -> None: ...

class FileRef(_message.Message):
    __slots__ = ["bytes", "path", "sha256"]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    path: str
    sha256: bytes
    def __init__(self, path: _Optional[str] = ..., bytes: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class KeyedState(_message.Message):
    __slots__ = ["keys", "name", "partitioned", "segments"]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONED_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    keys: int
    name: str
    partitioned: bool
    segments: _containers.RepeatedCompositeFieldContainer[Segment]
    def __init__(self, name: _Optional[str] = ..., segments: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ..., keys: _Optional[int] = ..., partitioned: bool = ...) -> None: ...

class Metadata(_message.Message):
    __slots__ = ["checkpoint", "duration_s", "key_groups", "kind", "parallelism", "plan_version", "release", "taken_at", "tasks", "topology", "topology_id", "unaligned", "version"]
    class ParallelismEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    DURATION_S_FIELD_NUMBER: _ClassVar[int]
    KEY_GROUPS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    PLAN_VERSION_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    TAKEN_AT_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    UNALIGNED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    checkpoint: int
    duration_s: float
    key_groups: int
    kind: Kind
    parallelism: _containers.ScalarMap[str, int]
    plan_version: int
    release: str
    taken_at: float
    tasks: _containers.RepeatedCompositeFieldContainer[TaskSnapshot]
    topology: str
    topology_id: str
    unaligned: bool
    version: int
    def __init__(self, version: _Optional[int] = ..., checkpoint: _Optional[int] = ..., kind: _Optional[_Union[Kind, str]] = ..., topology: _Optional[str] = ..., topology_id: _Optional[str] = ..., taken_at: _Optional[float] = ..., key_groups: _Optional[int] = ..., tasks: _Optional[_Iterable[_Union[TaskSnapshot, _Mapping]]] = ..., parallelism: _Optional[_Mapping[str, int]] = ..., unaligned: bool = ..., duration_s: _Optional[float] = ..., release: _Optional[str] = ..., plan_version: _Optional[int] = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ["entries", "file", "first_group", "inline", "last_group"]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    FIRST_GROUP_FIELD_NUMBER: _ClassVar[int]
    INLINE_FIELD_NUMBER: _ClassVar[int]
    LAST_GROUP_FIELD_NUMBER: _ClassVar[int]
    entries: int
    file: FileRef
    first_group: int
    inline: bytes
    last_group: int
    def __init__(self, file: _Optional[_Union[FileRef, _Mapping]] = ..., inline: _Optional[bytes] = ..., entries: _Optional[int] = ..., first_group: _Optional[int] = ..., last_group: _Optional[int] = ...) -> None: ...

class TaskSnapshot(_message.Message):
    __slots__ = ["align_s", "async_s", "attempt", "channel_file", "channel_tuples", "component", "component_index", "emitted", "executed", "finished", "keyed", "publishes", "state_file", "state_inline", "stateful", "sync_s", "task_id", "total_bytes", "uploaded_bytes"]
    ALIGN_S_FIELD_NUMBER: _ClassVar[int]
    ASYNC_S_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FILE_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_TUPLES_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_INDEX_FIELD_NUMBER: _ClassVar[int]
    EMITTED_FIELD_NUMBER: _ClassVar[int]
    EXECUTED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    KEYED_FIELD_NUMBER: _ClassVar[int]
    PUBLISHES_FIELD_NUMBER: _ClassVar[int]
    STATEFUL_FIELD_NUMBER: _ClassVar[int]
    STATE_FILE_FIELD_NUMBER: _ClassVar[int]
    STATE_INLINE_FIELD_NUMBER: _ClassVar[int]
    SYNC_S_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    UPLOADED_BYTES_FIELD_NUMBER: _ClassVar[int]
    align_s: float
    async_s: float
    attempt: int
    channel_file: FileRef
    channel_tuples: int
    component: str
    component_index: int
    emitted: int
    executed: int
    finished: bool
    keyed: _containers.RepeatedCompositeFieldContainer[KeyedState]
    publishes: bool
    state_file: FileRef
    state_inline: bytes
    stateful: bool
    sync_s: float
    task_id: int
    total_bytes: int
    uploaded_bytes: int
    def __init__(self, task_id: _Optional[int] = ..., component: _Optional[str] = ..., component_index: _Optional[int] = ..., attempt: _Optional[int] = ..., stateful: bool = ..., state_file: _Optional[_Union[FileRef, _Mapping]] = ..., state_inline: _Optional[bytes] = ..., keyed: _Optional[_Iterable[_Union[KeyedState, _Mapping]]] = ..., channel_file: _Optional[_Union[FileRef, _Mapping]] = ..., channel_tuples: _Optional[int] = ..., total_bytes: _Optional[int] = ..., uploaded_bytes: _Optional[int] = ..., align_s: _Optional[float] = ..., sync_s: _Optional[float] = ..., async_s: _Optional[float] = ..., finished: bool = ..., emitted: _Optional[int] = ..., executed: _Optional[int] = ..., publishes: bool = ...) -> None: ...

class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
