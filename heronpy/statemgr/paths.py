"""All node paths of the state manager, built and checked in one place. Pure.

Invariant: a path is one or more segments joined by "/"; a segment is not empty, not "." or "..",
holds no control character, and is short enough for a file name.
"""

from __future__ import annotations

from heronpy.common.errors import StateError

SEGMENT_MAX_BYTES = 180
PATH_MAX_BYTES = 200


def check_path(path: str) -> tuple[str, ...]:
    """Return the segments of a node path. Raises StateError if the path is malformed."""
    if not isinstance(path, str) or not path:
        raise StateError(f"{path!r} is not the path of a state node")
    segments = tuple(path.split("/"))
    for segment in segments:
        _check_segment(segment, path)
    if len(path.encode()) > PATH_MAX_BYTES:
        raise StateError(f"state path {path[:60]!r}... is longer than {PATH_MAX_BYTES} bytes; use shorter names")
    return segments


def _check_segment(segment: str, path: str) -> None:
    if segment in ("", ".", ".."):
        raise StateError(f"state path {path!r} contains the part {segment!r}, which is not allowed")
    if not segment.isprintable():
        raise StateError(f"state path {path!r} contains a control or unprintable character")
    if len(segment.encode()) > SEGMENT_MAX_BYTES:
        raise StateError(f"name {segment[:60]!r}... is longer than {SEGMENT_MAX_BYTES} bytes; use a shorter name")


def _path(kind: str, *names: str) -> str:
    for name in names:
        if not isinstance(name, str) or "/" in name:
            raise StateError(f"name {name!r} cannot be part of a state path; leave out the '/'")
    path = "/".join((kind, *names))
    check_path(path)
    return path


TOPOLOGIES = "topologies"


def topology(name: str) -> str:
    """The topology as submitted (proto Topology)."""
    return _path(TOPOLOGIES, name)


def packing_plan(name: str) -> str:
    """The packing plan, which assigns tasks to containers (proto PackingPlan)."""
    return _path("packingplans", name)


def physical_plan(name: str) -> str:
    """The physical plan, with the current location of each task (proto PhysicalPlan)."""
    return _path("pplans", name)


def update_intent(name: str) -> str:
    """The goal of an update (proto UpdateIntent); exists only during the update."""
    return _path("updates", name)


def tmaster(name: str) -> str:
    """Ephemeral: the address of the topology master (proto TmasterLocation)."""
    return _path("tmasters", name)


def scheduler(name: str) -> str:
    """Ephemeral: the address of the scheduler (proto SchedulerLocation)."""
    return _path("schedulers", name)


def placement(name: str) -> str:
    """The submissions of the topology's containers to an engine (proto PlacementLedger); only with an engine."""
    return _path("placements", name)


def execution_state(name: str) -> str:
    """Who submitted the topology, when and on which host (proto ExecutionState); its existence reserves the name."""
    return _path("executionstate", name)


def launch(name: str) -> str:
    """The launch data, for hosts without a launch file (JSON, `heronpy.plan.launch`)."""
    return _path("launches", name)


def submission(name: str) -> str:
    """Ephemeral: reserves the name while the topology is being submitted, until the scheduler is running."""
    return _path("submissions", name)


def ephemerals(name: str) -> str:
    """The ephemerals of sessions at the control endpoint (JSON, `heronpy.scheduler.state_records`)."""
    return _path("ephemerals", name)


def operation(name: str) -> str:
    """Ephemeral: one word that describes the command that holds the topology's `operations` lock."""
    return _path("operations", name)


def epochs(name: str) -> str:
    """The parent of the topology's epoch counters."""
    return _path("epochs", name)


def epoch(name: str, what: str) -> str:
    """The incarnation counter for a part of the topology, such as "tmaster" or "container-3"."""
    return _path("epochs", name, what)


def lock(name: str) -> str:
    """The lock that serialises operations on the topology."""
    return _path("locks", name)


def totals(name: str) -> str:
    """The counts of all processes, kept for a new topology master (proto TotalsLedger)."""
    return _path("totals", name)


def events(name: str) -> str:
    """The topology's events, kept for a new topology master (proto EventLedger)."""
    return _path("events", name)


def minutes(name: str) -> str:
    """The metrics of the last minutes, kept for a new topology master (proto MinutesLedger)."""
    return _path("minutes", name)


def counts(name: str) -> str:
    """The totals of all metrics, kept for a new topology master (proto MetricsLedger)."""
    return _path("counts", name)


def last_answers(name: str) -> str:
    """The topology master's last answers, written when the topology ends (proto LastAnswers)."""
    return _path("lastanswers", name)


def checkpoints(name: str) -> str:
    """The complete checkpoints, and the next ids (proto CheckpointLog); EFFECTIVELY_ONCE only."""
    return _path("checkpoints", name)


def of_master(name: str) -> tuple[str, ...]:
    """The nodes that the topology master writes."""
    nodes = (packing_plan, physical_plan, update_intent, checkpoints, topology, tmaster)
    figures = (totals, events, minutes, counts, last_answers)
    return tuple(path(name) for path in (*nodes, *figures))


POOLS = "pools"


def pool(name: str) -> str:
    """The intended state of the pool (MessagePack, `heronpy.pools.shards`)."""
    return _path(POOLS, name, "pool")


def pool_map(name: str) -> str:
    """The assignment of the pool's shards to slots; only the pool's scheduler writes it (MessagePack)."""
    return _path(POOLS, name, "map")


def pool_specs(name: str, bucket: int) -> str:
    """The specifications of a bucket's topologies; only the pool's scheduler writes them (MessagePack)."""
    return _path(POOLS, name, "specs", str(bucket))


def pool_slot(name: str, slot: int) -> str:
    """A slot's answer; only the slot writes it (MessagePack)."""
    return _path(POOLS, name, "slots", str(slot))


JOBS = "jobs"
JOB_NEWS = "jobnews"
"""The names of the most recently changed jobs (JSON, `heronpy.jobs.store`)."""
RUNNING_JOBS = "running"
DEFINITIONS = "definitions"


def job(name: str) -> str:
    """The intended state of the job, in layers (JSON, `heronpy.jobs.store`)."""
    return _path(JOBS, name)


def job_manager(part: str) -> str:
    """Ephemeral: the process that acts as the cluster's syncer or scaler (JSON, `heronpy.jobs.manager`)."""
    return f"job{part}"


def scaled_job(name: str) -> str:
    """The scaler's records about the job; only the scaler writes them (JSON)."""
    return _path("scaled", name)


def running_job(name: str) -> str:
    """The actual state of the job, and the plan in progress; only the job's syncer writes it (JSON)."""
    return _path(RUNNING_JOBS, name)


def job_log(name: str) -> str:
    """The latest changes to the job, and the decisions about it (JSON, `heronpy.jobs.store`)."""
    return _path("joblog", name)


def definition(digest: str) -> str:
    """A program that jobs run (MessagePack, `heronpy.jobs.store`)."""
    return _path(DEFINITIONS, digest)
