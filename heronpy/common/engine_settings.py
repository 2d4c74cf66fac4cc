"""The settings of the engines that may host a topology's containers; see `setting_types`."""

from __future__ import annotations

from typing import Any

from heronpy.common.setting_field import Room, setting


class EngineSettings(Room, frozen=True):
    """The cluster that runs the containers; without it they run on this machine."""

    kind: str = setting("", "Kind of cluster: kubernetes, slurm or spark; empty: this machine.")
    python: str = setting(
        "", "Python on the cluster's hosts, with heronpy of this release; empty: the same path as here."
    )
    home: str = setting(
        "",
        "Folder of each host for packages and logs; empty: heron-<uid> in the host's folder for temporary files.",
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
    door_host: str = setting(
        "",
        "Name or IPv4 address by which containers reach the scheduler, such as that of a Service; empty: an address of"
        " the scheduler's host.",
    )


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
