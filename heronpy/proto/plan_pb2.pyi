from heronpy.proto import topology_pb2 as _topology_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AvoidedHost(_message.Message):
    __slots__ = ["by", "draining", "host", "until", "why"]
    BY_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    by: str
    draining: bool
    host: str
    until: float
    why: str
    def __init__(self, host: _Optional[str] = ..., until: _Optional[float] = ..., why: _Optional[str] = ..., by: _Optional[str] = ..., draining: bool = ...) -> None: ...

class ContainerPlan(_message.Message):
    __slots__ = ["id", "instances", "required"]
    ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_FIELD_NUMBER: _ClassVar[int]
    id: int
    instances: _containers.RepeatedCompositeFieldContainer[InstancePlan]
    required: Resource
    def __init__(self, id: _Optional[int] = ..., instances: _Optional[_Iterable[_Union[InstancePlan, _Mapping]]] = ..., required: _Optional[_Union[Resource, _Mapping]] = ...) -> None: ...

class ExecutionState(_message.Message):
    __slots__ = ["begun_at", "cluster", "environ", "host", "launch_file", "program", "release", "role", "submission_user", "submitted_at", "topology", "topology_id", "working_dir"]
    BEGUN_AT_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    ENVIRON_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_FILE_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    SUBMISSION_USER_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_AT_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_ID_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIR_FIELD_NUMBER: _ClassVar[int]
    begun_at: float
    cluster: str
    environ: str
    host: str
    launch_file: str
    program: str
    release: str
    role: str
    submission_user: str
    submitted_at: float
    topology: str
    topology_id: str
    working_dir: str
    def __init__(self, topology: _Optional[str] = ..., topology_id: _Optional[str] = ..., cluster: _Optional[str] = ..., role: _Optional[str] = ..., environ: _Optional[str] = ..., submission_user: _Optional[str] = ..., submitted_at: _Optional[float] = ..., release: _Optional[str] = ..., working_dir: _Optional[str] = ..., launch_file: _Optional[str] = ..., host: _Optional[str] = ..., begun_at: _Optional[float] = ..., program: _Optional[str] = ...) -> None: ...

class InstancePlan(_message.Message):
    __slots__ = ["component", "component_index", "memory_limit_bytes", "resource", "task_id"]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_INDEX_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    component: str
    component_index: int
    memory_limit_bytes: int
    resource: Resource
    task_id: int
    def __init__(self, component: _Optional[str] = ..., task_id: _Optional[int] = ..., component_index: _Optional[int] = ..., resource: _Optional[_Union[Resource, _Mapping]] = ..., memory_limit_bytes: _Optional[int] = ...) -> None: ...

class InstanceRecord(_message.Message):
    __slots__ = ["component", "component_index", "container", "instance_id", "task_id"]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_INDEX_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    component: str
    component_index: int
    container: int
    instance_id: str
    task_id: int
    def __init__(self, instance_id: _Optional[str] = ..., task_id: _Optional[int] = ..., component: _Optional[str] = ..., component_index: _Optional[int] = ..., container: _Optional[int] = ...) -> None: ...

class PackingPlan(_message.Message):
    __slots__ = ["containers", "id", "next_task_id", "version"]
    CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_TASK_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    containers: _containers.RepeatedCompositeFieldContainer[ContainerPlan]
    id: str
    next_task_id: int
    version: int
    def __init__(self, id: _Optional[str] = ..., version: _Optional[int] = ..., containers: _Optional[_Iterable[_Union[ContainerPlan, _Mapping]]] = ..., next_task_id: _Optional[int] = ...) -> None: ...

class PhysicalPlan(_message.Message):
    __slots__ = ["instances", "regions", "spouts_held", "stmgrs", "tmaster_epoch", "topology", "version"]
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    SPOUTS_HELD_FIELD_NUMBER: _ClassVar[int]
    STMGRS_FIELD_NUMBER: _ClassVar[int]
    TMASTER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    instances: _containers.RepeatedCompositeFieldContainer[InstanceRecord]
    regions: _containers.RepeatedCompositeFieldContainer[RegionRecord]
    spouts_held: bool
    stmgrs: _containers.RepeatedCompositeFieldContainer[StmgrRecord]
    tmaster_epoch: int
    topology: _topology_pb2.Topology
    version: int
    def __init__(self, topology: _Optional[_Union[_topology_pb2.Topology, _Mapping]] = ..., version: _Optional[int] = ..., tmaster_epoch: _Optional[int] = ..., stmgrs: _Optional[_Iterable[_Union[StmgrRecord, _Mapping]]] = ..., instances: _Optional[_Iterable[_Union[InstanceRecord, _Mapping]]] = ..., regions: _Optional[_Iterable[_Union[RegionRecord, _Mapping]]] = ..., spouts_held: bool = ...) -> None: ...

class PlacementEntry(_message.Message):
    __slots__ = ["cancels", "cause_reason", "cause_text", "container", "ends", "epoch", "exit_detail", "exit_reason", "failed", "finished", "holder", "judged", "moves_from", "restarts", "submitted"]
    CANCELS_FIELD_NUMBER: _ClassVar[int]
    CAUSE_REASON_FIELD_NUMBER: _ClassVar[int]
    CAUSE_TEXT_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    EXIT_DETAIL_FIELD_NUMBER: _ClassVar[int]
    EXIT_REASON_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    JUDGED_FIELD_NUMBER: _ClassVar[int]
    MOVES_FROM_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_FIELD_NUMBER: _ClassVar[int]
    cancels: RestartCharges
    cause_reason: str
    cause_text: str
    container: int
    ends: RestartCharges
    epoch: int
    exit_detail: str
    exit_reason: str
    failed: str
    finished: bool
    holder: int
    judged: int
    moves_from: str
    restarts: int
    submitted: int
    def __init__(self, container: _Optional[int] = ..., submitted: _Optional[int] = ..., holder: _Optional[int] = ..., epoch: _Optional[int] = ..., restarts: _Optional[int] = ..., judged: _Optional[int] = ..., failed: _Optional[str] = ..., finished: bool = ..., exit_reason: _Optional[str] = ..., exit_detail: _Optional[str] = ..., ends: _Optional[_Union[RestartCharges, _Mapping]] = ..., cancels: _Optional[_Union[RestartCharges, _Mapping]] = ..., moves_from: _Optional[str] = ..., cause_reason: _Optional[str] = ..., cause_text: _Optional[str] = ...) -> None: ...

class PlacementLedger(_message.Message):
    __slots__ = ["alone", "entries", "hosts", "killing", "scheduler"]
    ALONE_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    KILLING_FIELD_NUMBER: _ClassVar[int]
    SCHEDULER_FIELD_NUMBER: _ClassVar[int]
    alone: bool
    entries: _containers.RepeatedCompositeFieldContainer[PlacementEntry]
    hosts: _containers.RepeatedCompositeFieldContainer[AvoidedHost]
    killing: bool
    scheduler: SchedulerTrace
    def __init__(self, entries: _Optional[_Iterable[_Union[PlacementEntry, _Mapping]]] = ..., scheduler: _Optional[_Union[SchedulerTrace, _Mapping]] = ..., alone: bool = ..., killing: bool = ..., hosts: _Optional[_Iterable[_Union[AvoidedHost, _Mapping]]] = ...) -> None: ...

class RegionRecord(_message.Message):
    __slots__ = ["attempt", "checkpoint", "components", "epochs", "location", "started"]
    class EpochsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    COMPONENTS_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    LOCATION_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    checkpoint: int
    components: _containers.RepeatedScalarFieldContainer[str]
    epochs: _containers.ScalarMap[int, int]
    location: str
    started: bool
    def __init__(self, components: _Optional[_Iterable[str]] = ..., attempt: _Optional[int] = ..., checkpoint: _Optional[int] = ..., location: _Optional[str] = ..., started: bool = ..., epochs: _Optional[_Mapping[int, int]] = ...) -> None: ...

class Resource(_message.Message):
    __slots__ = ["cpu", "disk_bytes", "ram_bytes"]
    CPU_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    RAM_BYTES_FIELD_NUMBER: _ClassVar[int]
    cpu: float
    disk_bytes: int
    ram_bytes: int
    def __init__(self, cpu: _Optional[float] = ..., ram_bytes: _Optional[int] = ..., disk_bytes: _Optional[int] = ...) -> None: ...

class RestartCharge(_message.Message):
    __slots__ = ["at", "reason"]
    AT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    at: _containers.RepeatedScalarFieldContainer[float]
    reason: str
    def __init__(self, reason: _Optional[str] = ..., at: _Optional[_Iterable[float]] = ...) -> None: ...

class RestartCharges(_message.Message):
    __slots__ = ["charges", "healthy_at", "last_pause_s", "streak"]
    CHARGES_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_PAUSE_S_FIELD_NUMBER: _ClassVar[int]
    STREAK_FIELD_NUMBER: _ClassVar[int]
    charges: _containers.RepeatedCompositeFieldContainer[RestartCharge]
    healthy_at: float
    last_pause_s: float
    streak: int
    def __init__(self, charges: _Optional[_Iterable[_Union[RestartCharge, _Mapping]]] = ..., streak: _Optional[int] = ..., last_pause_s: _Optional[float] = ..., healthy_at: _Optional[float] = ...) -> None: ...

class SchedulerLocation(_message.Message):
    __slots__ = ["control_endpoints", "endpoint", "endpoint_key", "host", "permit", "pid", "topology"]
    CONTROL_ENDPOINTS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_KEY_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PERMIT_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    control_endpoints: _containers.RepeatedScalarFieldContainer[str]
    endpoint: str
    endpoint_key: bytes
    host: str
    permit: str
    pid: int
    topology: str
    def __init__(self, topology: _Optional[str] = ..., endpoint: _Optional[str] = ..., pid: _Optional[int] = ..., host: _Optional[str] = ..., permit: _Optional[str] = ..., control_endpoints: _Optional[_Iterable[str]] = ..., endpoint_key: _Optional[bytes] = ...) -> None: ...

class SchedulerTrace(_message.Message):
    __slots__ = ["host", "permit", "pid", "pids", "started"]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PERMIT_FIELD_NUMBER: _ClassVar[int]
    PIDS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    host: str
    permit: str
    pid: int
    pids: int
    started: int
    def __init__(self, host: _Optional[str] = ..., pid: _Optional[int] = ..., started: _Optional[int] = ..., permit: _Optional[str] = ..., pids: _Optional[int] = ...) -> None: ...

class StmgrRecord(_message.Message):
    __slots__ = ["container", "control_endpoint", "data_endpoint", "epoch", "host", "id", "pid"]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    CONTROL_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    DATA_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    container: int
    control_endpoint: str
    data_endpoint: str
    epoch: int
    host: str
    id: str
    pid: int
    def __init__(self, id: _Optional[str] = ..., container: _Optional[int] = ..., epoch: _Optional[int] = ..., data_endpoint: _Optional[str] = ..., control_endpoint: _Optional[str] = ..., pid: _Optional[int] = ..., host: _Optional[str] = ...) -> None: ...

class TmasterLocation(_message.Message):
    __slots__ = ["endpoint", "epoch", "host", "pid", "topology"]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    endpoint: str
    epoch: int
    host: str
    pid: int
    topology: str
    def __init__(self, topology: _Optional[str] = ..., endpoint: _Optional[str] = ..., epoch: _Optional[int] = ..., pid: _Optional[int] = ..., host: _Optional[str] = ...) -> None: ...

class UpdateIntent(_message.Message):
    __slots__ = ["drain_timeout_s", "new_packing_plan", "new_topology", "old_packing_plan", "old_topology"]
    DRAIN_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    NEW_PACKING_PLAN_FIELD_NUMBER: _ClassVar[int]
    NEW_TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    OLD_PACKING_PLAN_FIELD_NUMBER: _ClassVar[int]
    OLD_TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    drain_timeout_s: float
    new_packing_plan: PackingPlan
    new_topology: _topology_pb2.Topology
    old_packing_plan: PackingPlan
    old_topology: _topology_pb2.Topology
    def __init__(self, old_topology: _Optional[_Union[_topology_pb2.Topology, _Mapping]] = ..., old_packing_plan: _Optional[_Union[PackingPlan, _Mapping]] = ..., new_topology: _Optional[_Union[_topology_pb2.Topology, _Mapping]] = ..., new_packing_plan: _Optional[_Union[PackingPlan, _Mapping]] = ..., drain_timeout_s: _Optional[float] = ...) -> None: ...
