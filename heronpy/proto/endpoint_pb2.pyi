from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
RELAY_ABSENT: RelayEnd
RELAY_ANSWERED: RelayEnd
RELAY_LATE: RelayEnd
RELAY_LOST: RelayEnd
STATE_AWAY: StateError
STATE_DAMAGED: StateError
STATE_DEADLINE: StateError
STATE_FAILED: StateError
STATE_NODE_EXISTS: StateError
STATE_NO_NODE: StateError
STATE_NO_SPACE: StateError
STATE_OK: StateError
STATE_SESSION_GONE: StateError
STATE_VERSION: StateError
VERDICT_ACTIVATED: Verdict
VERDICT_FENCED: Verdict
VERDICT_GRANTED: Verdict
VERDICT_NONE: Verdict

class Cause(_message.Message):
    __slots__ = ["reason", "text"]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    reason: str
    text: str
    def __init__(self, reason: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ["address", "container", "cpu", "heronpy", "host", "nonce", "pid", "python", "ram_bytes", "submission", "topology_id"]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    HERONPY_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    RAM_BYTES_FIELD_NUMBER: _ClassVar[int]
    SUBMISSION_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    address: str
    container: int
    cpu: float
    heronpy: str
    host: str
    nonce: bytes
    pid: int
    python: str
    ram_bytes: int
    submission: int
    topology_id: str
    def __init__(self, topology_id: _Optional[str] = ..., container: _Optional[int] = ..., submission: _Optional[int] = ..., heronpy: _Optional[str] = ..., python: _Optional[str] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., cpu: _Optional[float] = ..., ram_bytes: _Optional[int] = ..., address: _Optional[str] = ..., nonce: _Optional[bytes] = ...) -> None: ...

class KeyPair(_message.Message):
    __slots__ = ["public", "secret"]
    PUBLIC_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    public: bytes
    secret: bytes
    def __init__(self, public: _Optional[bytes] = ..., secret: _Optional[bytes] = ...) -> None: ...

class Leave(_message.Message):
    __slots__ = ["credential", "why"]
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    credential: SessionCredential
    why: str
    def __init__(self, credential: _Optional[_Union[SessionCredential, _Mapping]] = ..., why: _Optional[str] = ...) -> None: ...

class LogEnd(_message.Message):
    __slots__ = ["credential", "cut", "data", "process"]
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    credential: SessionCredential
    cut: bool
    data: bytes
    process: str
    def __init__(self, credential: _Optional[_Union[SessionCredential, _Mapping]] = ..., process: _Optional[str] = ..., data: _Optional[bytes] = ..., cut: bool = ...) -> None: ...

class PackagePiece(_message.Message):
    __slots__ = ["data"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class ReadPackage(_message.Message):
    __slots__ = ["credential", "offset", "package"]
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    credential: SessionCredential
    offset: int
    package: str
    def __init__(self, credential: _Optional[_Union[SessionCredential, _Mapping]] = ..., package: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class Relay(_message.Message):
    __slots__ = ["awaits", "executor", "request", "scheduler", "timeout_s", "tmaster"]
    AWAITS_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    TMASTER_FIELD_NUMBER: _ClassVar[int]
    awaits: int
    executor: int
    request: bytes
    scheduler: bool
    timeout_s: float
    tmaster: bool
    def __init__(self, scheduler: bool = ..., tmaster: bool = ..., executor: _Optional[int] = ..., request: _Optional[bytes] = ..., timeout_s: _Optional[float] = ..., awaits: _Optional[int] = ...) -> None: ...

class Relayed(_message.Message):
    __slots__ = ["end", "reply", "why"]
    END_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    end: RelayEnd
    reply: bytes
    why: str
    def __init__(self, reply: _Optional[bytes] = ..., end: _Optional[_Union[RelayEnd, str]] = ..., why: _Optional[str] = ...) -> None: ...

class Renew(_message.Message):
    __slots__ = ["credential", "epoch", "number", "stopped", "wait_s"]
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    WAIT_S_FIELD_NUMBER: _ClassVar[int]
    credential: SessionCredential
    epoch: int
    number: int
    stopped: int
    wait_s: float
    def __init__(self, credential: _Optional[_Union[SessionCredential, _Mapping]] = ..., number: _Optional[int] = ..., epoch: _Optional[int] = ..., stopped: _Optional[int] = ..., wait_s: _Optional[float] = ...) -> None: ...

class Renewed(_message.Message):
    __slots__ = ["after", "epoch", "number", "verdict", "why"]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    after: Cause
    epoch: int
    number: int
    verdict: Verdict
    why: str
    def __init__(self, number: _Optional[int] = ..., verdict: _Optional[_Union[Verdict, str]] = ..., epoch: _Optional[int] = ..., why: _Optional[str] = ..., after: _Optional[_Union[Cause, _Mapping]] = ...) -> None: ...

class SessionCredential(_message.Message):
    __slots__ = ["container", "secret", "submission"]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    SUBMISSION_FIELD_NUMBER: _ClassVar[int]
    container: int
    secret: bytes
    submission: int
    def __init__(self, container: _Optional[int] = ..., submission: _Optional[int] = ..., secret: _Optional[bytes] = ...) -> None: ...

class SharedFolder(_message.Message):
    __slots__ = ["content", "name", "path"]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    name: str
    path: str
    def __init__(self, path: _Optional[str] = ..., name: _Optional[str] = ..., content: _Optional[bytes] = ...) -> None: ...

class StartSpan(_message.Message):
    __slots__ = ["begun_at", "name", "took_s"]
    BEGUN_AT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOOK_S_FIELD_NUMBER: _ClassVar[int]
    begun_at: float
    name: str
    took_s: float
    def __init__(self, name: _Optional[str] = ..., begun_at: _Optional[float] = ..., took_s: _Optional[float] = ...) -> None: ...

class StartSpans(_message.Message):
    __slots__ = ["credential", "spans"]
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    credential: SessionCredential
    spans: _containers.RepeatedCompositeFieldContainer[StartSpan]
    def __init__(self, credential: _Optional[_Union[SessionCredential, _Mapping]] = ..., spans: _Optional[_Iterable[_Union[StartSpan, _Mapping]]] = ...) -> None: ...

class StateAnswer(_message.Message):
    __slots__ = ["data", "error", "found", "number", "seen", "text", "unread"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SEEN_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    UNREAD_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    error: StateError
    found: bool
    number: int
    seen: _containers.RepeatedCompositeFieldContainer[StateSeen]
    text: str
    unread: bool
    def __init__(self, error: _Optional[_Union[StateError, str]] = ..., text: _Optional[str] = ..., found: bool = ..., data: _Optional[bytes] = ..., number: _Optional[int] = ..., seen: _Optional[_Iterable[_Union[StateSeen, _Mapping]]] = ..., unread: bool = ...) -> None: ...

class StateCall(_message.Message):
    __slots__ = ["again", "awaits", "call", "close", "counter", "credential", "get", "keep", "lock", "open", "put", "session", "unlock", "watch"]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    AWAITS_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    COUNTER_FIELD_NUMBER: _ClassVar[int]
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    GET_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    LOCK_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    PUT_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    UNLOCK_FIELD_NUMBER: _ClassVar[int]
    WATCH_FIELD_NUMBER: _ClassVar[int]
    again: bool
    awaits: int
    call: int
    close: StateClose
    counter: str
    credential: SessionCredential
    get: str
    keep: StateKeep
    lock: str
    open: StateOpen
    put: StatePut
    session: int
    unlock: str
    watch: str
    def __init__(self, session: _Optional[int] = ..., call: _Optional[int] = ..., awaits: _Optional[int] = ..., credential: _Optional[_Union[SessionCredential, _Mapping]] = ..., again: bool = ..., keep: _Optional[_Union[StateKeep, _Mapping]] = ..., get: _Optional[str] = ..., watch: _Optional[str] = ..., counter: _Optional[str] = ..., unlock: _Optional[str] = ..., close: _Optional[_Union[StateClose, _Mapping]] = ..., open: _Optional[_Union[StateOpen, _Mapping]] = ..., put: _Optional[_Union[StatePut, _Mapping]] = ..., lock: _Optional[str] = ...) -> None: ...

class StateChanged(_message.Message):
    __slots__ = ["count", "path", "session"]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    count: int
    path: str
    session: int
    def __init__(self, session: _Optional[int] = ..., path: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class StateClose(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class StateKeep(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class StateOpen(_message.Message):
    __slots__ = ["session_s"]
    SESSION_S_FIELD_NUMBER: _ClassVar[int]
    session_s: float
    def __init__(self, session_s: _Optional[float] = ...) -> None: ...

class StatePut(_message.Message):
    __slots__ = ["data", "ephemeral", "path", "remove", "version", "versioned"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    EPHEMERAL_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    VERSIONED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    ephemeral: bool
    path: str
    remove: bool
    version: int
    versioned: bool
    def __init__(self, path: _Optional[str] = ..., data: _Optional[bytes] = ..., versioned: bool = ..., version: _Optional[int] = ..., remove: bool = ..., ephemeral: bool = ...) -> None: ...

class StateSeen(_message.Message):
    __slots__ = ["count", "path"]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    count: int
    path: str
    def __init__(self, path: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ["client", "fence_s", "fencing", "log_kept_bytes", "package", "package_bytes", "package_place", "package_sha256", "renew_s", "secret", "server", "shared", "stop_grace_s", "submitted"]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    FENCE_S_FIELD_NUMBER: _ClassVar[int]
    FENCING_FIELD_NUMBER: _ClassVar[int]
    LOG_KEPT_BYTES_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_PLACE_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_SHA256_FIELD_NUMBER: _ClassVar[int]
    RENEW_S_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    STOP_GRACE_S_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_FIELD_NUMBER: _ClassVar[int]
    client: KeyPair
    fence_s: float
    fencing: str
    log_kept_bytes: int
    package: str
    package_bytes: int
    package_place: str
    package_sha256: bytes
    renew_s: float
    secret: bytes
    server: KeyPair
    shared: _containers.RepeatedCompositeFieldContainer[SharedFolder]
    stop_grace_s: float
    submitted: bytes
    def __init__(self, secret: _Optional[bytes] = ..., submitted: _Optional[bytes] = ..., server: _Optional[_Union[KeyPair, _Mapping]] = ..., client: _Optional[_Union[KeyPair, _Mapping]] = ..., package: _Optional[str] = ..., package_bytes: _Optional[int] = ..., shared: _Optional[_Iterable[_Union[SharedFolder, _Mapping]]] = ..., renew_s: _Optional[float] = ..., fence_s: _Optional[float] = ..., stop_grace_s: _Optional[float] = ..., fencing: _Optional[str] = ..., log_kept_bytes: _Optional[int] = ..., package_sha256: _Optional[bytes] = ..., package_place: _Optional[str] = ...) -> None: ...

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class StateError(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class RelayEnd(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
