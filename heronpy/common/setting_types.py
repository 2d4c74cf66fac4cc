"""Every setting, in one frozen struct for each group of settings: the only place where defaults are defined. Pure.

A field contains its documentation and range, so that parsing, the commented files in conf/, the documentation and
`heron config show` all read the same source. Invariants: each default is in the field's range, and the defaults satisfy
`ORDERED`; the name of a field with a unit ends in this unit (`_bytes`, `_s`, `_ms`, `_us`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from heronpy.common.engine_settings import (
    BatchSettings,
    EngineSettings,
    IngestSettings,
    KubernetesSettings,
    Room,
    SlurmSettings,
    SparkEngineSettings,
)
from heronpy.common.engine_settings import SettingValue as SettingValue
from heronpy.common.engine_settings import setting as _setting
from heronpy.common.units import GB, KB, MB


class StmgrSettings(Room, frozen=True):
    """The stream manager: one process per container that routes frames."""

    backpressure_high_bytes: int = _setting(
        MB,
        "Size of a task's queue above which the task counts as full; above twice this size, all spouts are stopped.",
        low=1,
    )
    backpressure_low_bytes: int = _setting(512 * KB, "Size of the queue at which the task no longer counts as full.")
    queue_target_ms: float = _setting(
        1000.0,
        "Time that a tuple may wait for a slow task, in the task's queues and on the way to them. The byte limits of "
        "the queues shrink to match; 0 leaves the byte limits unchanged.",
        low=0,
        high=60_000,
    )
    backpressure_lease_s: float = _setting(
        3.0, "Backpressure ends if its announcement is not renewed for this long.", low=0.01
    )
    backpressure_renew_s: float = _setting(1.0, "Interval at which ongoing backpressure is announced again.", low=0.01)
    link_window_bytes: int = _setting(
        MB,
        "Maximum number of unconfirmed bytes in transit to one other stream manager.",
        low=1,
    )
    instance_out_window_bytes: int = _setting(
        MB, "Bytes that an instance may send before the stream manager grants more.", low=1
    )
    heartbeat_interval_s: float = _setting(
        1.0,
        "Interval at which the stream manager reports to the topology master. An idle stream manager without peers "
        "extends the interval to a third of the time after which it counts as lost.",
        low=0.01,
    )
    instance_lost_s: float = _setting(10.0, "An instance that is silent for this long counts as lost.", low=0.01)
    frames_per_turn: int = _setting(64, "Frames read from one socket before the next socket is served.", low=1)
    frame_max_bytes: int = _setting(
        64 * MB, "Maximum size of a frame; larger frames are refused. The largest tuple must fit into a frame.", low=KB
    )
    peer_reconnect_max_s: float = _setting(
        1.0, "Longest pause between two attempts to connect to another stream manager.", low=0.001
    )
    socks_proxy: str = _setting(
        "",
        "SOCKS5 proxy (host:port) through which a stream manager connects to other stream managers and the topology"
        " master; empty: direct connections.",
    )


class InstanceSettings(Room, frozen=True):
    """The instance: one process per task. Components may override these settings in their configuration."""

    profile: str = _setting(
        "balanced",
        "Defaults of linger_max_us and spout_idle_min_us: 'latency' (0 and 50) sends each tuple immediately and polls"
        " spouts most often, 'thrift' (10,000 and 5,000) saves CPU time by waiting longer, 'balanced' (1,000 and 1,000)"
        " is in between. Explicit values override the profile.",
        choices=("balanced", "latency", "thrift"),
    )
    tuple_max_bytes: int = _setting(
        32 * MB, "Maximum size of a tuple; emitting a larger tuple raises an error in the user's code.", low=1
    )
    batch_tuples: int = _setting(2000, "A batch is sent when it holds this many tuples.", low=1, high=100_000)
    batch_bytes: int = _setting(64 * KB, "A batch is sent when it holds this many bytes.", low=1)
    linger_max_us: float = _setting(
        1000.0,
        "Longest time that an emitted tuple waits for its batch to fill. A task that seldom sends does so immediately."
        " No task sends to one destination more often than this, unless batches are full. A task that has not slept"
        " since its last send is saturated and waits up to five times as long, for larger frames. 0: no tuple waits.",
        high=1_000_000,
    )
    in_queue_tuples_max: int = _setting(65536, "Upper limit of the capacity of the incoming queue, in tuples.", low=1)
    in_queue_bytes_max: int = _setting(
        512 * KB, "Upper limit of the incoming queue in bytes; one frame always fits.", low=1
    )
    in_queue_expected_tuples: int = _setting(8192, "Target length of the incoming queue for its self-tuning.", low=1)
    out_queue_tuples_max: int = _setting(65536, "Upper limit of the capacity of the outgoing queue, in tuples.", low=1)
    out_queue_bytes_max: int = _setting(MB, "Upper limit of the outgoing queue in bytes; one frame always fits.", low=1)
    out_queue_expected_tuples: int = _setting(8192, "Target length of the outgoing queue for its self-tuning.", low=1)
    queue_sample_ms: float = _setting(100.0, "Interval at which the self-tuning samples the length of a queue.", low=1)
    queue_ema_weight: float = _setting(
        0.8, "Weight of the newest sample in the moving average of queue length.", low=0.01, high=1
    )
    spout_idle_min_us: float = _setting(
        1000.0,
        "First pause of a spout with nothing to emit; later pauses grow with its idle time. The first pause is twice as"
        " long while the spout emits fewer than four tuples at a time, unless linger_max_us is 0.",
    )
    spout_idle_max_ms: float = _setting(
        500.0, "Longest pause of a spout with nothing to emit; reached after an idle time of 50 such pauses."
    )
    heartbeat_interval_s: float = _setting(1.0, "Interval at which the instance reports its progress.", low=0.01)
    hang_timeout_s: float = _setting(
        60.0, "A task whose user code does not return for this long is restarted; 0 disables the check."
    )
    ready_timeout_s: float = _setting(
        600.0,
        "A bolt with is_ready() fails if it is not ready within this time after its initialisation; 0: no limit.",
    )
    execute_timeout_s: float = _setting(
        0.0,
        "Time limit of a bolt's process() for one tuple; 0: no limit. When a call exceeds the limit, the task ends, and"
        " the tuple has used one of its poison_tries. hang_timeout_s covers all user code: after a task has ended for"
        " that reason, the restarted task looks for the hanging tuple and counts a try only if the tuple hangs again.",
    )
    slow_ms: float = _setting(
        100.0,
        "Tuples whose process() takes longer are slow; the slowest tuples of the last hour are kept with their values"
        " for 'heron slow'. 0 keeps none.",
    )
    poison_tries: int = _setting(
        3,
        "A tuple whose processing has raised, hung or crashed the task this many times goes to the dead letters"
        " instead of being retried; 0 retries forever and writes no dead letters. Killing the task does not count,"
        " and the count is reset when a tuple with the same values succeeds.",
        high=1000,
    )
    dead_letters_max_bytes: int = _setting(
        16 * MB, "Maximum size of a task's dead letters; the oldest are dropped.", low=64 * KB
    )
    async_concurrency: int = _setting(
        64,
        "Asynchronous bolts: tuples in progress at the same time. Asynchronous spouts: coroutines of ack and fail that"
        " may run while the spout continues to emit.",
        low=1,
    )
    route_memo_keys: int = _setting(
        200_000, "Number of keys whose destination the fields grouping caches; 0 disables the cache."
    )
    allow_pickle: bool = _setting(True, "Allow values other than plain scalars; if false, emitting them is an error.")
    ack_timeout_buckets: int = _setting(10, "Number of checks for expired tuples within one message timeout.", low=1)
    memory_limit_bytes: int = _setting(0, "Address space that the process may use (RLIMIT_AS); 0 means no limit.")
    memory_soft_limit_bytes: int = _setting(
        0, "A task with more resident memory counts as out of memory and is restarted; 0 means no limit."
    )
    force_exit_s: float = _setting(2.0, "Time for user code to clean up before the process exits anyway.")


class TmasterSettings(Room, frozen=True):
    """The topology master: one per topology."""

    stmgr_lost_s: float = _setting(10.0, "A stream manager that is silent for this long counts as lost.", low=0.01)
    executor_lost_s: float = _setting(15.0, "An executor that is silent for this long counts as lost.", low=0.01)
    start_timeout_s: float = _setting(
        60.0, "A topology is reported as failed if not all of its tasks start within this time.", low=0.1
    )
    metrics_keep_s: float = _setting(10800.0, "Time for which metrics are kept in memory.", low=1)
    metrics_bucket_s: float = _setting(10.0, "Time resolution of the kept metrics.", low=0.1)
    exceptions_max: int = _setting(256, "Maximum number of exceptions of user code kept for display.", low=1)
    drain_timeout_s: float = _setting(30.0, "An update waits this long for removed tasks to empty their queues.")
    standbys: int = _setting(
        0, "Number of standby topology masters; one of them takes over when the active one dies or hangs.", high=16
    )
    takeover_s: float = _setting(
        5.0, "A standby takes over when the topology master has not answered for this long.", low=0.1
    )
    progress_interval_s: float = _setting(
        0.1, "Interval at which the master checks for drained and finished tasks.", low=0.01
    )


class ExecutorSettings(Room, frozen=True):
    """The executor: supervises the processes of one container."""

    restart_backoff_s: float = _setting(0.05, "Pause before the first restart of a process.")
    restart_backoff_max_s: float = _setting(60.0, "Longest pause before a restart.")
    restart_budget: int = _setting(
        10, "Number of restarts of a process, for one reason in restart_window_s, before the process is abandoned."
    )
    restart_budgets: dict[str, Any] = _setting(
        {},
        "Budgets that override restart_budget for single reasons, as a map of reason to number. Reasons:"
        " user_exception, oom, crashed, hung, ok, fenced, own_bug, spawn_failed, and killed (unlimited by default).",
    )
    restart_window_s: float = _setting(300.0, "Length of the window in which restarts are counted.", low=1)
    restart_exception_budget_s: float = _setting(
        600.0,
        "Time for which user code may keep raising exceptions before its task is abandoned, if the task has run before."
        " The pauses between restarts double up to restart_backoff_max_s. With 0, or with a number for user_exception"
        " in restart_budgets, exceptions count against the budget instead.",
    )
    stop_grace_s: float = _setting(2.0, "Time for a process to stop before it is killed.")
    control_groups: bool = _setting(
        True,
        "On one machine, use Linux control groups to limit each container to the CPU and memory that the topology"
        " requests. Where control groups cannot be written, nothing is limited, and `heron status` gives the reason."
        " An engine enforces its own limits.",
    )
    metrics_port: int = _setting(
        0,
        "TCP port of container 0's metrics page; container c uses this port plus c. 0: any free port.",
        high=65535,
    )
    metrics_host: str = _setting(
        "127.0.0.1",
        "Address on which the metrics page is served. The word 'host' stands for the address at which other hosts reach"
        " this one, according to heron.security.network and port_range; use it for a Prometheus on another host. Anyone"
        " who can reach the page can read it.",
    )
    usage_interval_s: float = _setting(
        2.0,
        "Interval at which memory and CPU use of the processes are measured; twice as long while all processes are idle"
        " and none has a memory limit.",
        low=0.1,
    )
    preload: bool = _setting(True, "Start tasks by forking a process that has already loaded the runtime.")


class SchedulerSettings(Room, frozen=True):
    """The local scheduler: starts and restarts the containers of a topology."""

    container_restart_backoff_s: float = _setting(0.2, "Pause before the first restart of a container.")
    container_restart_budget: int = _setting(
        10, "Number of restarts of a container, in container_restart_window_s, before the container is abandoned."
    )
    container_restart_window_s: float = _setting(
        300.0, "Length of the window in which container restarts are counted.", low=1
    )
    kill_grace_s: float = _setting(3.0, "Time for a container to stop before it is killed.")


class StatemgrSettings(Room, frozen=True):
    """The state manager: the store of plans and locations."""

    type: str = _setting(
        "local", "Kind of state manager: local (files below root) or zookeeper (for several machines)."
    )
    root: str = _setting(
        "",
        "Directory of the state; empty means state/<cluster> below HERON_HOME."
        " For zookeeper: host:port,host:port/path.",
    )
    session_timeout_s: float = _setting(
        10.0,
        "For ZooKeeper, and for containers on a different host than their scheduler. A process that is silent for this"
        " long counts as dead and loses its locks and locations. ZooKeeper servers may impose limits.",
        low=0.1,
    )
    auth_file: str = _setting(
        "",
        "ZooKeeper only. A file with one line user:password, readable by its owner only; the state"
        " is then open to this user only. Empty: everyone who can connect may use the state.",
    )


class PackingSettings(Room, frozen=True):
    """Packing: the assignment of tasks to containers."""

    algorithm: str = _setting(
        "balanced",
        "Algorithm that distributes tasks over containers. With balanced, the numbers of tasks of any two containers"
        " differ by at most one, in total and for each component, even after an update.",
        choices=(
            "balanced",
            "round_robin",
            "resource_compliant_round_robin",
            "first_fit_decreasing",
        ),
    )
    moves_percent: float = _setting(
        25.0,
        "Share of the running tasks that an update may move to balance the containers, if the number of containers"
        " stays the same. A moved task is restarted. If balance needs more moves, the update comes as close as this"
        " share allows. Only the algorithm balanced moves tasks in such an update.",
        high=100,
    )
    container_padding_percent: float = _setting(
        10.0, "Share of a container kept free for the runtime itself.", high=1000
    )
    instance_ram_bytes: int = _setting(GB, "Memory of a task whose component does not specify any.", low=16 * MB)
    instance_cpu: float = _setting(1.0, "Processor cores of a task whose component does not specify any.", low=0.001)
    instance_disk_bytes: int = _setting(GB, "Disk of a task whose component does not specify any.")


class SparkSettings(Room, frozen=True):
    """The Spark gateway: one driver per topology that aggregates micro-batches of sink bolts."""

    master: str = _setting(
        "local[2]",
        "Spark master to connect to: local[N], spark://HOST:PORT, yarn, k8s://URL, or sc://HOST:PORT for a Spark"
        " Connect server.",
    )
    driver_memory: str = _setting(
        "",
        "Memory of the Spark driver, in Spark's notation. Empty means an eighth of the memory of its container, or else"
        " of the machine, but at least 1 GB and at most 4 GB.",
    )
    batch_rows: int = _setting(10_000, "A micro-batch is committed when it has this many rows.", low=1)
    batch_bytes: int = _setting(16 * MB, "A micro-batch is committed when its rows have about this many bytes.", low=1)
    batch_interval_s: float = _setting(1.0, "Maximum age of a micro-batch before it is committed.", low=0.001)
    batch_bytes_max: int = _setting(
        32 * MB,
        "While two batches of a sink task wait for Spark, the next batch grows up to about this many bytes and 16 times"
        " batch_rows. Batches never grow if this size is not above batch_bytes.",
        low=1,
    )
    parallel_batches: int = _setting(
        1,
        "Number of micro-batches of different sink tasks that Spark processes at the same time; batches of one task"
        " stay in order. With more than 1, aggregate functions run in several threads and must be thread-safe, each"
        " sink task has its own SparkSession, and the driver holds this many batches in memory.",
        low=1,
        high=64,
    )
    max_retries: int = _setting(3, "Number of retries of a micro-batch after its first attempt has failed.")
    handover: str = _setting(
        "",
        "Place where micro-batches wait for Spark if sinks and driver are on different hosts: a folder that all hosts"
        " share, or a URL s3://, gs:// or az:// with bucket and prefix. Empty: the topology's folder, on one host.",
    )
    start_timeout_s: float = _setting(
        300.0,
        "Spark fails to start if it has no session within this time; the error shows the last output of Spark's JVM.",
        low=1,
    )
    conf: dict[str, Any] = _setting(
        {},
        "Additional Spark properties, a map of name to value.",
    )


class CheckpointSettings(Room, frozen=True):
    """Checkpoints of EFFECTIVELY_ONCE topologies: interval, store and restore."""

    interval_s: float = _setting(
        10.0,
        "Time between the starts of two checkpoints; topology.stateful.checkpoint.interval.seconds sets it, too.",
        low=0.05,
    )
    interval_min_s: float = _setting(
        0.1, "Minimum for interval_s of all topologies, which protects the other users of the store."
    )
    min_pause_s: float = _setting(0.0, "Shortest time between the end of one checkpoint and the start of the next.")
    timeout_s: float = _setting(60.0, "A checkpoint that takes longer is aborted.", low=0.1)
    savepoint_timeout_s: float = _setting(600.0, "A savepoint that takes longer is aborted.", low=0.1)
    aligned_timeout_s: float = _setting(
        1.0,
        "A checkpoint whose barriers take longer to pass the queues saves the tuples in flight instead of waiting for"
        " them; 0: every checkpoint saves them without waiting. Savepoints and updates always wait for the barriers.",
        low=0.0,
    )
    alignment_bytes_max: int = _setting(
        100 * MB,
        "Bytes that a task may hold back, or save as tuples in flight, before it declines a checkpoint.",
        low=1,
    )
    key_groups: int = _setting(
        1024,
        "Number of key groups of a component's keyed state, which is the maximum number of its tasks.",
        low=1,
        high=32768,
    )
    root: str = _setting(
        "",
        "Checkpoint store: a folder, or a URL s3://, gs:// or az:// with bucket and prefix; empty means"
        " checkpoints/<cluster> in HERON_HOME.",
    )
    stores: dict[str, Any] = _setting(
        {},
        "Several folders as stores, a map of name to folder, or to a map of folder, weight, writers and"
        " rate_bytes; store_policy assigns one to each topology.",
    )
    store_policy: str = _setting(
        "least_used",
        "Rule that chooses the store of a new topology: least_used takes the store with the fewest topologies, hash"
        " hashes the topology's id (both respect the weights), and most_free takes the store with the most free space.",
        choices=("least_used", "hash", "most_free"),
    )
    store_writers: int = _setting(
        0, "Maximum number of state files that this host writes to a store at the same time; 0: no limit.", high=10_000
    )
    store_rate_bytes: int = _setting(
        0, "Maximum number of bytes of state that this host writes to a store per second; 0 means no limit."
    )
    replica: str = _setting(
        "",
        "Folder or URL to which a separate process copies complete checkpoints; empty disables copying.",
    )
    replica_rate_bytes: int = _setting(0, "Maximum number of bytes copied to the replica per second; 0: no limit.")
    replica_threads: int = _setting(
        4, "Maximum number of files copied to the replica at the same time.", low=1, high=64
    )
    spool_bytes_max: int = _setting(
        256 * MB,
        "Maximum size of a task's state that may wait on its host for the upload to an object store; beyond this size"
        " the task waits.",
        low=64 * KB,
    )
    retained: int = _setting(5, "Number of complete checkpoints to keep; savepoints are always kept.", low=1)
    inline_max_bytes: int = _setting(
        20 * KB, "State up to this size is stored in the metadata instead of a separate file."
    )
    fork_above_bytes: int = _setting(
        256 * KB, "State above this size at the last checkpoint is written by a forked copy while the task continues."
    )
    compact_ratio: float = _setting(
        0.5, "Keyed state is rewritten in full when its changes exceed this share of the state.", low=0.01
    )
    fsync: bool = _setting(True, "Flush files to disk before a checkpoint counts as complete.")
    allow_empty: bool = _setting(
        False, "Start with empty state when no checkpoint can be restored, instead of failing."
    )
    restore_budget: int = _setting(
        20,
        "Number of restores after which the topology counts as failed. Only restores caused by lost frames count, and"
        " only within restore_window_s and without a complete checkpoint in between.",
    )
    restore_window_s: float = _setting(300.0, "Restores older than this no longer count.", low=1)


class MetricsSettings(Room, frozen=True):
    """Metrics of all processes."""

    export_interval_s: float = _setting(
        1.0, "Interval at which a process exports its metrics; up to 9 s while the process is idle.", low=0.05
    )
    sink_interval_s: float = _setting(60.0, "Interval at which an executor sends all metrics to its sinks.", low=0.5)
    file_sink: bool = _setting(
        False, "Each executor appends metrics as JSON lines to metrics/executor-<c>.jsonl in the working folder."
    )
    file_sink_max_bytes: int = _setting(16 * MB, "A file of the file sink is rotated at this size.", low=64 * KB)
    file_sink_files_max: int = _setting(
        5, "Number of files that the file sink keeps per executor, including the current file.", low=1, high=1000
    )
    graphite_host: str = _setting(
        "", "Host to which each executor sends metrics as Graphite's plain text over TCP; empty: no metrics are sent."
    )
    graphite_port: int = _setting(2003, "TCP port of Graphite.", low=1, high=65535)
    graphite_prefix: str = _setting("heron", "Prefix of the paths in Graphite, before the topology's name.")


class TraceSettings(Room, frozen=True):
    """Tracing: the latency of a sample of tuples, in total and by hop."""

    per_s: float = _setting(
        5.0,
        "Number of tuples per second that all spout tasks trace together; 'heron trace' and the page 'traces' show how"
        " long each hop takes. Also the number of frames per second and destination that a task marks; sinks measure"
        " the latency since the spout from the marks (__end-to-end-latency). 0 disables both.",
        high=1000,
    )


class LoggingSettings(Room, frozen=True):
    """Logs of all processes."""

    level: str = _setting(
        "INFO",
        "Lowest level that is logged.",
        choices=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
    )
    file_max_bytes: int = _setting(100 * MB, "A log file of this size is rotated.", low=4 * KB)
    files_max: int = _setting(
        5,
        "Number of log files kept per process, including the current file; the oldest is deleted.",
        low=1,
        high=1000,
    )
    archive: str = _setting(
        "",
        "Place where containers on an engine put their logs when they end: a folder below heron.engine.shared, or the"
        " URL of an object store. Empty: the last 1 MB of each log goes to the scheduler's host.",
    )
    echo: bool = _setting(
        False,
        "Containers on an engine also write their logs to the standard output of their first process, each line"
        " prefixed with its process's name: for kubectl logs, or for Slurm's job output (heron.slurm.output_dir). If"
        " the output is a file, writing stops at file_max_bytes times files_max.",
    )


class SecuritySettings(Room, frozen=True):
    """Addresses and encryption of a topology's processes."""

    transport: str = _setting(
        "auto",
        "Transport between the processes of one topology. ipc: sockets that only your user can reach, on one"
        " machine; tcp: CurveZMQ with the topology's keys; auto: ipc if bind_host is loopback, else tcp.",
        choices=("auto", "ipc", "tcp"),
    )
    bind_host: str = _setting(
        "127.0.0.1",
        "IPv4 address on which stream managers and the topology master listen when the transport is TCP.",
    )
    network: str = _setting(
        "",
        "Several hosts only. IPv4 network (CIDR) of the addresses on which processes listen; empty: the address from"
        " which a host reaches the scheduler.",
    )
    port_range: str = _setting(
        "", "Several hosts only. Ports on which processes listen, as first-last; empty: any free port."
    )


ROOMS: Final[Mapping[str, type[Room]]] = {
    "stmgr": StmgrSettings,
    "instance": InstanceSettings,
    "tmaster": TmasterSettings,
    "executor": ExecutorSettings,
    "scheduler": SchedulerSettings,
    "statemgr": StatemgrSettings,
    "packing": PackingSettings,
    "spark": SparkSettings,
    "ingest": IngestSettings,
    "batch": BatchSettings,
    "checkpoint": CheckpointSettings,
    "metrics": MetricsSettings,
    "trace": TraceSettings,
    "logging": LoggingSettings,
    "security": SecuritySettings,
    "engine": EngineSettings,
    "slurm": SlurmSettings,
    "kubernetes": KubernetesSettings,
    "spark_engine": SparkEngineSettings,
}
"""Map from the name of each group of settings to its struct."""

ROOM_OF: Final[Mapping[type, str]] = {kind: room for room, kind in ROOMS.items()}

ORDERED: Final[tuple[tuple[str, str, float], ...]] = (
    ("stmgr.backpressure_low_bytes", "stmgr.backpressure_high_bytes", 1),
    ("stmgr.backpressure_renew_s", "stmgr.backpressure_lease_s", 1),
    ("stmgr.heartbeat_interval_s", "stmgr.instance_lost_s", 1),
    ("instance.tuple_max_bytes", "stmgr.frame_max_bytes", 1),
    ("instance.in_queue_expected_tuples", "instance.in_queue_tuples_max", 1),
    ("instance.out_queue_expected_tuples", "instance.out_queue_tuples_max", 1),
    ("instance.spout_idle_min_us", "instance.spout_idle_max_ms", 0.001),
    ("executor.restart_backoff_s", "executor.restart_backoff_max_s", 1),
    ("checkpoint.interval_min_s", "checkpoint.interval_s", 1),
    ("checkpoint.timeout_s", "checkpoint.savepoint_timeout_s", 1),
    ("tmaster.metrics_bucket_s", "tmaster.metrics_keep_s", 1),
)
"""Entries (smaller field, larger field, factor): smaller * factor must not exceed larger."""

PROFILES: Final[Mapping[str, Mapping[str, float]]] = {
    "balanced": {},
    "latency": {"linger_max_us": 0.0, "spout_idle_min_us": 50.0},
    "thrift": {"linger_max_us": 10_000.0, "spout_idle_min_us": 5_000.0},
}
"""Map from profile to the defaults of `InstanceSettings` that the profile changes."""

ALIASES: Final[Mapping[str, str]] = {"topology.stateful.checkpoint.interval.seconds": "heron.checkpoint.interval_s"}
"""Map from a key of Apache Heron to the key of the setting that it sets in heronpy."""

OPERATORS_KEYS: Final = frozenset(
    {"heron.checkpoint.interval_min_s", "heron.security.network", "heron.security.port_range"}
    | {
        f"heron.{ROOM_OF[kind]}.{name}"
        for kind in (EngineSettings, SlurmSettings, KubernetesSettings, SparkEngineSettings)
        for name in kind.described
    }
)
"""Keys that protect other topologies; a topology's own configuration cannot set them."""
