"""The processes that a container should run according to the packing plan, and their commands. Pure.

Container 0 has the topology master and, if they are used, the Spark gateway and the checkpoint replicator. Any other
container of the plan has its stream manager, its tasks, and its share of the standby topology masters, which are
assigned round robin. A container that is not in the plan has no processes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec import Struct

from heronpy.common.ids import child_epoch, instance_id, stmgr_id
from heronpy.plan.launch import LaunchSpec
from heronpy.procs.exit_reason import ExitReason
from heronpy.procs.forkserver import Command
from heronpy.procs.supervision import ProcessSpec
from heronpy.proto import plan_pb2

TMASTER = "tmaster"
STANDBY = "tmaster-standby"
STMGR = "stmgr"
INSTANCE = "instance"
SPARK_GATEWAY = "spark-gateway"
REPLICATOR = "checkpoint-replicator"


class Roles(Struct, frozen=True):
    """The module whose `main(argv)` is run, for each kind of process."""

    tmaster: str = "heronpy.tmaster"
    stmgr: str = "stmgr"
    instance: str = "instance"
    spark_gateway: str = "heronpy.spark"
    replicator: str = "heronpy.ckpt.replicator"

    def module_of(self, role: str) -> str:
        return {
            TMASTER: self.tmaster,
            STANDBY: self.tmaster,
            STMGR: self.stmgr,
            INSTANCE: self.instance,
            SPARK_GATEWAY: self.spark_gateway,
            REPLICATOR: self.replicator,
        }[role]


class Place(Struct, frozen=True):
    """The identity of this executor."""

    launch: LaunchSpec
    launch_file: str
    container: int
    epoch: int
    #: Why its scheduler started the container again: the value of an ExitReason, and a text for users.
    after: str = ""
    after_text: str = ""
    #: Why the container is not limited to the requested resources; empty if it is limited, or requests none.
    not_limited: str = ""


def desired_processes(
    plan: plan_pb2.PackingPlan | None,
    container: int,
    *,
    needs_spark: bool,
    stop_grace_s: float,
    hang_timeout_s: Callable[[str], float],
    memory_max_bytes: Callable[[str], int] = lambda _: 0,
    standbys: int = 0,
    replicates: bool = False,
    has_run: Collection[int] = (),
) -> tuple[ProcessSpec, ...]:
    """The processes of a container. When they are stopped, tasks end before the processes to which they are connected.

    `has_run` contains the tasks that have initialised under an earlier executor.
    """
    if container == 0:
        specs = [ProcessSpec(TMASTER, TMASTER, stop_rank=1, critical=True, stop_grace_s=stop_grace_s)]
        if needs_spark:
            specs.append(ProcessSpec(SPARK_GATEWAY, SPARK_GATEWAY, stop_grace_s=stop_grace_s))
        if replicates:
            specs.append(ProcessSpec(REPLICATOR, REPLICATOR, stop_grace_s=stop_grace_s))
        return tuple(specs)
    own = [c for c in plan.containers if c.id == container] if plan is not None else []
    if not own:
        return ()
    specs = [ProcessSpec(stmgr_id(container), STMGR, stop_rank=1, critical=True, stop_grace_s=stop_grace_s)]
    for instance in own[0].instances:
        specs.append(
            ProcessSpec(
                instance_id(container, instance.component, instance.task_id),
                INSTANCE,
                task_id=instance.task_id,
                component=instance.component,
                user_code=True,
                has_run=instance.task_id in has_run,
                hang_timeout_s=hang_timeout_s(instance.component),
                stop_grace_s=stop_grace_s,
                memory_max_bytes=instance.memory_limit_bytes or memory_max_bytes(instance.component),
            )
        )
    assert plan is not None
    places = sorted(c.id for c in plan.containers)
    for number in range(1, standbys + 1):
        if places[(number - 1) % len(places)] == container:
            specs.append(ProcessSpec(f"{STANDBY}-{number}", STANDBY, stop_grace_s=stop_grace_s))
    return tuple(specs)


def command_of(
    spec: ProcessSpec, number: int, place: Place, roles: Roles, *, after: ExitReason | None, preload: bool
) -> Command:
    """The command for start `number` of a process; `after` is the reason why the previous process ended, if any."""
    argv = ["--launch", place.launch_file]
    if spec.role not in (TMASTER, STANDBY, SPARK_GATEWAY, REPLICATOR):
        argv += ["--container", str(place.container)]
    if spec.role == STANDBY:
        argv += ["--name", spec.name]
    if spec.role == INSTANCE:
        argv += ["--task", str(spec.task_id)]
        if after is not None:
            # A task whose predecessor crashed searches for the tuple that caused it.
            argv += ["--after", after.value]
    argv += ["--epoch", str(child_epoch(place.epoch, number))]
    return Command(
        spec.name,
        roles.module_of(spec.role),
        tuple(argv),
        cwd=place.launch.working_dir,
        # The JVM and its threads must not start from a forked copy of the runtime.
        fresh=spec.role == SPARK_GATEWAY or not preload,
        python=place.launch.python,
        sealed=True,
    )
