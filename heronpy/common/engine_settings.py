"""How a setting is declared, and the settings of engines and of work units; see `setting_types`."""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

from msgspec import Struct, StructMeta

from heronpy.common.units import GB, MB

#: A value of a setting, as YAML and JSON have it.
SettingValue: TypeAlias = "bool | int | float | str | dict[str, SettingValue]"


class Described(Struct, frozen=True):
    """The default of a field, its documentation, and which values it may have."""

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
    """A field of a room with its documentation and range; no number may be negative. `absolute`: a path."""
    return Described(default, doc, low, high, choices, absolute)


class RoomType(StructMeta):
    """Makes a struct of the defaults, and keeps the descriptions."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> RoomType:
        described = {key: value for key, value in namespace.items() if isinstance(value, Described)}
        defaults = {key: value.default for key, value in described.items()}
        return super().__new__(mcs, name, bases, {**namespace, **defaults, "described": described}, **options)


class Room(Struct, frozen=True, metaclass=RoomType):
    """What the classes of settings have in common."""

    described: ClassVar[dict[str, Described]]


class EngineSettings(Room, frozen=True):
    """The cluster that runs the containers; without it they run on this machine."""

    kind: str = setting(
        "",
        "Kind of cluster: kubernetes, slurm or spark; local: this machine, where containers outlive their scheduler;"
        " empty: this machine.",
    )
    python: str = setting(
        "", "Python on the cluster's hosts, with heronpy of this release; empty: the same path as here."
    )
    home: str = setting(
        "",
        "Folder of each host for packages and logs; empty: heron-<uid> in the host's folder for temporary files, or,"
        " with engine local, engines/host in HERON_HOME.",
        absolute=True,
    )
    shared: str = setting("", "Folders, separated by ':', that all hosts reach by the same path.")
    packages: str = setting(
        "",
        "Where hosts fetch the package of a topology, so that they need not all ask the scheduler: the URL of an object"
        " store, or a folder below heron.engine.shared; the scheduler puts it there. Empty, or where it cannot be read:"
        " from the scheduler.",
    )
    environment: str = setting(
        "",
        "Wheelhouse made by 'heron env pack', below a folder of heron.engine.shared: each host installs it once, and"
        " tasks run in that environment; empty: they run with heron.engine.python as it is.",
    )
    fencing: str = setting(
        "auto",
        "How a container whose host is silent is kept from doing harm: lease (it stops itself), epoch (what it sends is"
        " refused), confirmation (nobody follows until its end is known), or auto.",
        choices=("auto", "lease", "epoch", "confirmation"),
    )
    renew_s: float = setting(5.0, "Interval at which a container renews its lease.", low=0.1)
    fence_s: float = setting(40.0, "A container without a grant stops its tasks after this long.", low=1)
    lost_s: float = setting(60.0, "A container that is silent for this long is replaced.", low=1)
    permit_s: float = setting(
        600.0, "How long a scheduler that does not reach the state manager goes on granting leases.", low=1
    )
    leave_s: float = setting(60.0, "How long before its end a container that has to leave is told.", low=1)
    start_s: float = setting(120.0, "Time from the start of a container on its host to its first message.", low=1)
    poll_s: float = setting(2.0, "Interval at which the engine is asked for its list.", low=0.2)
    avoid_s: float = setting(600.0, "How long a host that was lost gets no containers.")
    endpoint_host: str = setting(
        "",
        "Name or IPv4 address by which containers reach the scheduler, such as that of a Service; empty: an address of"
        " the scheduler's host.",
    )

    @property
    def on_one_host(self) -> bool:
        """Whether all containers run on the host of their scheduler, whose folders they reach."""
        return self.kind in ("", "local")


class SlurmSettings(Room, frozen=True):
    """Slurm: what is asked of it for each container."""

    partition: str = setting("", "Partition; empty: the cluster's default.")
    account: str = setting("", "Account; empty: the user's default.")
    qos: str = setting("", "Quality of service; empty: the account's default.")
    time_limit_s: float = setting(0.0, "Wall time of a container; 0: the partition's default.")
    prologue: str = setting("", "Lines of shell that run on the host before the container.")
    options: str = setting("", "More options of sbatch, separated by blanks, such as --constraint=ssd.")
    output_dir: str = setting(
        "", "Folder on every host for what the first process of a container prints; empty: it is not kept."
    )


class KubernetesSettings(Room, frozen=True):
    """Kubernetes: where pods are made, and from what."""

    context: str = setting("", "Context of the kubeconfig; empty: its current one, or in a pod its service account.")
    namespace: str = setting("", "Namespace; empty: that of the context, or in a pod its own.")
    image: str = setting("", "Image of the containers, with Python and heronpy of this release.")
    pod_template: str = setting(
        "", "YAML file with metadata and spec of a pod, into which heronpy's own are merged; empty: none."
    )
    state_volume_bytes: int = setting(
        1_000_000_000, "Size of the volume for state and packages in the manifest of a cluster.", low=1_000_000
    )


class SparkEngineSettings(Room, frozen=True):
    """Spark as the engine that runs the containers: the application whose executors they run in."""

    master: str = setting(
        "", "Master that gives the executors: spark://HOST:PORT; yarn and k8s://URL are taken, too, but unproven."
    )
    cores: int = setting(
        0,
        "Cores of each executor, which runs one container; 0: what the largest container of an application asks for.",
        high=1024,
    )
    memory_bytes: int = setting(
        0, "Memory of each executor; 0: what the largest container of an application asks for, 512 MB at least."
    )
    driver_memory: str = setting("512m", "Heap of the driver, in Spark's notation; it is a child of the scheduler.")
    conf: dict[str, Any] = setting(
        {},
        "Additional Spark properties, a map of name to value; those that decide what runs are ours.",
    )


class IngestSettings(Room, frozen=True):
    """Work units: pipelines of growing log files. What LogUnits.specs(...) is given by the program wins."""

    ledger: str = setting(
        "",
        "URL of the ledger: sqlite:/folder/file, or postgresql://user@host/database for several hosts; empty means"
        " ledger/units.db in HERON_HOME.",
    )
    scan_interval_s: float = setting(
        0.5, "Interval at which keepers look at the files; longer when a look takes long.", low=0.01, high=3600
    )
    unit_bytes: int = setting(32 * MB, "A unit is cut when so many bytes wait.", low=1)
    unit_wait_s: float = setting(2.0, "A unit is cut when the oldest byte has waited for this long.", high=86_400)
    ready_per_worker: int = setting(4, "No unit is cut while so many are ready for each worker.", low=1, high=10_000)
    unpublished_units: int = setting(
        64, "No unit is handed out while so many are committed and not published.", low=1, high=100_000
    )
    unpublished_bytes: int = setting(
        4 * GB, "No unit is handed out while so many bytes are committed and not published.", low=1
    )
    silent_s: float = setting(
        15.0,
        "A worker that the ledger has not seen for this long loses its units; each shows itself three times as often.",
        low=1,
        high=1800,
    )
    tries_max: int = setting(3, "Tries of a unit before its bad bytes are looked for, and cut out.", low=1, high=100)
    bad_max: int = setting(
        100, "Bad ranges of one unit; when it has more the fault is not in its bytes, and it has failed.", low=1
    )
    line_bytes_max: int = setting(32 * MB, "A longer line is bad.", low=1024)
    days: float = setting(
        7.0,
        "Days for which the ledger remembers files that are gone; a file first seen when it is older is refused.",
        low=0.001,
        high=36_500,
    )
    site: str = setting(
        "",
        "The site where the topology is submitted, for pipelines that run on several sites with one ledger: letters,"
        " digits, - and _; empty: the one that the program names, if any.",
    )
