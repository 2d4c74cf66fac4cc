from heronpy.proto import topology_pb2 as _topology_pb2
from heronpy.proto import plan_pb2 as _plan_pb2
from heronpy.proto import checkpoint_pb2 as _checkpoint_pb2
from heronpy.proto import endpoint_pb2 as _endpoint_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
EVENT_BACKPRESSURE: EventKind
EVENT_CHECKPOINT: EventKind
EVENT_LIFE: EventKind
EVENT_MASTER: EventKind
EVENT_OOM: EventKind
EVENT_RESTART: EventKind
EVENT_RESTORE: EventKind
EVENT_SILENT: EventKind
EVENT_UPDATE: EventKind
EXIT_CRASHED: ExitReason
EXIT_FENCED: ExitReason
EXIT_FINISHED: ExitReason
EXIT_GAVE_UP: ExitReason
EXIT_HUNG: ExitReason
EXIT_KILLED: ExitReason
EXIT_LOST_HOST: ExitReason
EXIT_MOVED: ExitReason
EXIT_NONE: ExitReason
EXIT_OK: ExitReason
EXIT_OOM: ExitReason
EXIT_OWN_BUG: ExitReason
EXIT_PREEMPTED: ExitReason
EXIT_RESTARTED: ExitReason
EXIT_REWOUND: ExitReason
EXIT_SPAWN_FAILED: ExitReason
EXIT_STARTUP_FAILURE: ExitReason
EXIT_USER_EXCEPTION: ExitReason
LIFE_DEGRADED: Lifecycle
LIFE_FAILED: Lifecycle
LIFE_FINISHED: Lifecycle
LIFE_FINISHING: Lifecycle
LIFE_PAUSED: Lifecycle
LIFE_RUNNING: Lifecycle
LIFE_STARTING: Lifecycle
LIFE_UPDATING: Lifecycle
LIFE_WAITING: Lifecycle
PROCESS_OTHER: ProcessKind
PROCESS_STMGR: ProcessKind
PROCESS_TASK: ProcessKind
PROC_BACKOFF: ProcessState
PROC_FAILED: ProcessState
PROC_RUNNING: ProcessState
PROC_STARTING: ProcessState
PROC_STOPPED: ProcessState
REFUSAL_AGAIN: Refusal
REFUSAL_FAILED: Refusal
REFUSAL_FENCED: Refusal
REFUSAL_INVALID: Refusal
REFUSAL_LATE: Refusal
REFUSAL_NONE: Refusal
SPAN_ACKED: SpanEnd
SPAN_ENDS: SpanEnd
SPAN_FAILED: SpanEnd
SPAN_GOES_ON: SpanEnd
SPAN_HELD: SpanEnd
SPAN_JOINED: SpanEnd
TASK_EXHAUSTED: TaskState
TASK_FAILED: TaskState
TASK_FINISHED: TaskState
TASK_LOST: TaskState
TASK_PAUSED: TaskState
TASK_RESTORED: TaskState
TASK_RUNNING: TaskState
TASK_STARTING: TaskState

class Answer(_message.Message):
    __slots__ = ["data", "kind"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    kind: str
    def __init__(self, kind: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class AvoidedHost(_message.Message):
    __slots__ = ["draining", "host", "left_s", "why"]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    LEFT_S_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    draining: bool
    host: str
    left_s: float
    why: str
    def __init__(self, host: _Optional[str] = ..., why: _Optional[str] = ..., left_s: _Optional[float] = ..., draining: bool = ...) -> None: ...

class Backpressure(_message.Message):
    __slots__ = ["culprits", "episode", "epoch", "lease_s", "on", "stmgr_id"]
    CULPRITS_FIELD_NUMBER: _ClassVar[int]
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    ON_FIELD_NUMBER: _ClassVar[int]
    STMGR_ID_FIELD_NUMBER: _ClassVar[int]
    culprits: _containers.RepeatedCompositeFieldContainer[Culprit]
    episode: int
    epoch: int
    lease_s: float
    on: bool
    stmgr_id: str
    def __init__(self, stmgr_id: _Optional[str] = ..., epoch: _Optional[int] = ..., episode: _Optional[int] = ..., on: bool = ..., lease_s: _Optional[float] = ..., culprits: _Optional[_Iterable[_Union[Culprit, _Mapping]]] = ...) -> None: ...

class Bucket(_message.Message):
    __slots__ = ["count", "le"]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    LE_FIELD_NUMBER: _ClassVar[int]
    count: int
    le: float
    def __init__(self, le: _Optional[float] = ..., count: _Optional[int] = ...) -> None: ...

class CheckpointAborted(_message.Message):
    __slots__ = ["checkpoint", "reason"]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    checkpoint: int
    reason: str
    def __init__(self, checkpoint: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class CheckpointComplete(_message.Message):
    __slots__ = ["checkpoint"]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    checkpoint: int
    def __init__(self, checkpoint: _Optional[int] = ...) -> None: ...

class CheckpointsReply(_message.Message):
    __slots__ = ["aborted", "complete", "completed", "failed", "last_failure", "last_restore", "last_restore_s", "pending", "pending_names", "pending_s", "pending_tasks", "regions", "restores"]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    LAST_FAILURE_FIELD_NUMBER: _ClassVar[int]
    LAST_RESTORE_FIELD_NUMBER: _ClassVar[int]
    LAST_RESTORE_S_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    PENDING_NAMES_FIELD_NUMBER: _ClassVar[int]
    PENDING_S_FIELD_NUMBER: _ClassVar[int]
    PENDING_TASKS_FIELD_NUMBER: _ClassVar[int]
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    RESTORES_FIELD_NUMBER: _ClassVar[int]
    aborted: int
    complete: _containers.RepeatedCompositeFieldContainer[_checkpoint_pb2.CheckpointRecord]
    completed: int
    failed: int
    last_failure: str
    last_restore: str
    last_restore_s: float
    pending: int
    pending_names: _containers.RepeatedScalarFieldContainer[str]
    pending_s: float
    pending_tasks: int
    regions: _containers.RepeatedCompositeFieldContainer[_plan_pb2.RegionRecord]
    restores: int
    def __init__(self, complete: _Optional[_Iterable[_Union[_checkpoint_pb2.CheckpointRecord, _Mapping]]] = ..., pending: _Optional[int] = ..., pending_s: _Optional[float] = ..., pending_tasks: _Optional[int] = ..., completed: _Optional[int] = ..., aborted: _Optional[int] = ..., failed: _Optional[int] = ..., restores: _Optional[int] = ..., last_failure: _Optional[str] = ..., last_restore: _Optional[str] = ..., last_restore_s: _Optional[float] = ..., regions: _Optional[_Iterable[_Union[_plan_pb2.RegionRecord, _Mapping]]] = ..., pending_names: _Optional[_Iterable[str]] = ...) -> None: ...

class ClockOffset(_message.Message):
    __slots__ = ["clock", "error", "offset"]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    clock: int
    error: int
    offset: int
    def __init__(self, clock: _Optional[int] = ..., offset: _Optional[int] = ..., error: _Optional[int] = ...) -> None: ...

class ClockReply(_message.Message):
    __slots__ = ["at", "clock"]
    AT_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    at: int
    clock: int
    def __init__(self, at: _Optional[int] = ..., clock: _Optional[int] = ...) -> None: ...

class ContainersReply(_message.Message):
    __slots__ = ["avoided", "containers", "engine_away", "killing", "refused"]
    AVOIDED_FIELD_NUMBER: _ClassVar[int]
    CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_AWAY_FIELD_NUMBER: _ClassVar[int]
    KILLING_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    avoided: _containers.RepeatedCompositeFieldContainer[AvoidedHost]
    containers: _containers.RepeatedCompositeFieldContainer[ProcessRecord]
    engine_away: str
    killing: bool
    refused: EndpointRefusals
    def __init__(self, containers: _Optional[_Iterable[_Union[ProcessRecord, _Mapping]]] = ..., engine_away: _Optional[str] = ..., killing: bool = ..., refused: _Optional[_Union[EndpointRefusals, _Mapping]] = ..., avoided: _Optional[_Iterable[_Union[AvoidedHost, _Mapping]]] = ...) -> None: ...

class Culprit(_message.Message):
    __slots__ = ["avoided", "clamps", "component", "drops", "instance_id", "pace", "peer", "queued_bytes", "since_s", "stmgr_id", "task_id"]
    AVOIDED_FIELD_NUMBER: _ClassVar[int]
    CLAMPS_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    DROPS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    PACE_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    QUEUED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    STMGR_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    avoided: bool
    clamps: bool
    component: str
    drops: bool
    instance_id: str
    pace: float
    peer: str
    queued_bytes: int
    since_s: float
    stmgr_id: str
    task_id: int
    def __init__(self, task_id: _Optional[int] = ..., component: _Optional[str] = ..., instance_id: _Optional[str] = ..., stmgr_id: _Optional[str] = ..., peer: _Optional[str] = ..., queued_bytes: _Optional[int] = ..., since_s: _Optional[float] = ..., avoided: bool = ..., clamps: bool = ..., drops: bool = ..., pace: _Optional[float] = ...) -> None: ...

class DataLost(_message.Message):
    __slots__ = ["attempt", "reason", "stmgr_id", "task_id", "tuples"]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STMGR_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    TUPLES_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    reason: str
    stmgr_id: str
    task_id: int
    tuples: int
    def __init__(self, stmgr_id: _Optional[str] = ..., attempt: _Optional[int] = ..., task_id: _Optional[int] = ..., tuples: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class DeleteCheckpoints(_message.Message):
    __slots__ = ["checkpoints"]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    checkpoints: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, checkpoints: _Optional[_Iterable[int]] = ...) -> None: ...

class DrainHost(_message.Message):
    __slots__ = ["by", "host", "lift", "wait_s"]
    BY_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    LIFT_FIELD_NUMBER: _ClassVar[int]
    WAIT_S_FIELD_NUMBER: _ClassVar[int]
    by: str
    host: str
    lift: bool
    wait_s: float
    def __init__(self, host: _Optional[str] = ..., wait_s: _Optional[float] = ..., by: _Optional[str] = ..., lift: bool = ...) -> None: ...

class DumpStacks(_message.Message):
    __slots__ = ["name"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DumpStacksReply(_message.Message):
    __slots__ = ["text"]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class EndedTopology(_message.Message):
    __slots__ = ["ended_at", "events", "last", "launch", "minutes", "packing", "physical", "record", "spark", "topology", "totals"]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_FIELD_NUMBER: _ClassVar[int]
    MINUTES_FIELD_NUMBER: _ClassVar[int]
    PACKING_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    SPARK_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    ended_at: float
    events: EventLedger
    last: LastAnswers
    launch: bytes
    minutes: MinutesLedger
    packing: _plan_pb2.PackingPlan
    physical: _plan_pb2.PhysicalPlan
    record: _plan_pb2.ExecutionState
    spark: MetricsReport
    topology: _topology_pb2.Topology
    totals: TotalsLedger
    def __init__(self, record: _Optional[_Union[_plan_pb2.ExecutionState, _Mapping]] = ..., ended_at: _Optional[float] = ..., topology: _Optional[_Union[_topology_pb2.Topology, _Mapping]] = ..., packing: _Optional[_Union[_plan_pb2.PackingPlan, _Mapping]] = ..., physical: _Optional[_Union[_plan_pb2.PhysicalPlan, _Mapping]] = ..., totals: _Optional[_Union[TotalsLedger, _Mapping]] = ..., events: _Optional[_Union[EventLedger, _Mapping]] = ..., minutes: _Optional[_Union[MinutesLedger, _Mapping]] = ..., spark: _Optional[_Union[MetricsReport, _Mapping]] = ..., last: _Optional[_Union[LastAnswers, _Mapping]] = ..., launch: _Optional[bytes] = ...) -> None: ...

class EndpointRefusals(_message.Message):
    __slots__ = ["busy", "garbage", "impostors", "not_theirs", "oversized", "releases", "replaced", "strangers", "unknown"]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    GARBAGE_FIELD_NUMBER: _ClassVar[int]
    IMPOSTORS_FIELD_NUMBER: _ClassVar[int]
    NOT_THEIRS_FIELD_NUMBER: _ClassVar[int]
    OVERSIZED_FIELD_NUMBER: _ClassVar[int]
    RELEASES_FIELD_NUMBER: _ClassVar[int]
    REPLACED_FIELD_NUMBER: _ClassVar[int]
    STRANGERS_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    busy: int
    garbage: int
    impostors: int
    not_theirs: int
    oversized: int
    releases: int
    replaced: int
    strangers: int
    unknown: int
    def __init__(self, strangers: _Optional[int] = ..., garbage: _Optional[int] = ..., unknown: _Optional[int] = ..., impostors: _Optional[int] = ..., replaced: _Optional[int] = ..., releases: _Optional[int] = ..., oversized: _Optional[int] = ..., busy: _Optional[int] = ..., not_theirs: _Optional[int] = ...) -> None: ...

class Envelope(_message.Message):
    __slots__ = ["answer", "backpressure", "checkpoint_aborted", "checkpoint_complete", "checkpoints_reply", "checksum", "clock_reply", "containers_reply", "data_lost", "delete_checkpoints", "drain_host", "dump_stacks", "dump_stacks_reply", "error", "exception_report", "exceptions_reply", "executor_heartbeat", "finish_task", "finish_tasks", "get_checkpoints", "get_clock", "get_containers", "get_events", "get_exceptions", "get_hot_spots", "get_load", "get_metrics", "get_slow", "get_status", "get_timeline", "get_traces", "heap", "hello", "hold_ticks", "instance_status", "kill_topology", "kill_under_way", "leave", "list_files", "list_files_reply", "log_end", "metrics_batch", "metrics_reply", "metrics_report", "new_plan", "ok", "package_piece", "profile", "read_file", "read_file_reply", "read_package", "refusal", "register_again", "register_executor", "register_instance", "register_instance_reply", "register_stmgr", "register_stmgr_reply", "relay", "relayed", "renew", "renewed", "reply", "request_id", "restart_container", "restart_processes", "restart_target", "restore_checkpoint", "restore_failed", "runtime_config", "search_file", "search_file_reply", "set_state", "start_spans", "state_answer", "state_call", "state_changed", "status_reply", "stmgr_heartbeat", "stop_task", "take_checkpoint", "take_checkpoint_reply", "task_checkpoint", "topology_id", "trace_rate", "trigger_checkpoint", "update_reply", "update_topology", "welcome"]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    BACKPRESSURE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_REPLY_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ABORTED_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    CLOCK_REPLY_FIELD_NUMBER: _ClassVar[int]
    CONTAINERS_REPLY_FIELD_NUMBER: _ClassVar[int]
    DATA_LOST_FIELD_NUMBER: _ClassVar[int]
    DELETE_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_HOST_FIELD_NUMBER: _ClassVar[int]
    DUMP_STACKS_FIELD_NUMBER: _ClassVar[int]
    DUMP_STACKS_REPLY_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    EXCEPTIONS_REPLY_FIELD_NUMBER: _ClassVar[int]
    EXCEPTION_REPORT_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    FINISH_TASKS_FIELD_NUMBER: _ClassVar[int]
    FINISH_TASK_FIELD_NUMBER: _ClassVar[int]
    GET_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    GET_CLOCK_FIELD_NUMBER: _ClassVar[int]
    GET_CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    GET_EVENTS_FIELD_NUMBER: _ClassVar[int]
    GET_EXCEPTIONS_FIELD_NUMBER: _ClassVar[int]
    GET_HOT_SPOTS_FIELD_NUMBER: _ClassVar[int]
    GET_LOAD_FIELD_NUMBER: _ClassVar[int]
    GET_METRICS_FIELD_NUMBER: _ClassVar[int]
    GET_SLOW_FIELD_NUMBER: _ClassVar[int]
    GET_STATUS_FIELD_NUMBER: _ClassVar[int]
    GET_TIMELINE_FIELD_NUMBER: _ClassVar[int]
    GET_TRACES_FIELD_NUMBER: _ClassVar[int]
    HEAP_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HOLD_TICKS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_STATUS_FIELD_NUMBER: _ClassVar[int]
    KILL_TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    KILL_UNDER_WAY_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    LIST_FILES_FIELD_NUMBER: _ClassVar[int]
    LIST_FILES_REPLY_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    METRICS_BATCH_FIELD_NUMBER: _ClassVar[int]
    METRICS_REPLY_FIELD_NUMBER: _ClassVar[int]
    METRICS_REPORT_FIELD_NUMBER: _ClassVar[int]
    NEW_PLAN_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_PIECE_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    READ_FILE_FIELD_NUMBER: _ClassVar[int]
    READ_FILE_REPLY_FIELD_NUMBER: _ClassVar[int]
    READ_PACKAGE_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    REGISTER_AGAIN_FIELD_NUMBER: _ClassVar[int]
    REGISTER_EXECUTOR_FIELD_NUMBER: _ClassVar[int]
    REGISTER_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    REGISTER_INSTANCE_REPLY_FIELD_NUMBER: _ClassVar[int]
    REGISTER_STMGR_FIELD_NUMBER: _ClassVar[int]
    REGISTER_STMGR_REPLY_FIELD_NUMBER: _ClassVar[int]
    RELAYED_FIELD_NUMBER: _ClassVar[int]
    RELAY_FIELD_NUMBER: _ClassVar[int]
    RENEWED_FIELD_NUMBER: _ClassVar[int]
    RENEW_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESTART_CONTAINER_FIELD_NUMBER: _ClassVar[int]
    RESTART_PROCESSES_FIELD_NUMBER: _ClassVar[int]
    RESTART_TARGET_FIELD_NUMBER: _ClassVar[int]
    RESTORE_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    RESTORE_FAILED_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_CONFIG_FIELD_NUMBER: _ClassVar[int]
    SEARCH_FILE_FIELD_NUMBER: _ClassVar[int]
    SEARCH_FILE_REPLY_FIELD_NUMBER: _ClassVar[int]
    SET_STATE_FIELD_NUMBER: _ClassVar[int]
    START_SPANS_FIELD_NUMBER: _ClassVar[int]
    STATE_ANSWER_FIELD_NUMBER: _ClassVar[int]
    STATE_CALL_FIELD_NUMBER: _ClassVar[int]
    STATE_CHANGED_FIELD_NUMBER: _ClassVar[int]
    STATUS_REPLY_FIELD_NUMBER: _ClassVar[int]
    STMGR_HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    STOP_TASK_FIELD_NUMBER: _ClassVar[int]
    TAKE_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    TAKE_CHECKPOINT_REPLY_FIELD_NUMBER: _ClassVar[int]
    TASK_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    TRACE_RATE_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    UPDATE_REPLY_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    answer: Answer
    backpressure: Backpressure
    checkpoint_aborted: CheckpointAborted
    checkpoint_complete: CheckpointComplete
    checkpoints_reply: CheckpointsReply
    checksum: int
    clock_reply: ClockReply
    containers_reply: ContainersReply
    data_lost: DataLost
    delete_checkpoints: DeleteCheckpoints
    drain_host: DrainHost
    dump_stacks: DumpStacks
    dump_stacks_reply: DumpStacksReply
    error: str
    exception_report: ExceptionReport
    exceptions_reply: ExceptionsReply
    executor_heartbeat: ExecutorHeartbeat
    finish_task: FinishTask
    finish_tasks: FinishTasks
    get_checkpoints: GetCheckpoints
    get_clock: GetClock
    get_containers: GetContainers
    get_events: GetEvents
    get_exceptions: GetExceptions
    get_hot_spots: GetHotSpots
    get_load: GetLoad
    get_metrics: GetMetrics
    get_slow: GetSlow
    get_status: GetStatus
    get_timeline: GetTimeline
    get_traces: GetTraces
    heap: Heap
    hello: _endpoint_pb2.Hello
    hold_ticks: HoldTicks
    instance_status: InstanceStatus
    kill_topology: KillTopology
    kill_under_way: KillUnderWay
    leave: _endpoint_pb2.Leave
    list_files: ListFiles
    list_files_reply: ListFilesReply
    log_end: _endpoint_pb2.LogEnd
    metrics_batch: MetricsBatch
    metrics_reply: MetricsReply
    metrics_report: MetricsReport
    new_plan: NewPlan
    ok: Ok
    package_piece: _endpoint_pb2.PackagePiece
    profile: Profile
    read_file: ReadFile
    read_file_reply: ReadFileReply
    read_package: _endpoint_pb2.ReadPackage
    refusal: Refusal
    register_again: RegisterAgain
    register_executor: RegisterExecutor
    register_instance: RegisterInstance
    register_instance_reply: RegisterInstanceReply
    register_stmgr: RegisterStmgr
    register_stmgr_reply: RegisterStmgrReply
    relay: _endpoint_pb2.Relay
    relayed: _endpoint_pb2.Relayed
    renew: _endpoint_pb2.Renew
    renewed: _endpoint_pb2.Renewed
    reply: bool
    request_id: int
    restart_container: RestartContainer
    restart_processes: RestartProcesses
    restart_target: RestartTarget
    restore_checkpoint: RestoreCheckpoint
    restore_failed: RestoreFailed
    runtime_config: RuntimeConfig
    search_file: SearchFile
    search_file_reply: SearchFileReply
    set_state: SetState
    start_spans: _endpoint_pb2.StartSpans
    state_answer: _endpoint_pb2.StateAnswer
    state_call: _endpoint_pb2.StateCall
    state_changed: _endpoint_pb2.StateChanged
    status_reply: StatusReply
    stmgr_heartbeat: StmgrHeartbeat
    stop_task: StopTask
    take_checkpoint: TakeCheckpoint
    take_checkpoint_reply: TakeCheckpointReply
    task_checkpoint: TaskCheckpoint
    topology_id: str
    trace_rate: TraceRate
    trigger_checkpoint: TriggerCheckpoint
    update_reply: UpdateReply
    update_topology: UpdateTopology
    welcome: _endpoint_pb2.Welcome
    def __init__(self, request_id: _Optional[int] = ..., reply: bool = ..., error: _Optional[str] = ..., refusal: _Optional[_Union[Refusal, str]] = ..., topology_id: _Optional[str] = ..., checksum: _Optional[int] = ..., register_instance: _Optional[_Union[RegisterInstance, _Mapping]] = ..., register_instance_reply: _Optional[_Union[RegisterInstanceReply, _Mapping]] = ..., instance_status: _Optional[_Union[InstanceStatus, _Mapping]] = ..., finish_task: _Optional[_Union[FinishTask, _Mapping]] = ..., stop_task: _Optional[_Union[StopTask, _Mapping]] = ..., register_stmgr: _Optional[_Union[RegisterStmgr, _Mapping]] = ..., register_stmgr_reply: _Optional[_Union[RegisterStmgrReply, _Mapping]] = ..., backpressure: _Optional[_Union[Backpressure, _Mapping]] = ..., stmgr_heartbeat: _Optional[_Union[StmgrHeartbeat, _Mapping]] = ..., new_plan: _Optional[_Union[NewPlan, _Mapping]] = ..., finish_tasks: _Optional[_Union[FinishTasks, _Mapping]] = ..., register_executor: _Optional[_Union[RegisterExecutor, _Mapping]] = ..., executor_heartbeat: _Optional[_Union[ExecutorHeartbeat, _Mapping]] = ..., restart_processes: _Optional[_Union[RestartProcesses, _Mapping]] = ..., dump_stacks: _Optional[_Union[DumpStacks, _Mapping]] = ..., dump_stacks_reply: _Optional[_Union[DumpStacksReply, _Mapping]] = ..., metrics_report: _Optional[_Union[MetricsReport, _Mapping]] = ..., exception_report: _Optional[_Union[ExceptionReport, _Mapping]] = ..., metrics_batch: _Optional[_Union[MetricsBatch, _Mapping]] = ..., get_status: _Optional[_Union[GetStatus, _Mapping]] = ..., status_reply: _Optional[_Union[StatusReply, _Mapping]] = ..., set_state: _Optional[_Union[SetState, _Mapping]] = ..., restart_target: _Optional[_Union[RestartTarget, _Mapping]] = ..., update_topology: _Optional[_Union[UpdateTopology, _Mapping]] = ..., update_reply: _Optional[_Union[UpdateReply, _Mapping]] = ..., runtime_config: _Optional[_Union[RuntimeConfig, _Mapping]] = ..., get_metrics: _Optional[_Union[GetMetrics, _Mapping]] = ..., metrics_reply: _Optional[_Union[MetricsReply, _Mapping]] = ..., get_exceptions: _Optional[_Union[GetExceptions, _Mapping]] = ..., exceptions_reply: _Optional[_Union[ExceptionsReply, _Mapping]] = ..., ok: _Optional[_Union[Ok, _Mapping]] = ..., kill_topology: _Optional[_Union[KillTopology, _Mapping]] = ..., restart_container: _Optional[_Union[RestartContainer, _Mapping]] = ..., get_containers: _Optional[_Union[GetContainers, _Mapping]] = ..., containers_reply: _Optional[_Union[ContainersReply, _Mapping]] = ..., hold_ticks: _Optional[_Union[HoldTicks, _Mapping]] = ..., trigger_checkpoint: _Optional[_Union[TriggerCheckpoint, _Mapping]] = ..., task_checkpoint: _Optional[_Union[TaskCheckpoint, _Mapping]] = ..., restore_failed: _Optional[_Union[RestoreFailed, _Mapping]] = ..., checkpoint_complete: _Optional[_Union[CheckpointComplete, _Mapping]] = ..., checkpoint_aborted: _Optional[_Union[CheckpointAborted, _Mapping]] = ..., data_lost: _Optional[_Union[DataLost, _Mapping]] = ..., take_checkpoint: _Optional[_Union[TakeCheckpoint, _Mapping]] = ..., take_checkpoint_reply: _Optional[_Union[TakeCheckpointReply, _Mapping]] = ..., get_checkpoints: _Optional[_Union[GetCheckpoints, _Mapping]] = ..., checkpoints_reply: _Optional[_Union[CheckpointsReply, _Mapping]] = ..., restore_checkpoint: _Optional[_Union[RestoreCheckpoint, _Mapping]] = ..., delete_checkpoints: _Optional[_Union[DeleteCheckpoints, _Mapping]] = ..., get_events: _Optional[_Union[GetEvents, _Mapping]] = ..., get_load: _Optional[_Union[GetLoad, _Mapping]] = ..., get_timeline: _Optional[_Union[GetTimeline, _Mapping]] = ..., get_slow: _Optional[_Union[GetSlow, _Mapping]] = ..., get_traces: _Optional[_Union[GetTraces, _Mapping]] = ..., trace_rate: _Optional[_Union[TraceRate, _Mapping]] = ..., get_hot_spots: _Optional[_Union[GetHotSpots, _Mapping]] = ..., answer: _Optional[_Union[Answer, _Mapping]] = ..., register_again: _Optional[_Union[RegisterAgain, _Mapping]] = ..., list_files: _Optional[_Union[ListFiles, _Mapping]] = ..., list_files_reply: _Optional[_Union[ListFilesReply, _Mapping]] = ..., read_file: _Optional[_Union[ReadFile, _Mapping]] = ..., read_file_reply: _Optional[_Union[ReadFileReply, _Mapping]] = ..., profile: _Optional[_Union[Profile, _Mapping]] = ..., heap: _Optional[_Union[Heap, _Mapping]] = ..., search_file: _Optional[_Union[SearchFile, _Mapping]] = ..., search_file_reply: _Optional[_Union[SearchFileReply, _Mapping]] = ..., hello: _Optional[_Union[_endpoint_pb2.Hello, _Mapping]] = ..., welcome: _Optional[_Union[_endpoint_pb2.Welcome, _Mapping]] = ..., renew: _Optional[_Union[_endpoint_pb2.Renew, _Mapping]] = ..., renewed: _Optional[_Union[_endpoint_pb2.Renewed, _Mapping]] = ..., leave: _Optional[_Union[_endpoint_pb2.Leave, _Mapping]] = ..., read_package: _Optional[_Union[_endpoint_pb2.ReadPackage, _Mapping]] = ..., package_piece: _Optional[_Union[_endpoint_pb2.PackagePiece, _Mapping]] = ..., log_end: _Optional[_Union[_endpoint_pb2.LogEnd, _Mapping]] = ..., start_spans: _Optional[_Union[_endpoint_pb2.StartSpans, _Mapping]] = ..., state_call: _Optional[_Union[_endpoint_pb2.StateCall, _Mapping]] = ..., state_answer: _Optional[_Union[_endpoint_pb2.StateAnswer, _Mapping]] = ..., state_changed: _Optional[_Union[_endpoint_pb2.StateChanged, _Mapping]] = ..., relay: _Optional[_Union[_endpoint_pb2.Relay, _Mapping]] = ..., relayed: _Optional[_Union[_endpoint_pb2.Relayed, _Mapping]] = ..., drain_host: _Optional[_Union[DrainHost, _Mapping]] = ..., kill_under_way: _Optional[_Union[KillUnderWay, _Mapping]] = ..., get_clock: _Optional[_Union[GetClock, _Mapping]] = ..., clock_reply: _Optional[_Union[ClockReply, _Mapping]] = ...) -> None: ...

class EventLedger(_message.Message):
    __slots__ = ["events", "executors", "last", "start", "topology_id"]
    class ExecutorsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    EXECUTORS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[TopologyEvent]
    executors: _containers.ScalarMap[int, int]
    last: int
    start: StartTimes
    topology_id: str
    def __init__(self, topology_id: _Optional[str] = ..., last: _Optional[int] = ..., events: _Optional[_Iterable[_Union[TopologyEvent, _Mapping]]] = ..., executors: _Optional[_Mapping[int, int]] = ..., start: _Optional[_Union[StartTimes, _Mapping]] = ...) -> None: ...

class ExceptionReport(_message.Message):
    __slots__ = ["component", "container", "count", "first_at", "instance_id", "last_at", "message", "out_of_memory", "process", "startup", "task_id", "traceback", "type"]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    FIRST_AT_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_AT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OUT_OF_MEMORY_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    STARTUP_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    component: str
    container: int
    count: int
    first_at: float
    instance_id: str
    last_at: float
    message: str
    out_of_memory: bool
    process: str
    startup: bool
    task_id: int
    traceback: str
    type: str
    def __init__(self, process: _Optional[str] = ..., task_id: _Optional[int] = ..., component: _Optional[str] = ..., instance_id: _Optional[str] = ..., container: _Optional[int] = ..., type: _Optional[str] = ..., message: _Optional[str] = ..., traceback: _Optional[str] = ..., first_at: _Optional[float] = ..., last_at: _Optional[float] = ..., count: _Optional[int] = ..., startup: bool = ..., out_of_memory: bool = ...) -> None: ...

class ExceptionsReply(_message.Message):
    __slots__ = ["discarded", "exceptions"]
    DISCARDED_FIELD_NUMBER: _ClassVar[int]
    EXCEPTIONS_FIELD_NUMBER: _ClassVar[int]
    discarded: int
    exceptions: _containers.RepeatedCompositeFieldContainer[ExceptionReport]
    def __init__(self, exceptions: _Optional[_Iterable[_Union[ExceptionReport, _Mapping]]] = ..., discarded: _Optional[int] = ...) -> None: ...

class ExecutorHeartbeat(_message.Message):
    __slots__ = ["clock", "container", "epoch", "processes", "usage"]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    clock: ClockOffset
    container: int
    epoch: int
    processes: _containers.RepeatedCompositeFieldContainer[ProcessRecord]
    usage: HostUsage
    def __init__(self, container: _Optional[int] = ..., epoch: _Optional[int] = ..., processes: _Optional[_Iterable[_Union[ProcessRecord, _Mapping]]] = ..., usage: _Optional[_Union[HostUsage, _Mapping]] = ..., clock: _Optional[_Union[ClockOffset, _Mapping]] = ...) -> None: ...

class FileEntry(_message.Message):
    __slots__ = ["bytes", "changed_at", "file", "name"]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CHANGED_AT_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    changed_at: float
    file: int
    name: str
    def __init__(self, name: _Optional[str] = ..., bytes: _Optional[int] = ..., changed_at: _Optional[float] = ..., file: _Optional[int] = ...) -> None: ...

class FinishTask(_message.Message):
    __slots__ = ["task_id"]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: int
    def __init__(self, task_id: _Optional[int] = ...) -> None: ...

class FinishTasks(_message.Message):
    __slots__ = ["task_ids"]
    TASK_IDS_FIELD_NUMBER: _ClassVar[int]
    task_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, task_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Footprint(_message.Message):
    __slots__ = ["descendant_bytes", "descendants", "descriptors", "descriptors_max", "log_per_s", "threads"]
    DESCENDANTS_FIELD_NUMBER: _ClassVar[int]
    DESCENDANT_BYTES_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTORS_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTORS_MAX_FIELD_NUMBER: _ClassVar[int]
    LOG_PER_S_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    descendant_bytes: int
    descendants: int
    descriptors: int
    descriptors_max: int
    log_per_s: float
    threads: int
    def __init__(self, descendants: _Optional[int] = ..., descendant_bytes: _Optional[int] = ..., descriptors: _Optional[int] = ..., descriptors_max: _Optional[int] = ..., threads: _Optional[int] = ..., log_per_s: _Optional[float] = ...) -> None: ...

class GetCheckpoints(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class GetClock(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class GetContainers(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class GetEvents(_message.Message):
    __slots__ = ["after", "limit"]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    after: int
    limit: int
    def __init__(self, after: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class GetExceptions(_message.Message):
    __slots__ = ["component", "task_id"]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    component: str
    task_id: int
    def __init__(self, component: _Optional[str] = ..., task_id: _Optional[int] = ...) -> None: ...

class GetHotSpots(_message.Message):
    __slots__ = ["component"]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    component: str
    def __init__(self, component: _Optional[str] = ...) -> None: ...

class GetLoad(_message.Message):
    __slots__ = ["plan_version"]
    PLAN_VERSION_FIELD_NUMBER: _ClassVar[int]
    plan_version: int
    def __init__(self, plan_version: _Optional[int] = ...) -> None: ...

class GetMetrics(_message.Message):
    __slots__ = ["component", "instances", "interval_s", "names"]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    component: str
    instances: _containers.RepeatedScalarFieldContainer[str]
    interval_s: float
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, component: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ..., instances: _Optional[_Iterable[str]] = ..., interval_s: _Optional[float] = ...) -> None: ...

class GetSlow(_message.Message):
    __slots__ = ["component", "task_id"]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    component: str
    task_id: int
    def __init__(self, component: _Optional[str] = ..., task_id: _Optional[int] = ...) -> None: ...

class GetStatus(_message.Message):
    __slots__ = ["starting_s"]
    STARTING_S_FIELD_NUMBER: _ClassVar[int]
    starting_s: float
    def __init__(self, starting_s: _Optional[float] = ...) -> None: ...

class GetTimeline(_message.Message):
    __slots__ = ["components", "names", "points", "since", "until"]
    COMPONENTS_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    components: _containers.RepeatedScalarFieldContainer[str]
    names: _containers.RepeatedScalarFieldContainer[str]
    points: int
    since: float
    until: float
    def __init__(self, components: _Optional[_Iterable[str]] = ..., since: _Optional[float] = ..., until: _Optional[float] = ..., points: _Optional[int] = ..., names: _Optional[_Iterable[str]] = ...) -> None: ...

class GetTraces(_message.Message):
    __slots__ = ["lease_s", "limit", "min_s", "per_s", "since", "until"]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    MIN_S_FIELD_NUMBER: _ClassVar[int]
    PER_S_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    lease_s: float
    limit: int
    min_s: float
    per_s: float
    since: float
    until: float
    def __init__(self, per_s: _Optional[float] = ..., lease_s: _Optional[float] = ..., since: _Optional[float] = ..., min_s: _Optional[float] = ..., until: _Optional[float] = ..., limit: _Optional[int] = ...) -> None: ...

class Heap(_message.Message):
    __slots__ = ["limit_s", "name", "top"]
    LIMIT_S_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    limit_s: float
    name: str
    top: int
    def __init__(self, name: _Optional[str] = ..., top: _Optional[int] = ..., limit_s: _Optional[float] = ...) -> None: ...

class HoldTicks(_message.Message):
    __slots__ = ["task_ids"]
    TASK_IDS_FIELD_NUMBER: _ClassVar[int]
    task_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, task_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class HostUsage(_message.Message):
    __slots__ = ["cores", "cpu_pressure", "cpu_used", "disk_bytes", "disk_free_bytes", "memory_bytes", "own_used", "spark_used"]
    CORES_FIELD_NUMBER: _ClassVar[int]
    CPU_PRESSURE_FIELD_NUMBER: _ClassVar[int]
    CPU_USED_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    OWN_USED_FIELD_NUMBER: _ClassVar[int]
    SPARK_USED_FIELD_NUMBER: _ClassVar[int]
    cores: int
    cpu_pressure: float
    cpu_used: float
    disk_bytes: int
    disk_free_bytes: int
    memory_bytes: int
    own_used: float
    spark_used: float
    def __init__(self, cpu_pressure: _Optional[float] = ..., cpu_used: _Optional[float] = ..., cores: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., own_used: _Optional[float] = ..., spark_used: _Optional[float] = ..., disk_bytes: _Optional[int] = ..., disk_free_bytes: _Optional[int] = ...) -> None: ...

class InstanceStatus(_message.Message):
    __slots__ = ["status"]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: TaskStatus
    def __init__(self, status: _Optional[_Union[TaskStatus, _Mapping]] = ...) -> None: ...

class KillTopology(_message.Message):
    __slots__ = ["force", "grace_s", "wait_s"]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    GRACE_S_FIELD_NUMBER: _ClassVar[int]
    WAIT_S_FIELD_NUMBER: _ClassVar[int]
    force: bool
    grace_s: float
    wait_s: float
    def __init__(self, grace_s: _Optional[float] = ..., wait_s: _Optional[float] = ..., force: bool = ...) -> None: ...

class KillUnderWay(_message.Message):
    __slots__ = ["engine_away", "left"]
    ENGINE_AWAY_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    engine_away: str
    left: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, left: _Optional[_Iterable[str]] = ..., engine_away: _Optional[str] = ...) -> None: ...

class LastAnswers(_message.Message):
    __slots__ = ["checkpoints", "counts", "exceptions", "load", "minutes", "status", "tasks", "topology_id"]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    EXCEPTIONS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    MINUTES_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    checkpoints: CheckpointsReply
    counts: MetricsReply
    exceptions: ExceptionsReply
    load: Answer
    minutes: MinutesLedger
    status: StatusReply
    tasks: MetricsReply
    topology_id: str
    def __init__(self, topology_id: _Optional[str] = ..., load: _Optional[_Union[Answer, _Mapping]] = ..., tasks: _Optional[_Union[MetricsReply, _Mapping]] = ..., status: _Optional[_Union[StatusReply, _Mapping]] = ..., counts: _Optional[_Union[MetricsReply, _Mapping]] = ..., exceptions: _Optional[_Union[ExceptionsReply, _Mapping]] = ..., checkpoints: _Optional[_Union[CheckpointsReply, _Mapping]] = ..., minutes: _Optional[_Union[MinutesLedger, _Mapping]] = ...) -> None: ...

class ListFiles(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ListFilesReply(_message.Message):
    __slots__ = ["files"]
    FILES_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[FileEntry]
    def __init__(self, files: _Optional[_Iterable[_Union[FileEntry, _Mapping]]] = ...) -> None: ...

class LogHit(_message.Message):
    __slots__ = ["after", "before", "head", "line", "offset"]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    after: _containers.RepeatedScalarFieldContainer[bytes]
    before: _containers.RepeatedScalarFieldContainer[bytes]
    head: bytes
    line: bytes
    offset: int
    def __init__(self, offset: _Optional[int] = ..., line: _Optional[bytes] = ..., head: _Optional[bytes] = ..., before: _Optional[_Iterable[bytes]] = ..., after: _Optional[_Iterable[bytes]] = ...) -> None: ...

class MetricsBatch(_message.Message):
    __slots__ = ["container", "exceptions", "reports"]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    EXCEPTIONS_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    container: int
    exceptions: _containers.RepeatedCompositeFieldContainer[ExceptionReport]
    reports: _containers.RepeatedCompositeFieldContainer[MetricsReport]
    def __init__(self, container: _Optional[int] = ..., reports: _Optional[_Iterable[_Union[MetricsReport, _Mapping]]] = ..., exceptions: _Optional[_Iterable[_Union[ExceptionReport, _Mapping]]] = ...) -> None: ...

class MetricsLedger(_message.Message):
    __slots__ = ["left_out", "processes", "series", "topology_id"]
    class Process(_message.Message):
        __slots__ = ["at_least", "component", "container", "ends", "epoch", "process", "series", "task_id", "values"]
        AT_LEAST_FIELD_NUMBER: _ClassVar[int]
        COMPONENT_FIELD_NUMBER: _ClassVar[int]
        CONTAINER_FIELD_NUMBER: _ClassVar[int]
        ENDS_FIELD_NUMBER: _ClassVar[int]
        EPOCH_FIELD_NUMBER: _ClassVar[int]
        PROCESS_FIELD_NUMBER: _ClassVar[int]
        SERIES_FIELD_NUMBER: _ClassVar[int]
        TASK_ID_FIELD_NUMBER: _ClassVar[int]
        VALUES_FIELD_NUMBER: _ClassVar[int]
        at_least: bool
        component: str
        container: int
        ends: bool
        epoch: int
        process: str
        series: _containers.RepeatedScalarFieldContainer[int]
        task_id: int
        values: bytes
        def __init__(self, process: _Optional[str] = ..., task_id: _Optional[int] = ..., component: _Optional[str] = ..., container: _Optional[int] = ..., epoch: _Optional[int] = ..., ends: bool = ..., at_least: bool = ..., series: _Optional[_Iterable[int]] = ..., values: _Optional[bytes] = ...) -> None: ...
    class Series(_message.Message):
        __slots__ = ["bounds", "label", "name", "type"]
        BOUNDS_FIELD_NUMBER: _ClassVar[int]
        LABEL_FIELD_NUMBER: _ClassVar[int]
        NAME_FIELD_NUMBER: _ClassVar[int]
        TYPE_FIELD_NUMBER: _ClassVar[int]
        bounds: _containers.RepeatedScalarFieldContainer[float]
        label: str
        name: str
        type: Sample.Type
        def __init__(self, name: _Optional[str] = ..., label: _Optional[str] = ..., type: _Optional[_Union[Sample.Type, str]] = ..., bounds: _Optional[_Iterable[float]] = ...) -> None: ...
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    SERIES_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    left_out: int
    processes: _containers.RepeatedCompositeFieldContainer[MetricsLedger.Process]
    series: _containers.RepeatedCompositeFieldContainer[MetricsLedger.Series]
    topology_id: str
    def __init__(self, topology_id: _Optional[str] = ..., series: _Optional[_Iterable[_Union[MetricsLedger.Series, _Mapping]]] = ..., processes: _Optional[_Iterable[_Union[MetricsLedger.Process, _Mapping]]] = ..., left_out: _Optional[int] = ...) -> None: ...

class MetricsReply(_message.Message):
    __slots__ = ["apart_s", "interval_s", "reports", "resumed_s"]
    APART_S_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    RESUMED_S_FIELD_NUMBER: _ClassVar[int]
    apart_s: float
    interval_s: float
    reports: _containers.RepeatedCompositeFieldContainer[MetricsReport]
    resumed_s: float
    def __init__(self, reports: _Optional[_Iterable[_Union[MetricsReport, _Mapping]]] = ..., interval_s: _Optional[float] = ..., apart_s: _Optional[float] = ..., resumed_s: _Optional[float] = ...) -> None: ...

class MetricsReport(_message.Message):
    __slots__ = ["at_least", "component", "container", "ends", "epoch", "found", "loop_age_s", "not_ready", "pause_s", "pid", "process", "samples", "slow", "spans", "state", "task_id", "waits_for"]
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    LOOP_AGE_S_FIELD_NUMBER: _ClassVar[int]
    NOT_READY_FIELD_NUMBER: _ClassVar[int]
    PAUSE_S_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    SLOW_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    at_least: bool
    component: str
    container: int
    ends: bool
    epoch: int
    found: TaskLooks
    loop_age_s: float
    not_ready: bool
    pause_s: float
    pid: int
    process: str
    samples: _containers.RepeatedCompositeFieldContainer[Sample]
    slow: _containers.RepeatedCompositeFieldContainer[SlowTuple]
    spans: _containers.RepeatedCompositeFieldContainer[Span]
    state: TaskState
    task_id: int
    waits_for: str
    def __init__(self, process: _Optional[str] = ..., task_id: _Optional[int] = ..., component: _Optional[str] = ..., container: _Optional[int] = ..., epoch: _Optional[int] = ..., pid: _Optional[int] = ..., samples: _Optional[_Iterable[_Union[Sample, _Mapping]]] = ..., loop_age_s: _Optional[float] = ..., state: _Optional[_Union[TaskState, str]] = ..., not_ready: bool = ..., ends: bool = ..., at_least: bool = ..., spans: _Optional[_Iterable[_Union[Span, _Mapping]]] = ..., slow: _Optional[_Iterable[_Union[SlowTuple, _Mapping]]] = ..., found: _Optional[_Union[TaskLooks, _Mapping]] = ..., waits_for: _Optional[str] = ..., pause_s: _Optional[float] = ...) -> None: ...

class MinutesLedger(_message.Message):
    __slots__ = ["minutes", "names", "series", "topology_id", "usual"]
    class Minute(_message.Message):
        __slots__ = ["names", "number", "values"]
        NAMES_FIELD_NUMBER: _ClassVar[int]
        NUMBER_FIELD_NUMBER: _ClassVar[int]
        VALUES_FIELD_NUMBER: _ClassVar[int]
        names: int
        number: int
        values: bytes
        def __init__(self, number: _Optional[int] = ..., names: _Optional[int] = ..., values: _Optional[bytes] = ...) -> None: ...
    class Names(_message.Message):
        __slots__ = ["components"]
        COMPONENTS_FIELD_NUMBER: _ClassVar[int]
        components: _containers.RepeatedScalarFieldContainer[str]
        def __init__(self, components: _Optional[_Iterable[str]] = ...) -> None: ...
    class Usual(_message.Message):
        __slots__ = ["component", "minutes", "number", "wall_s"]
        COMPONENT_FIELD_NUMBER: _ClassVar[int]
        MINUTES_FIELD_NUMBER: _ClassVar[int]
        NUMBER_FIELD_NUMBER: _ClassVar[int]
        WALL_S_FIELD_NUMBER: _ClassVar[int]
        component: str
        minutes: int
        number: int
        wall_s: float
        def __init__(self, component: _Optional[str] = ..., wall_s: _Optional[float] = ..., minutes: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...
    MINUTES_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    SERIES_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    USUAL_FIELD_NUMBER: _ClassVar[int]
    minutes: _containers.RepeatedCompositeFieldContainer[MinutesLedger.Minute]
    names: _containers.RepeatedCompositeFieldContainer[MinutesLedger.Names]
    series: _containers.RepeatedScalarFieldContainer[str]
    topology_id: str
    usual: _containers.RepeatedCompositeFieldContainer[MinutesLedger.Usual]
    def __init__(self, topology_id: _Optional[str] = ..., series: _Optional[_Iterable[str]] = ..., names: _Optional[_Iterable[_Union[MinutesLedger.Names, _Mapping]]] = ..., minutes: _Optional[_Iterable[_Union[MinutesLedger.Minute, _Mapping]]] = ..., usual: _Optional[_Iterable[_Union[MinutesLedger.Usual, _Mapping]]] = ...) -> None: ...

class NewPlan(_message.Message):
    __slots__ = ["plan"]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    plan: _plan_pb2.PhysicalPlan
    def __init__(self, plan: _Optional[_Union[_plan_pb2.PhysicalPlan, _Mapping]] = ...) -> None: ...

class Ok(_message.Message):
    __slots__ = ["text"]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class ProcessRecord(_message.Message):
    __slots__ = ["cpu_s", "engine_id", "epoch", "exit", "exit_detail", "exit_reason", "failing_max_s", "failing_s", "footprint", "host", "kind", "name", "next_restart_s", "peak_rss_bytes", "phase", "pid", "pss_bytes", "restart_budget", "restarts", "restarts_charged", "rss_bytes", "start_spans", "started_at", "starts_at", "state", "submission", "task_id", "uss_bytes", "words"]
    CPU_S_FIELD_NUMBER: _ClassVar[int]
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    EXIT_DETAIL_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    EXIT_REASON_FIELD_NUMBER: _ClassVar[int]
    FAILING_MAX_S_FIELD_NUMBER: _ClassVar[int]
    FAILING_S_FIELD_NUMBER: _ClassVar[int]
    FOOTPRINT_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NEXT_RESTART_S_FIELD_NUMBER: _ClassVar[int]
    PEAK_RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_CHARGED_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    RESTART_BUDGET_FIELD_NUMBER: _ClassVar[int]
    RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    STARTS_AT_FIELD_NUMBER: _ClassVar[int]
    START_SPANS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SUBMISSION_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    USS_BYTES_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    cpu_s: float
    engine_id: str
    epoch: int
    exit: ExitReason
    exit_detail: str
    exit_reason: str
    failing_max_s: float
    failing_s: float
    footprint: Footprint
    host: str
    kind: ProcessKind
    name: str
    next_restart_s: float
    peak_rss_bytes: int
    phase: str
    pid: int
    pss_bytes: int
    restart_budget: int
    restarts: int
    restarts_charged: int
    rss_bytes: int
    start_spans: _containers.RepeatedCompositeFieldContainer[_endpoint_pb2.StartSpan]
    started_at: float
    starts_at: float
    state: ProcessState
    submission: int
    task_id: int
    uss_bytes: int
    words: str
    def __init__(self, name: _Optional[str] = ..., pid: _Optional[int] = ..., state: _Optional[_Union[ProcessState, str]] = ..., restarts: _Optional[int] = ..., exit_reason: _Optional[str] = ..., exit_detail: _Optional[str] = ..., task_id: _Optional[int] = ..., started_at: _Optional[float] = ..., cpu_s: _Optional[float] = ..., rss_bytes: _Optional[int] = ..., uss_bytes: _Optional[int] = ..., epoch: _Optional[int] = ..., peak_rss_bytes: _Optional[int] = ..., pss_bytes: _Optional[int] = ..., restarts_charged: _Optional[int] = ..., restart_budget: _Optional[int] = ..., failing_s: _Optional[float] = ..., failing_max_s: _Optional[float] = ..., next_restart_s: _Optional[float] = ..., kind: _Optional[_Union[ProcessKind, str]] = ..., exit: _Optional[_Union[ExitReason, str]] = ..., host: _Optional[str] = ..., engine_id: _Optional[str] = ..., phase: _Optional[str] = ..., words: _Optional[str] = ..., submission: _Optional[int] = ..., starts_at: _Optional[float] = ..., start_spans: _Optional[_Iterable[_Union[_endpoint_pb2.StartSpan, _Mapping]]] = ..., footprint: _Optional[_Union[Footprint, _Mapping]] = ...) -> None: ...

class Profile(_message.Message):
    __slots__ = ["duration_s", "idle", "name", "native", "rate"]
    DURATION_S_FIELD_NUMBER: _ClassVar[int]
    IDLE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NATIVE_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    duration_s: float
    idle: bool
    name: str
    native: bool
    rate: int
    def __init__(self, name: _Optional[str] = ..., duration_s: _Optional[float] = ..., rate: _Optional[int] = ..., idle: bool = ..., native: bool = ...) -> None: ...

class ReadFile(_message.Message):
    __slots__ = ["bytes", "from_end", "name", "offset"]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FROM_END_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    from_end: bool
    name: str
    offset: int
    def __init__(self, name: _Optional[str] = ..., offset: _Optional[int] = ..., bytes: _Optional[int] = ..., from_end: bool = ...) -> None: ...

class ReadFileReply(_message.Message):
    __slots__ = ["data", "file", "offset", "size"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    file: int
    offset: int
    size: int
    def __init__(self, data: _Optional[bytes] = ..., offset: _Optional[int] = ..., size: _Optional[int] = ..., file: _Optional[int] = ...) -> None: ...

class RegisterAgain(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class RegisterExecutor(_message.Message):
    __slots__ = ["after", "container", "epoch", "file_service", "host", "metrics_host", "metrics_port", "not_limited", "pid", "processes", "usage"]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FILE_SERVICE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    METRICS_HOST_FIELD_NUMBER: _ClassVar[int]
    METRICS_PORT_FIELD_NUMBER: _ClassVar[int]
    NOT_LIMITED_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    after: _endpoint_pb2.Cause
    container: int
    epoch: int
    file_service: str
    host: str
    metrics_host: str
    metrics_port: int
    not_limited: str
    pid: int
    processes: _containers.RepeatedCompositeFieldContainer[ProcessRecord]
    usage: HostUsage
    def __init__(self, container: _Optional[int] = ..., epoch: _Optional[int] = ..., pid: _Optional[int] = ..., host: _Optional[str] = ..., metrics_port: _Optional[int] = ..., processes: _Optional[_Iterable[_Union[ProcessRecord, _Mapping]]] = ..., file_service: _Optional[str] = ..., usage: _Optional[_Union[HostUsage, _Mapping]] = ..., metrics_host: _Optional[str] = ..., after: _Optional[_Union[_endpoint_pb2.Cause, _Mapping]] = ..., not_limited: _Optional[str] = ...) -> None: ...

class RegisterInstance(_message.Message):
    __slots__ = ["component", "epoch", "instance_id", "pid", "task_id"]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    component: str
    epoch: int
    instance_id: str
    pid: int
    task_id: int
    def __init__(self, task_id: _Optional[int] = ..., epoch: _Optional[int] = ..., pid: _Optional[int] = ..., instance_id: _Optional[str] = ..., component: _Optional[str] = ...) -> None: ...

class RegisterInstanceReply(_message.Message):
    __slots__ = ["link_epoch", "plan", "stmgr_epoch"]
    LINK_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    STMGR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    link_epoch: int
    plan: _plan_pb2.PhysicalPlan
    stmgr_epoch: int
    def __init__(self, stmgr_epoch: _Optional[int] = ..., link_epoch: _Optional[int] = ..., plan: _Optional[_Union[_plan_pb2.PhysicalPlan, _Mapping]] = ...) -> None: ...

class RegisterStmgr(_message.Message):
    __slots__ = ["stmgr", "tasks"]
    STMGR_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    stmgr: _plan_pb2.StmgrRecord
    tasks: _containers.RepeatedCompositeFieldContainer[TaskStatus]
    def __init__(self, stmgr: _Optional[_Union[_plan_pb2.StmgrRecord, _Mapping]] = ..., tasks: _Optional[_Iterable[_Union[TaskStatus, _Mapping]]] = ...) -> None: ...

class RegisterStmgrReply(_message.Message):
    __slots__ = ["plan", "tmaster_epoch"]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    TMASTER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    plan: _plan_pb2.PhysicalPlan
    tmaster_epoch: int
    def __init__(self, plan: _Optional[_Union[_plan_pb2.PhysicalPlan, _Mapping]] = ..., tmaster_epoch: _Optional[int] = ...) -> None: ...

class RestartContainer(_message.Message):
    __slots__ = ["by", "container", "force", "plan_version", "standing_by", "wait_s"]
    BY_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    PLAN_VERSION_FIELD_NUMBER: _ClassVar[int]
    STANDING_BY_FIELD_NUMBER: _ClassVar[int]
    WAIT_S_FIELD_NUMBER: _ClassVar[int]
    by: str
    container: int
    force: bool
    plan_version: int
    standing_by: bool
    wait_s: float
    def __init__(self, container: _Optional[int] = ..., force: bool = ..., wait_s: _Optional[float] = ..., by: _Optional[str] = ..., standing_by: bool = ..., plan_version: _Optional[int] = ...) -> None: ...

class RestartLedger(_message.Message):
    __slots__ = ["before", "executor_epoch", "latest", "name"]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    before: int
    executor_epoch: int
    latest: int
    name: str
    def __init__(self, name: _Optional[str] = ..., executor_epoch: _Optional[int] = ..., before: _Optional[int] = ..., latest: _Optional[int] = ...) -> None: ...

class RestartProcesses(_message.Message):
    __slots__ = ["names", "reason"]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    def __init__(self, names: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ...) -> None: ...

class RestartTarget(_message.Message):
    __slots__ = ["component", "container", "moved", "task_id"]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    component: str
    container: int
    moved: _containers.RepeatedScalarFieldContainer[int]
    task_id: int
    def __init__(self, container: _Optional[int] = ..., task_id: _Optional[int] = ..., component: _Optional[str] = ..., moved: _Optional[_Iterable[int]] = ...) -> None: ...

class RestoreCheckpoint(_message.Message):
    __slots__ = ["checkpoint"]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    checkpoint: int
    def __init__(self, checkpoint: _Optional[int] = ...) -> None: ...

class RestoreFailed(_message.Message):
    __slots__ = ["attempt", "checkpoint", "epoch", "error", "task_id"]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    checkpoint: int
    epoch: int
    error: str
    task_id: int
    def __init__(self, task_id: _Optional[int] = ..., epoch: _Optional[int] = ..., attempt: _Optional[int] = ..., checkpoint: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class RetiredTotals(_message.Message):
    __slots__ = ["acked", "at_least", "component", "emitted", "executed", "failed", "tasks"]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    EMITTED_FIELD_NUMBER: _ClassVar[int]
    EXECUTED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    acked: int
    at_least: bool
    component: str
    emitted: int
    executed: int
    failed: int
    tasks: int
    def __init__(self, component: _Optional[str] = ..., tasks: _Optional[int] = ..., emitted: _Optional[int] = ..., executed: _Optional[int] = ..., acked: _Optional[int] = ..., failed: _Optional[int] = ..., at_least: bool = ...) -> None: ...

class RuntimeConfig(_message.Message):
    __slots__ = ["settings"]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    settings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, settings: _Optional[_Iterable[str]] = ...) -> None: ...

class Sample(_message.Message):
    __slots__ = ["buckets", "count", "label", "name", "sum", "type", "value"]
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    COUNTER: Sample.Type
    COUNT_FIELD_NUMBER: _ClassVar[int]
    GAUGE: Sample.Type
    HISTOGRAM: Sample.Type
    LABEL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    buckets: _containers.RepeatedCompositeFieldContainer[Bucket]
    count: int
    label: str
    name: str
    sum: float
    type: Sample.Type
    value: float
    def __init__(self, name: _Optional[str] = ..., label: _Optional[str] = ..., type: _Optional[_Union[Sample.Type, str]] = ..., value: _Optional[float] = ..., buckets: _Optional[_Iterable[_Union[Bucket, _Mapping]]] = ..., sum: _Optional[float] = ..., count: _Optional[int] = ...) -> None: ...

class SearchFile(_message.Message):
    __slots__ = ["context", "file", "hits", "ignore_case", "name", "text", "until"]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    HITS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_CASE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    context: int
    file: int
    hits: int
    ignore_case: bool
    name: str
    text: str
    until: int
    def __init__(self, name: _Optional[str] = ..., file: _Optional[int] = ..., text: _Optional[str] = ..., until: _Optional[int] = ..., hits: _Optional[int] = ..., context: _Optional[int] = ..., ignore_case: bool = ...) -> None: ...

class SearchFileReply(_message.Message):
    __slots__ = ["hits", "searched", "until"]
    HITS_FIELD_NUMBER: _ClassVar[int]
    SEARCHED_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    hits: _containers.RepeatedCompositeFieldContainer[LogHit]
    searched: int
    until: int
    def __init__(self, hits: _Optional[_Iterable[_Union[LogHit, _Mapping]]] = ..., until: _Optional[int] = ..., searched: _Optional[int] = ...) -> None: ...

class SetState(_message.Message):
    __slots__ = ["active", "end_input"]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    END_INPUT_FIELD_NUMBER: _ClassVar[int]
    active: bool
    end_input: bool
    def __init__(self, active: bool = ..., end_input: bool = ...) -> None: ...

class SlowTuple(_message.Message):
    __slots__ = ["at", "source", "source_task", "took_s", "tuples", "value"]
    AT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TASK_FIELD_NUMBER: _ClassVar[int]
    TOOK_S_FIELD_NUMBER: _ClassVar[int]
    TUPLES_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    at: float
    source: str
    source_task: int
    took_s: float
    tuples: int
    value: str
    def __init__(self, at: _Optional[float] = ..., source: _Optional[str] = ..., source_task: _Optional[int] = ..., took_s: _Optional[float] = ..., value: _Optional[str] = ..., tuples: _Optional[int] = ...) -> None: ...

class Span(_message.Message):
    __slots__ = ["at", "began", "clock", "clock_error", "clock_shift", "component", "emitted", "end", "ended", "hops", "left", "number", "parent", "process", "sealed", "source", "source_clock", "source_task", "trace", "tuples"]
    AT_FIELD_NUMBER: _ClassVar[int]
    BEGAN_FIELD_NUMBER: _ClassVar[int]
    CLOCK_ERROR_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    CLOCK_SHIFT_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    EMITTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    SOURCE_CLOCK_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TASK_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    TUPLES_FIELD_NUMBER: _ClassVar[int]
    at: float
    began: int
    clock: int
    clock_error: int
    clock_shift: int
    component: str
    emitted: int
    end: SpanEnd
    ended: int
    hops: _containers.RepeatedScalarFieldContainer[int]
    left: int
    number: int
    parent: int
    process: str
    sealed: int
    source: str
    source_clock: int
    source_task: int
    trace: int
    tuples: int
    def __init__(self, trace: _Optional[int] = ..., number: _Optional[int] = ..., parent: _Optional[int] = ..., end: _Optional[_Union[SpanEnd, str]] = ..., emitted: _Optional[int] = ..., sealed: _Optional[int] = ..., left: _Optional[int] = ..., hops: _Optional[_Iterable[int]] = ..., began: _Optional[int] = ..., ended: _Optional[int] = ..., source_clock: _Optional[int] = ..., clock: _Optional[int] = ..., source: _Optional[str] = ..., source_task: _Optional[int] = ..., tuples: _Optional[int] = ..., at: _Optional[float] = ..., process: _Optional[str] = ..., component: _Optional[str] = ..., clock_shift: _Optional[int] = ..., clock_error: _Optional[int] = ...) -> None: ...

class StartTimes(_message.Message):
    __slots__ = ["begun_at", "launched_at", "packaged_at", "planned_at", "registered_at", "running_at"]
    BEGUN_AT_FIELD_NUMBER: _ClassVar[int]
    LAUNCHED_AT_FIELD_NUMBER: _ClassVar[int]
    PACKAGED_AT_FIELD_NUMBER: _ClassVar[int]
    PLANNED_AT_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_AT_FIELD_NUMBER: _ClassVar[int]
    RUNNING_AT_FIELD_NUMBER: _ClassVar[int]
    begun_at: float
    launched_at: float
    packaged_at: float
    planned_at: float
    registered_at: float
    running_at: float
    def __init__(self, begun_at: _Optional[float] = ..., packaged_at: _Optional[float] = ..., launched_at: _Optional[float] = ..., registered_at: _Optional[float] = ..., planned_at: _Optional[float] = ..., running_at: _Optional[float] = ...) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ["cause", "culprits", "discarded_tuples", "drained", "dropped", "exceptions", "executors", "lifecycle", "outages", "plan", "plan_version", "retired", "startup_exceptions", "stmgrs", "tasks", "tmaster_epoch", "topology", "topology_id", "totals", "uptime_s"]
    class DroppedEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    CULPRITS_FIELD_NUMBER: _ClassVar[int]
    DISCARDED_TUPLES_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    EXCEPTIONS_FIELD_NUMBER: _ClassVar[int]
    EXECUTORS_FIELD_NUMBER: _ClassVar[int]
    LIFECYCLE_FIELD_NUMBER: _ClassVar[int]
    OUTAGES_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    PLAN_VERSION_FIELD_NUMBER: _ClassVar[int]
    RETIRED_FIELD_NUMBER: _ClassVar[int]
    STARTUP_EXCEPTIONS_FIELD_NUMBER: _ClassVar[int]
    STMGRS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    TMASTER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    UPTIME_S_FIELD_NUMBER: _ClassVar[int]
    cause: str
    culprits: _containers.RepeatedCompositeFieldContainer[Culprit]
    discarded_tuples: int
    drained: bool
    dropped: _containers.ScalarMap[str, int]
    exceptions: int
    executors: _containers.RepeatedCompositeFieldContainer[RegisterExecutor]
    lifecycle: Lifecycle
    outages: _containers.RepeatedScalarFieldContainer[str]
    plan: _plan_pb2.PhysicalPlan
    plan_version: int
    retired: _containers.RepeatedCompositeFieldContainer[RetiredTotals]
    startup_exceptions: _containers.RepeatedCompositeFieldContainer[ExceptionReport]
    stmgrs: _containers.RepeatedCompositeFieldContainer[StmgrHeartbeat]
    tasks: _containers.RepeatedCompositeFieldContainer[TaskStatus]
    tmaster_epoch: int
    topology: str
    topology_id: str
    totals: TupleTotals
    uptime_s: float
    def __init__(self, topology: _Optional[str] = ..., topology_id: _Optional[str] = ..., lifecycle: _Optional[_Union[Lifecycle, str]] = ..., cause: _Optional[str] = ..., plan_version: _Optional[int] = ..., tmaster_epoch: _Optional[int] = ..., tasks: _Optional[_Iterable[_Union[TaskStatus, _Mapping]]] = ..., stmgrs: _Optional[_Iterable[_Union[StmgrHeartbeat, _Mapping]]] = ..., executors: _Optional[_Iterable[_Union[RegisterExecutor, _Mapping]]] = ..., culprits: _Optional[_Iterable[_Union[Culprit, _Mapping]]] = ..., uptime_s: _Optional[float] = ..., startup_exceptions: _Optional[_Iterable[_Union[ExceptionReport, _Mapping]]] = ..., discarded_tuples: _Optional[int] = ..., plan: _Optional[_Union[_plan_pb2.PhysicalPlan, _Mapping]] = ..., drained: bool = ..., exceptions: _Optional[int] = ..., totals: _Optional[_Union[TupleTotals, _Mapping]] = ..., retired: _Optional[_Iterable[_Union[RetiredTotals, _Mapping]]] = ..., dropped: _Optional[_Mapping[str, int]] = ..., outages: _Optional[_Iterable[str]] = ...) -> None: ...

class StmgrHeartbeat(_message.Message):
    __slots__ = ["clamped", "culprits", "discarded_tuples", "dropped", "ends", "epoch", "in_flight_tuples", "lost_tuples", "plan_version", "queued_bytes", "queued_tuples", "stmgr_id", "tasks", "unacked_roots"]
    class DroppedEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    CLAMPED_FIELD_NUMBER: _ClassVar[int]
    CULPRITS_FIELD_NUMBER: _ClassVar[int]
    DISCARDED_TUPLES_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_TUPLES_FIELD_NUMBER: _ClassVar[int]
    LOST_TUPLES_FIELD_NUMBER: _ClassVar[int]
    PLAN_VERSION_FIELD_NUMBER: _ClassVar[int]
    QUEUED_BYTES_FIELD_NUMBER: _ClassVar[int]
    QUEUED_TUPLES_FIELD_NUMBER: _ClassVar[int]
    STMGR_ID_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    UNACKED_ROOTS_FIELD_NUMBER: _ClassVar[int]
    clamped: bool
    culprits: _containers.RepeatedCompositeFieldContainer[Culprit]
    discarded_tuples: int
    dropped: _containers.ScalarMap[str, int]
    ends: bool
    epoch: int
    in_flight_tuples: int
    lost_tuples: int
    plan_version: int
    queued_bytes: int
    queued_tuples: int
    stmgr_id: str
    tasks: _containers.RepeatedCompositeFieldContainer[TaskStatus]
    unacked_roots: int
    def __init__(self, stmgr_id: _Optional[str] = ..., epoch: _Optional[int] = ..., plan_version: _Optional[int] = ..., tasks: _Optional[_Iterable[_Union[TaskStatus, _Mapping]]] = ..., queued_bytes: _Optional[int] = ..., queued_tuples: _Optional[int] = ..., in_flight_tuples: _Optional[int] = ..., culprits: _Optional[_Iterable[_Union[Culprit, _Mapping]]] = ..., discarded_tuples: _Optional[int] = ..., clamped: bool = ..., unacked_roots: _Optional[int] = ..., lost_tuples: _Optional[int] = ..., dropped: _Optional[_Mapping[str, int]] = ..., ends: bool = ...) -> None: ...

class StmgrLedger(_message.Message):
    __slots__ = ["before", "dropped", "dropped_before", "ends", "epoch", "latest", "left", "stmgr_id"]
    class DroppedBeforeEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class DroppedEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    DROPPED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    STMGR_ID_FIELD_NUMBER: _ClassVar[int]
    before: _containers.RepeatedScalarFieldContainer[int]
    dropped: _containers.ScalarMap[str, int]
    dropped_before: _containers.ScalarMap[str, int]
    ends: bool
    epoch: int
    latest: _containers.RepeatedScalarFieldContainer[int]
    left: bool
    stmgr_id: str
    def __init__(self, stmgr_id: _Optional[str] = ..., epoch: _Optional[int] = ..., before: _Optional[_Iterable[int]] = ..., latest: _Optional[_Iterable[int]] = ..., left: bool = ..., dropped_before: _Optional[_Mapping[str, int]] = ..., dropped: _Optional[_Mapping[str, int]] = ..., ends: bool = ...) -> None: ...

class StopTask(_message.Message):
    __slots__ = ["reason", "task_id"]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    reason: str
    task_id: int
    def __init__(self, task_id: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class TakeCheckpoint(_message.Message):
    __slots__ = ["savepoint"]
    SAVEPOINT_FIELD_NUMBER: _ClassVar[int]
    savepoint: bool
    def __init__(self, savepoint: bool = ...) -> None: ...

class TakeCheckpointReply(_message.Message):
    __slots__ = ["record"]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    record: _checkpoint_pb2.CheckpointRecord
    def __init__(self, record: _Optional[_Union[_checkpoint_pb2.CheckpointRecord, _Mapping]] = ...) -> None: ...

class TaskCheckpoint(_message.Message):
    __slots__ = ["attempt", "checkpoint", "epoch", "error", "lost_data", "snapshot", "task_id"]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LOST_DATA_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    checkpoint: int
    epoch: int
    error: str
    lost_data: bool
    snapshot: _checkpoint_pb2.TaskSnapshot
    task_id: int
    def __init__(self, checkpoint: _Optional[int] = ..., task_id: _Optional[int] = ..., epoch: _Optional[int] = ..., attempt: _Optional[int] = ..., snapshot: _Optional[_Union[_checkpoint_pb2.TaskSnapshot, _Mapping]] = ..., error: _Optional[str] = ..., lost_data: bool = ...) -> None: ...

class TaskLedger(_message.Message):
    __slots__ = ["abandoned", "at_least", "before", "begun_again", "component", "container", "ends", "epoch", "forgets_failed", "has_run", "latest", "let_emit", "pending", "rewinds", "saves_nothing", "spout", "stmgr_epoch", "task_id"]
    ABANDONED_FIELD_NUMBER: _ClassVar[int]
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    BEGUN_AGAIN_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FORGETS_FAILED_FIELD_NUMBER: _ClassVar[int]
    HAS_RUN_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    LET_EMIT_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    REWINDS_FIELD_NUMBER: _ClassVar[int]
    SAVES_NOTHING_FIELD_NUMBER: _ClassVar[int]
    SPOUT_FIELD_NUMBER: _ClassVar[int]
    STMGR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    abandoned: int
    at_least: bool
    before: _containers.RepeatedScalarFieldContainer[int]
    begun_again: bool
    component: str
    container: int
    ends: bool
    epoch: int
    forgets_failed: bool
    has_run: bool
    latest: _containers.RepeatedScalarFieldContainer[int]
    let_emit: bool
    pending: int
    rewinds: bool
    saves_nothing: bool
    spout: bool
    stmgr_epoch: int
    task_id: int
    def __init__(self, task_id: _Optional[int] = ..., spout: bool = ..., epoch: _Optional[int] = ..., before: _Optional[_Iterable[int]] = ..., latest: _Optional[_Iterable[int]] = ..., pending: _Optional[int] = ..., abandoned: _Optional[int] = ..., forgets_failed: bool = ..., component: _Optional[str] = ..., begun_again: bool = ..., let_emit: bool = ..., container: _Optional[int] = ..., stmgr_epoch: _Optional[int] = ..., rewinds: bool = ..., ends: bool = ..., at_least: bool = ..., saves_nothing: bool = ..., has_run: bool = ...) -> None: ...

class TaskLooks(_message.Message):
    __slots__ = ["at_line", "key", "keyed", "line", "looks", "of_key"]
    AT_LINE_FIELD_NUMBER: _ClassVar[int]
    KEYED_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    LOOKS_FIELD_NUMBER: _ClassVar[int]
    OF_KEY_FIELD_NUMBER: _ClassVar[int]
    at_line: int
    key: str
    keyed: int
    line: str
    looks: int
    of_key: int
    def __init__(self, looks: _Optional[int] = ..., line: _Optional[str] = ..., at_line: _Optional[int] = ..., keyed: _Optional[int] = ..., key: _Optional[str] = ..., of_key: _Optional[int] = ...) -> None: ...

class TaskStatus(_message.Message):
    __slots__ = ["acked", "at_least", "attempt", "committed", "component", "consumed_frames", "consumed_tuples", "counted_at", "dead_letters", "emitted", "ends", "epoch", "error", "executed", "failed", "forgets_failed", "in_queue_bytes", "in_queue_tuples", "instance_id", "letters_before", "loop_age_s", "lost_tuples", "out_queue_bytes", "out_queue_tuples", "pending", "pid", "plan_version", "rewinds", "saves_nothing", "sent_frames", "sent_tuples", "state", "task_id", "untracked", "waiting_for", "waiting_s"]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_FRAMES_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_TUPLES_FIELD_NUMBER: _ClassVar[int]
    COUNTED_AT_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    EMITTED_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    EXECUTED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    FORGETS_FAILED_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    IN_QUEUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    IN_QUEUE_TUPLES_FIELD_NUMBER: _ClassVar[int]
    LETTERS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    LOOP_AGE_S_FIELD_NUMBER: _ClassVar[int]
    LOST_TUPLES_FIELD_NUMBER: _ClassVar[int]
    OUT_QUEUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    OUT_QUEUE_TUPLES_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PLAN_VERSION_FIELD_NUMBER: _ClassVar[int]
    REWINDS_FIELD_NUMBER: _ClassVar[int]
    SAVES_NOTHING_FIELD_NUMBER: _ClassVar[int]
    SENT_FRAMES_FIELD_NUMBER: _ClassVar[int]
    SENT_TUPLES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    UNTRACKED_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    WAITING_S_FIELD_NUMBER: _ClassVar[int]
    acked: int
    at_least: bool
    attempt: int
    committed: int
    component: str
    consumed_frames: int
    consumed_tuples: int
    counted_at: float
    dead_letters: int
    emitted: int
    ends: bool
    epoch: int
    error: str
    executed: int
    failed: int
    forgets_failed: bool
    in_queue_bytes: int
    in_queue_tuples: int
    instance_id: str
    letters_before: int
    loop_age_s: float
    lost_tuples: int
    out_queue_bytes: int
    out_queue_tuples: int
    pending: int
    pid: int
    plan_version: int
    rewinds: bool
    saves_nothing: bool
    sent_frames: int
    sent_tuples: int
    state: TaskState
    task_id: int
    untracked: bool
    waiting_for: str
    waiting_s: float
    def __init__(self, task_id: _Optional[int] = ..., component: _Optional[str] = ..., epoch: _Optional[int] = ..., pid: _Optional[int] = ..., state: _Optional[_Union[TaskState, str]] = ..., plan_version: _Optional[int] = ..., emitted: _Optional[int] = ..., executed: _Optional[int] = ..., acked: _Optional[int] = ..., failed: _Optional[int] = ..., in_queue_tuples: _Optional[int] = ..., in_queue_bytes: _Optional[int] = ..., out_queue_tuples: _Optional[int] = ..., out_queue_bytes: _Optional[int] = ..., pending: _Optional[int] = ..., loop_age_s: _Optional[float] = ..., error: _Optional[str] = ..., instance_id: _Optional[str] = ..., attempt: _Optional[int] = ..., committed: _Optional[int] = ..., dead_letters: _Optional[int] = ..., lost_tuples: _Optional[int] = ..., waiting_for: _Optional[str] = ..., waiting_s: _Optional[float] = ..., counted_at: _Optional[float] = ..., sent_frames: _Optional[int] = ..., sent_tuples: _Optional[int] = ..., consumed_frames: _Optional[int] = ..., consumed_tuples: _Optional[int] = ..., forgets_failed: bool = ..., rewinds: bool = ..., ends: bool = ..., saves_nothing: bool = ..., letters_before: _Optional[int] = ..., untracked: bool = ..., at_least: bool = ...) -> None: ...

class TopologyEvent(_message.Message):
    __slots__ = ["at", "detail", "first_at", "kind", "lasted_s", "number", "reason", "subject", "text", "times", "warning"]
    AT_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    FIRST_AT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LASTED_S_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    WARNING_FIELD_NUMBER: _ClassVar[int]
    at: float
    detail: str
    first_at: float
    kind: EventKind
    lasted_s: float
    number: int
    reason: str
    subject: str
    text: str
    times: int
    warning: bool
    def __init__(self, number: _Optional[int] = ..., at: _Optional[float] = ..., first_at: _Optional[float] = ..., times: _Optional[int] = ..., kind: _Optional[_Union[EventKind, str]] = ..., subject: _Optional[str] = ..., reason: _Optional[str] = ..., text: _Optional[str] = ..., lasted_s: _Optional[float] = ..., warning: bool = ..., detail: _Optional[str] = ...) -> None: ...

class TotalsLedger(_message.Message):
    __slots__ = ["has_run", "queues_lost", "restarts", "restores", "retired", "retired_of", "started_at", "stmgrs", "tasks", "topology_id", "uncounted", "untracked"]
    HAS_RUN_FIELD_NUMBER: _ClassVar[int]
    QUEUES_LOST_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    RESTORES_FIELD_NUMBER: _ClassVar[int]
    RETIRED_FIELD_NUMBER: _ClassVar[int]
    RETIRED_OF_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    STMGRS_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    UNCOUNTED_FIELD_NUMBER: _ClassVar[int]
    UNTRACKED_FIELD_NUMBER: _ClassVar[int]
    has_run: bool
    queues_lost: bool
    restarts: _containers.RepeatedCompositeFieldContainer[RestartLedger]
    restores: int
    retired: TupleTotals
    retired_of: _containers.RepeatedCompositeFieldContainer[RetiredTotals]
    started_at: float
    stmgrs: _containers.RepeatedCompositeFieldContainer[StmgrLedger]
    tasks: _containers.RepeatedCompositeFieldContainer[TaskLedger]
    topology_id: str
    uncounted: bool
    untracked: bool
    def __init__(self, queues_lost: bool = ..., topology_id: _Optional[str] = ..., tasks: _Optional[_Iterable[_Union[TaskLedger, _Mapping]]] = ..., stmgrs: _Optional[_Iterable[_Union[StmgrLedger, _Mapping]]] = ..., retired: _Optional[_Union[TupleTotals, _Mapping]] = ..., uncounted: bool = ..., retired_of: _Optional[_Iterable[_Union[RetiredTotals, _Mapping]]] = ..., restores: _Optional[int] = ..., started_at: _Optional[float] = ..., has_run: bool = ..., restarts: _Optional[_Iterable[_Union[RestartLedger, _Mapping]]] = ..., untracked: bool = ...) -> None: ...

class TraceRate(_message.Message):
    __slots__ = ["lease_s", "per_s"]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    PER_S_FIELD_NUMBER: _ClassVar[int]
    lease_s: float
    per_s: float
    def __init__(self, per_s: _Optional[float] = ..., lease_s: _Optional[float] = ...) -> None: ...

class TriggerCheckpoint(_message.Message):
    __slots__ = ["checkpoint", "savepoint", "task_ids", "unaligned"]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    SAVEPOINT_FIELD_NUMBER: _ClassVar[int]
    TASK_IDS_FIELD_NUMBER: _ClassVar[int]
    UNALIGNED_FIELD_NUMBER: _ClassVar[int]
    checkpoint: int
    savepoint: bool
    task_ids: _containers.RepeatedScalarFieldContainer[int]
    unaligned: bool
    def __init__(self, checkpoint: _Optional[int] = ..., savepoint: bool = ..., unaligned: bool = ..., task_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class TupleTotals(_message.Message):
    __slots__ = ["acked", "at_least", "begun_again", "dead_letters", "failed", "letters_at_least", "lost", "lost_estimated", "lost_unknown", "not_resent", "replayed", "restores", "spouts_begun_again", "untracked"]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    BEGUN_AGAIN_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    LETTERS_AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    LOST_ESTIMATED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    LOST_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    NOT_RESENT_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    RESTORES_FIELD_NUMBER: _ClassVar[int]
    SPOUTS_BEGUN_AGAIN_FIELD_NUMBER: _ClassVar[int]
    UNTRACKED_FIELD_NUMBER: _ClassVar[int]
    acked: int
    at_least: bool
    begun_again: _containers.RepeatedScalarFieldContainer[str]
    dead_letters: int
    failed: int
    letters_at_least: bool
    lost: int
    lost_estimated: bool
    lost_unknown: bool
    not_resent: int
    replayed: int
    restores: int
    spouts_begun_again: int
    untracked: bool
    def __init__(self, acked: _Optional[int] = ..., failed: _Optional[int] = ..., replayed: _Optional[int] = ..., dead_letters: _Optional[int] = ..., lost: _Optional[int] = ..., lost_estimated: bool = ..., restores: _Optional[int] = ..., not_resent: _Optional[int] = ..., spouts_begun_again: _Optional[int] = ..., begun_again: _Optional[_Iterable[str]] = ..., at_least: bool = ..., letters_at_least: bool = ..., lost_unknown: bool = ..., untracked: bool = ...) -> None: ...

class UpdateReply(_message.Message):
    __slots__ = ["added", "discarded_tuples", "plan_version", "removed"]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    DISCARDED_TUPLES_FIELD_NUMBER: _ClassVar[int]
    PLAN_VERSION_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    added: _containers.RepeatedScalarFieldContainer[int]
    discarded_tuples: int
    plan_version: int
    removed: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, added: _Optional[_Iterable[int]] = ..., removed: _Optional[_Iterable[int]] = ..., discarded_tuples: _Optional[int] = ..., plan_version: _Optional[int] = ...) -> None: ...

class UpdateTopology(_message.Message):
    __slots__ = ["drain_timeout_s", "expected_version", "packing_plan", "topology"]
    DRAIN_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_VERSION_FIELD_NUMBER: _ClassVar[int]
    PACKING_PLAN_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    drain_timeout_s: float
    expected_version: int
    packing_plan: _plan_pb2.PackingPlan
    topology: _topology_pb2.Topology
    def __init__(self, topology: _Optional[_Union[_topology_pb2.Topology, _Mapping]] = ..., packing_plan: _Optional[_Union[_plan_pb2.PackingPlan, _Mapping]] = ..., expected_version: _Optional[int] = ..., drain_timeout_s: _Optional[float] = ...) -> None: ...

class TaskState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class ProcessState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class ProcessKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class ExitReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class SpanEnd(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class Lifecycle(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class EventKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class Refusal(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
