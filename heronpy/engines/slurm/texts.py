"""Parses the output of Slurm's commands. The formats are explicit, because JSON output differs between
releases. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from heronpy.common.units import format_bytes
from heronpy.engines.contract import Ended, EnginePhase, Explained, Seen
from heronpy.engines.slurm.batch import AVOIDS, CHOSEN, CONTAINERS, Room, parse_name
from heronpy.procs.exit_reason import ExitHints, ExitReason, classify, describe_status

#: Format of squeue --Format; each field ends with a bar, so none is cut off.
JOBS = "JobArrayID:|,State:|,NodeList:|,exit_code:|,Reason:|,Name:|,Comment:|,StartTime:|"
START = "Reason:|,StartTime:|"
#: Format of sinfo --format.
NODES = "%N|%T"
#: Format of sinfo --format, with a line per node of each partition.
PLACES = "%P|%N|%T"
#: Format of sinfo --Format, with a line per node of each partition; cores are allocated/idle/other/total.
ROOMS = "Partition:|,NodeList:|,StateLong:|,Weight:|,CPUsState:|,Memory:|,AllocMem:|"
#: The star of a default partition is part of %P.
PARTITIONS = "%P|%a|%l|%c|%m|%d"

#: Slurm's texts for a missing reason.
_NO_REASON = frozenset({"", "None", "(null)", "N/A"})
_ENDED = {
    "COMPLETED", "FAILED", "OUT_OF_MEMORY", "TIMEOUT", "DEADLINE", "PREEMPTED", "CANCELLED", "NODE_FAIL", "BOOT_FAIL",
}  # fmt: skip
#: States in which Slurm has asked the node to end the job. A lost node does not end it, but the state is the same.
ENDED_BY_NODE = frozenset({"CANCELLED", "PREEMPTED", "TIMEOUT", "DEADLINE"})
_PHASES = {"PENDING": EnginePhase.QUEUED, "CONFIGURING": EnginePhase.STARTING, "RUNNING": EnginePhase.RUNNING}
_REASONS = {
    "OUT_OF_MEMORY": ExitReason.OOM,
    "TIMEOUT": ExitReason.PREEMPTED,
    "DEADLINE": ExitReason.PREEMPTED,
    "PREEMPTED": ExitReason.PREEMPTED,
    "CANCELLED": ExitReason.KILLED,
    "BOOT_FAIL": ExitReason.LOST_HOST,
    "NODE_FAIL": ExitReason.LOST_HOST,
}
#: Reasons for which a pending job will not start without a change.
_HOPELESS = re.compile(
    r"PartitionTimeLimit|PartitionNodeLimit|BadConstraints|InvalidAccount|InvalidQOS|AccountNotAllowed|QOSNotAllowed"
    r"|(Assoc|QOS)Max\w*PerJob\w*|DependencyNeverSatisfied"
)
#: Reasons for which a pending job waits for free resources, even on nodes that the job excludes.
_NO_ROOM = re.compile(r"Resources|Priority|ReqNodeNotAvail.*|Nodes.required.*")
#: How far the clocks of a node and of the controller may differ.
CLOCKS_S = 60.0
#: States of nodes that may run processes but cannot be reached.
_LOST_NODE = re.compile(r"(down|fail|unknown|.*\*$)")
#: States of nodes that accept no job until an operator, or the node, changes the state. Nodes in power saving accept
#: jobs.
_CLOSED_NODE = re.compile(r"(down|drain|fail|err|unk|inval|maint|perf|future|.*\*$)")
#: Maximum number of nodes that a sentence names.
_NODES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Job:
    """One of heronpy's jobs, parsed from a line of squeue."""

    engine_id: str
    topology_id: str
    container: int
    submission: int
    state: str
    host: str
    #: Wait status as os.wait returns it.
    status: int
    reason: str
    avoid: tuple[str, ...]
    #: Wall time; 0 if it has not started.
    started_at: float = 0.0
    #: Whether heronpy has chosen its node.
    pinned: bool = False

    @property
    def ended(self) -> bool:
        return self.state in _ENDED


def parse_jobs(text: str) -> list[Job]:
    """heronpy's jobs in the output of squeue; raises ValueError if no line has the expected format, or if the last line
    is truncated.

    Names and comments of the user's other jobs may contain line breaks; such lines are ignored.
    """
    jobs: list[Job] = []
    whole: list[Job] = []
    lines = [[field.strip() for field in line.split("|")] for line in text.splitlines() if line.strip()]
    cut = lines and len(lines[-1]) < 8 and not text.rstrip().endswith("|")  # the character that ends each job
    if lines and (cut or not any(len(fields) >= 8 for fields in lines)):
        raise ValueError(f"squeue printed lines in an unexpected format: {text[-200:]!r}")
    for fields in lines:
        if len(fields) < 8:
            continue
        engine_id, state, host, status, reason, name, comment, start = fields[:8]
        ours = parse_name(name)
        number, _, index = engine_id.partition("_")
        # A submission that Slurm refused is listed as a job that never had a node.
        if ours is None or (state == "FAILED" and reason == "BadConstraints" and not host):
            continue
        avoid = tuple(one for one in _told(comment, AVOIDS) if one)
        known = int(status) if status.isdigit() else 0
        if index.isdigit():
            # For a pending job it is the expected start.
            started_at = float(start) if start.isdigit() and host else 0.0
            pinned = bool(_told(comment, CHOSEN)[0])
            jobs.append(
                Job(engine_id, ours[0], int(index), ours[1], state, host, known, reason, avoid, started_at, pinned)
            )
        elif number.isdigit() and not index and state in _ENDED and not host:
            # An array that was cancelled before any part had a node loses its indices.
            containers = [int(one) for one in _told(comment, CONTAINERS) if one.isdigit()]
            whole += [
                Job(f"{number}_{one}", ours[0], one, ours[1], state, host, known, reason, avoid) for one in containers
            ]
    # Information on one container overrides information on all.
    known_ids = {job.engine_id for job in jobs}
    return [*jobs, *(job for job in whole if job.engine_id not in known_ids)]


def _told(comment: str, what: str) -> list[str]:
    found = next((part for part in comment.split() if part.startswith(what)), what)
    return found.removeprefix(what).split(",")


def parse_nodes(text: str) -> set[str]:
    """The nodes that are lost according to sinfo's output."""
    lines = [line.partition("|") for line in text.split() if "|" in line]
    return {name for name, _, state in lines if _LOST_NODE.match(state.lower())}


def ready_nodes(text: str, hosts: Collection[str]) -> set[str]:
    """Those of the given nodes that accept jobs, parsed from sinfo's output in the format NODES."""
    lines = [line.partition("|") for line in text.split() if "|" in line]
    return {name for name, _, state in lines if name in hosts and not _CLOSED_NODE.match(state.lower())}


def parse_rooms(text: str, partition: str) -> dict[str, Room]:
    """The free resources of the partition's available nodes, parsed from sinfo's output in the format ROOMS.

    `partition` has the same meaning as for `closed_nodes`.
    """
    found = {}
    for line in text.splitlines():
        name, node, state, weight, cpus, memory, used = [*(field.strip() for field in line.split("|")), *[""] * 7][:7]
        mine = name.rstrip("*") in partition.split(",") if partition else name.endswith("*")
        numbers = [weight, *cpus.split("/")[1:2], memory, used]
        if mine and state in ("idle", "mixed") and len(numbers) == 4 and all(one.isdigit() for one in numbers):
            found[node] = Room(int(weight), int(numbers[1]), int(memory) - int(used))
    return found


def parse_boots(text: str) -> dict[str, float]:
    """Map from node to the wall time of its boot, parsed from the output of scontrol show nodes --oneliner."""
    fields = [dict(one.partition("=")[::2] for one in line.split()) for line in text.splitlines()]
    return {
        one["NodeName"]: float(one["BootTime"])
        for one in fields
        if "NodeName" in one
        and one.get("BootTime", "").isdigit()
        and not _LOST_NODE.match(one.get("State", "").lower())
    }


def closed_nodes(text: str, partition: str) -> str:
    """A text such as "n1 is drained, n2 is down*" if no node of the partition accepts jobs.

    Parsed from sinfo's output in the format PLACES; empty if a node accepts jobs, or if there is no node. `partition`
    names one or more partitions, separated by commas; empty means the default partition.
    """
    fields = [line.strip().split("|") for line in text.splitlines()]
    chosen = set(partition.split(","))
    nodes = {
        one[1]: one[2].lower()
        for one in fields
        if len(one) == 3 and (one[0].rstrip("*") in chosen if partition else one[0].endswith("*"))
    }
    if not all(_CLOSED_NODE.match(state) for state in nodes.values()):
        return ""
    shown = [f"{name} is {state}" for name, state in sorted(nodes.items())]
    more = [f"and {len(shown) - _NODES_SHOWN} more"] if len(shown) > _NODES_SHOWN else []
    return ", ".join([*shown[:_NODES_SHOWN], *more])


def was_rebooted(job: Job, boots: Mapping[str, float]) -> bool:
    """Whether the job's node was rebooted after the job began, so that no process of the job is left."""
    return 0 < job.started_at < boots.get(job.host, 0.0) - CLOCKS_S


def seen_of(job: Job, lost_nodes: Collection[str], rebooted: bool = False) -> Seen:
    """Translate a job's state for the engine contract; `lost_nodes` matters only if the node must confirm the end.

    `rebooted` is the result of `was_rebooted`; if True, the end is confirmed.
    """
    phase = EnginePhase.ENDED if job.ended else _PHASES.get(job.state, EnginePhase.ENDING)
    words = job.state if job.reason in _NO_REASON else f"{job.state}: {job.reason}"
    unconfirmed = not rebooted and is_unconfirmed(job, lost_nodes)
    ended = Ended.NO if not job.ended else Ended.UNCONFIRMED if unconfirmed else Ended.CONFIRMED
    reason: ExitReason | None = None
    if ended is Ended.CONFIRMED:
        reason = _REASONS.get(job.state) or _reason_of(job)
        words += f", and {job.host} was rebooted" if rebooted else ""
        if job.state in ("FAILED", "COMPLETED"):
            words = f"{words}, {describe_status(job.status)}"
    exited = ended is Ended.CONFIRMED and job.status & 0x7F == 0 and job.state in ("FAILED", "COMPLETED")
    return Seen(
        job.engine_id,
        job.container,
        job.submission,
        phase,
        job.host,
        ended,
        reason,
        job.status >> 8 if exited else None,
        cancelled=job.state == "CANCELLED" and ended is Ended.CONFIRMED,
        hopeless=phase is EnginePhase.QUEUED and _HOPELESS.fullmatch(job.reason) is not None,
        waits=phase is EnginePhase.QUEUED and _NO_ROOM.fullmatch(job.reason) is not None,
        pinned=job.pinned,
        words=words,
        avoid=job.avoid,
    )


def is_unconfirmed(job: Job, lost_nodes: Collection[str]) -> bool:
    """Whether processes of an ended job may still be running."""
    return job.state == "NODE_FAIL" or (job.state in ENDED_BY_NODE and job.host in lost_nodes)


def _reason_of(job: Job) -> ExitReason:
    if job.state == "FAILED" and job.status == 0:
        return ExitReason.SPAWN_FAILED
    return classify(job.status, ExitHints())


def newest(jobs: Iterable[Job]) -> list[Job]:
    """One job per container and submission, preferably one that has not ended."""
    found: dict[tuple[int, int], Job] = {}
    for job in sorted(jobs, key=lambda job: job.ended):
        found.setdefault((job.container, job.submission), job)
    return list(found.values())


def count_topologies(jobs: Iterable[Job]) -> dict[str, int]:
    """Map from topology id to the number of its jobs that have not ended."""
    return dict(Counter(job.topology_id for job in jobs if not job.ended))


def parse_start(text: str) -> Explained:
    """Parse squeue's output for one job in the format START, with times as seconds since 1970."""
    reason, _, rest = text.strip().partition("|")
    starts = rest.partition("|")[0].strip()
    if not text.strip():
        return Explained("Slurm no longer lists the job")
    reason = reason.strip()
    return Explained("" if reason in _NO_REASON else reason, float(starts) if starts.isdigit() else None)


def parse_submitted(text: str) -> str:
    """The job id in the output of sbatch --parsable, which is `812` or `812;cluster`."""
    job = text.strip().partition(";")[0]
    if not job.isdigit():
        raise ValueError(f"sbatch printed {text[:200]!r} instead of a job id")
    return job


def parse_release(text: str) -> tuple[int, int] | None:
    """The release as numbers, such as (22, 5) for `slurm-wlm 22.05.8`."""
    found = re.search(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def parse_config(text: str) -> dict[str, str]:
    """Map from name to value of the settings in the output of scontrol show config."""
    lines = [line.partition("=") for line in text.splitlines() if "=" in line]
    return {name.strip(): value.strip() for name, _, value in lines}


def unchecked_names(config: Mapping[str, str], account: str, qos: str) -> str:
    """The configured names that Slurm does not check, and why it does not; empty if it checks all names.

    Slurm silently accepts any name if it has no accounts (slurmdbd) or does not enforce them.
    """
    enforced = config.get("AccountingStorageEnforce", "none").lower().split(",")
    unseen = [f"account '{account}'"] if account and "associations" not in enforced else []
    unseen += [f"qos '{qos}'"] if qos and "qos" not in enforced else []
    if not unseen:
        return ""
    kept = config.get("AccountingStorageType", "").rpartition("/")[2]
    why = "keeps no accounts" if kept in ("", "none", "(null)") else "accepts any name"
    said = config.get("AccountingStorageEnforce", "none")
    return f"{' and '.join(unseen)} cannot be checked: this Slurm {why} (AccountingStorageEnforce is {said})"


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition and one kind of its nodes, parsed from a line of sinfo."""

    name: str
    up: bool
    time_limit: str
    cpus: int
    memory_mib: int
    #: Disk for temporary files; 0 if Slurm's configuration does not state it.
    disk_mib: int = 0
    default: bool = False

    @property
    def words(self) -> str:
        memory = format_bytes(self.memory_mib << 20)
        return f"nodes of {self.cpus} cores and {memory}, time limit {self.time_limit}"


def parse_partitions(text: str) -> list[Partition]:
    """The partitions in sinfo's output, one entry per kind of node."""
    found = []
    for line in text.splitlines():
        fields = [field.strip().rstrip("+") for field in line.split("|")]
        if len(fields) == 6 and all(field.isdigit() for field in fields[3:]):
            name, star, _ = fields[0].partition("*")
            cpus, memory, disk = map(int, fields[3:])
            found.append(Partition(name, fields[1] == "up", fields[2], cpus, memory, disk, bool(star)))
    return found
