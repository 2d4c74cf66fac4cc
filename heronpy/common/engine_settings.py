"""Functions that declare settings, and the settings of engines, work units and batch runs; see also `setting_types`."""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

from msgspec import Struct, StructMeta

from heronpy.common.units import GB, MB

#: A value of a setting, as represented in YAML and JSON.
SettingValue: TypeAlias = "bool | int | float | str | dict[str, SettingValue]"


class Described(Struct, frozen=True):
    """The default of a field, its documentation, and its permitted values."""

    default: Any
    doc: str
    low: float
    high: float | None
    choices: tuple[str, ...]
    absolute: bool


def setting(
    default: Any,
    doc: str,
    *,
    low: float = 0,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    absolute: bool = False,
) -> Any:
    """Declare a field of a settings group with its documentation and range, which begins at 0 by default. `absolute`:
    the value is an absolute path.
    """
    return Described(default, doc, low, high, choices, absolute)


class RoomType(StructMeta):
    """Metaclass that creates a struct with the defaults, and stores the descriptions in `described`."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> RoomType:
        described = {key: value for key, value in namespace.items() if isinstance(value, Described)}
        defaults = {key: value.default for key, value in described.items()}
        return super().__new__(mcs, name, bases, {**namespace, **defaults, "described": described}, **options)


class Room(Struct, frozen=True, metaclass=RoomType):
    """Base class for one group of settings, which is the `<room>` in their keys `heron.<room>.<field>`."""

    described: ClassVar[dict[str, Described]]


class EngineSettings(Room, frozen=True):
    """The engine: the cluster that runs the containers. Without an engine, containers run on this machine."""

    kind: str = setting(
        "",
        "Cluster that runs the containers: kubernetes, slurm or spark. local: this machine, where containers outlive"
        " their scheduler. Empty: this machine.",
    )
    python: str = setting(
        "", "Path of the Python on each host, which must have this release of heronpy; empty: the path of this Python."
    )
    home: str = setting(
        "",
        "Folder on each host for packages and logs; empty: heron-<uid> in the host's folder for temporary files.",
        absolute=True,
    )
    shared: str = setting("", "Folders, separated by ':', that all hosts can access at the same path.")
    packages: str = setting(
        "",
        "URL of an object store, or folder below heron.engine.shared, from which hosts fetch the package of a topology."
        " The scheduler puts the package there. If this is empty or cannot be read, hosts fetch the package from the"
        " scheduler.",
    )
    environment: str = setting(
        "",
        "Wheelhouse made by 'heron env pack', below a folder of heron.engine.shared. Each host installs it once, and"
        " tasks run in that environment. Empty: tasks run directly with heron.engine.python.",
    )
    fencing: str = setting(
        "auto",
        "Method to fence a container whose host is silent: lease (the container stops itself), epoch (the container's"
        " messages are refused), confirmation (no successor starts until the container's end is confirmed), or auto.",
        choices=("auto", "lease", "epoch", "confirmation"),
    )
    renew_s: float = setting(5.0, "Interval at which a container renews its lease.", low=0.1)
    fence_s: float = setting(40.0, "A container whose lease is not renewed for this long stops its tasks.", low=1)
    lost_s: float = setting(60.0, "A container that is silent for this long is replaced.", low=1)
    permit_s: float = setting(
        600.0, "Time for which a scheduler grants leases while it cannot reach the state manager.", low=1
    )
    leave_s: float = setting(60.0, "Advance notice that a container gets before it must stop.", low=1)
    start_s: float = setting(120.0, "Maximum time from a container's start on its host to its first message.", low=1)
    poll_s: float = setting(2.0, "Interval at which the engine is queried for its list of containers.", low=0.2)
    avoid_s: float = setting(600.0, "Time for which no container starts on a lost host.")
    endpoint_host: str = setting(
        "",
        "Name or IPv4 address at which containers reach the scheduler, such as that of a Service; empty: an address of"
        " the scheduler's host.",
    )

    @property
    def on_one_host(self) -> bool:
        """Whether all containers run on the host of their scheduler and can access its folders."""
        return self.kind in ("", "local")


class SlurmSettings(Room, frozen=True):
    """Slurm: the options of each container's job."""

    partition: str = setting("", "Partition; empty: the cluster's default.")
    account: str = setting("", "Account; empty: the user's default.")
    qos: str = setting("", "Quality of service; empty: the account's default.")
    time_limit_s: float = setting(0.0, "Wall time of a container; 0: the partition's default.")
    prologue: str = setting("", "Shell commands that run on the host before the container starts.")
    options: str = setting("", "Additional options of sbatch, separated by spaces, such as --constraint=ssd.")
    output_dir: str = setting(
        "", "Folder on every host for the output of a container's first process; empty: the output is not kept."
    )


class KubernetesSettings(Room, frozen=True):
    """Kubernetes: the namespace, image and template of the pods."""

    context: str = setting("", "Context in the kubeconfig; empty: the current context, or a pod's service account.")
    namespace: str = setting("", "Namespace; empty: the context's namespace, or the pod's own namespace.")
    image: str = setting("", "Container image, with Python and this release of heronpy.")
    pod_template: str = setting(
        "", "YAML file with a pod's metadata and spec, to which heronpy adds its own fields; empty: no template."
    )
    state_volume_bytes: int = setting(
        1_000_000_000, "Size of the volume for state and packages that 'heron cluster manifest' writes.", low=1_000_000
    )


class SparkEngineSettings(Room, frozen=True):
    """Spark as the engine: the Spark application whose executors run the containers."""

    master: str = setting(
        "", "Master that provides the executors: spark://HOST:PORT; yarn and k8s://URL are accepted but untested."
    )
    cores: int = setting(
        0,
        "Cores of each executor, which runs one container; 0: the cores of the application's largest container.",
        high=1024,
    )
    memory_bytes: int = setting(
        0, "Memory of each executor; 0: the memory of the application's largest container, at least 512 MB."
    )
    driver_memory: str = setting("512m", "Heap of the driver, a child of the scheduler, in Spark's notation.")
    conf: dict[str, Any] = setting(
        {},
        "Additional Spark properties, a map of name to value. Properties that change which programs run are refused.",
    )


class IngestSettings(Room, frozen=True):
    """Work units: pipelines of growing log files. Arguments of LogUnits.specs(...) override these settings."""

    ledger: str = setting(
        "",
        "URL of the ledger: sqlite:/folder/file, or postgresql://user@host/database for several hosts; empty means"
        " ledger/units.db in HERON_HOME.",
    )
    scan_interval_s: float = setting(
        0.5, "Interval at which keepers scan the files; longer if scans are slow.", low=0.01, high=3600
    )
    unit_bytes: int = setting(32 * MB, "A unit is cut when this many bytes are waiting.", low=1)
    unit_wait_s: float = setting(2.0, "A unit is cut when the oldest byte has waited this long.", high=86_400)
    ready_per_worker: int = setting(4, "No unit is cut while this many units per worker are ready.", low=1, high=10_000)
    unpublished_units: int = setting(
        64, "No unit is handed out while this many units are committed but not published.", low=1, high=100_000
    )
    unpublished_bytes: int = setting(
        4 * GB, "No unit is handed out while this many bytes are committed but not published.", low=1
    )
    silent_s: float = setting(
        15.0,
        "A worker silent for this long loses its units; workers report to the ledger three times within this period.",
        low=1,
        high=1800,
    )
    tries_max: int = setting(3, "Attempts to process a unit before its bad bytes are cut out.", low=1, high=100)
    bad_max: int = setting(
        100,
        "Maximum number of bad ranges in one unit. A unit with more bad ranges fails, because the bytes are probably"
        " not the cause.",
        low=1,
    )
    line_bytes_max: int = setting(32 * MB, "Maximum length of a line; a longer line counts as bad.", low=1024)
    days: float = setting(
        7.0,
        "Days for which the ledger remembers deleted files. A file that is older when it is first seen is refused.",
        low=0.001,
        high=36_500,
    )
    site: str = setting(
        "",
        "Name of the site where the topology is submitted, for pipelines that run on several sites with one ledger:"
        " letters, digits, - and _. Empty: the site that the program names, if any.",
    )


class BatchSettings(Room, frozen=True):
    """Batch runs: topologies over bounded input, one stage after the other (`heron submit --mode batch`)."""

    folder: str = setting(
        "",
        "Folder of the runs: records, ledgers, and files between stages. Empty: batch/<cluster> in HERON_HOME.",
        absolute=True,
    )
    workers: int = setting(0, "Tasks that process units; 0: one for each core of the submitting host.", high=10_000)
    unit_bytes: int = setting(32 * MB, "Target size of a unit of a stage.", low=1024)
    exchange_bytes_max: int = setting(
        64 * GB, "A run ends as FAILED when the files between two stages exceed this size.", low=1024
    )
    spout_end_s: float = setting(
        60.0,
        "A run ends as FAILED when a spout without `bounded = True` has not ended after this time, or when a spout"
        " emits nothing for this time. TextFileSpout and SplitSpout always end.",
        low=0.01,
    )
    keep_runs: int = setting(10, "Number of runs of a topology to keep; older runs are removed.", low=1, high=10_000)
    auto_allow: str = setting(
        "",
        "With --mode auto: patterns of topology names, separated by commas; only matching topologies run as a batch."
        " Empty: all.",
    )
    auto_deny: str = setting(
        "", "With --mode auto: patterns of topology names, separated by commas; matching topologies run as a stream."
    )
    auto_percent: float = setting(
        100.0, "With --mode auto: only this percentage of the permitted topologies runs as a batch.", high=100
    )
