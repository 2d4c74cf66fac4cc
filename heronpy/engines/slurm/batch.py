"""Submissions to Slurm: job names, arguments for `sbatch`, and the batch script. Pure.

Containers of the same size are submitted as one job array. The array index is the container, and the job name contains
topology and submission. The join token is part of the script, which only the user and Slurm itself can read.
"""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from heronpy.common.errors import ConfigError
from heronpy.engines.contract import Request

PREFIX = "heron."
#: Parts of a job's comment: the containers of its array, the hosts that it avoids, and the chosen host.
CONTAINERS, AVOIDS, CHOSEN = "containers:", "avoids:", "chosen:"
#: Maximum number of hosts among which one submission spreads containers. Each host needs a separate call of sbatch.
SPREAD_MAX = 32
_MIB = 1 << 20
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
#: Options that define a job; each has a setting, or is set only by heronpy.
OWNED = {
    "account": "account", "qos": "qos", "partition": "partition", "time": "time_limit_s", "signal": "leave_s",
    "output": "output_dir", "error": "output_dir", "array": "", "job-name": "", "nodes": "", "ntasks": "",
    "ntasks-per-node": "", "cpus-per-task": "", "mem": "", "mem-per-cpu": "", "tmp": "", "exclude": "", "nodelist": "",
    "nodefile": "", "requeue": "", "no-requeue": "", "mem-per-gpu": "", "clusters": "", "export": "", "export-file": "",
    "get-user-env": "", "comment": "", "wrap": "",
    "wait": "", "parsable": "", "test-only": "", "chdir": "", "open-mode": "", "input": "",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """An operator's settings for a cluster; raises ConfigError if they contradict heronpy's own settings."""

    #: Partition; empty for the cluster's default.
    partition: str = ""
    account: str = ""
    qos: str = ""
    #: Wall time of a container, in seconds; 0: the partition's default.
    time_limit_s: int = 0
    #: Number of seconds before its time limit at which a container is warned.
    leave_s: int = 60
    #: Lines of shell that run on the node before the container.
    prologue: tuple[str, ...] = ()
    #: More options of sbatch, such as --constraint=ssd.
    extra: tuple[str, ...] = ()
    #: A folder on every node for the output of first processes; empty: it is not kept.
    output_dir: str = ""

    def __post_init__(self) -> None:
        for option in self.extra:
            name, dashes = option.lstrip("-").partition("=")[0], option.startswith("--")
            if not dashes or not name:
                raise ConfigError(f"slurm option {option!r} does not have the form --name or --name=value")
            # Slurm accepts any unique prefix of an option's name.
            meant = name if name in OWNED else next((full for full in OWNED if full.startswith(name)), "")
            if meant:
                setting = OWNED[meant]
                fix = f"use the setting slurm.{setting}" if setting else "remove it: heronpy sets it itself"
                short = f", short for --{meant}," if meant != name else ""
                raise ConfigError(f"slurm option --{name}{short} is not allowed in extra options; {fix}")
        if self.time_limit_s and self.time_limit_s <= self.leave_s:
            raise ConfigError(
                f"slurm.time_limit_s is {self.time_limit_s} but must be more than leave_s ({self.leave_s}),"
                " otherwise containers have to end as soon as they start"
            )
        if self.output_dir and (not self.output_dir.startswith("/") or set(self.output_dir) & set("%\\\n")):
            meant = f"slurm.output_dir is {self.output_dir!r}"
            raise ConfigError(f"{meant} but must be an absolute path without '%', '\\' or line breaks")
        if any("\n" in line for line in self.prologue):
            raise ConfigError("a line of slurm.prologue has a line break; make it two lines")


def job_name(topology_id: str, submission: int) -> str:
    """The name of all jobs with one submission number."""
    return f"{PREFIX}{topology_id}.{submission}"


def look_command(topology_id: str) -> str:
    """A command that lists a topology's jobs, including jobs that Slurm has abandoned because their host was lost."""
    return f"squeue --all --me --array --states=all --noheader --format='%i %j %T %N' | grep -F {PREFIX}{topology_id}."


def parse_name(name: str) -> tuple[str, int] | None:
    """Parse a job name into topology id and submission; None if the job does not belong to heronpy."""
    topology, dot, submission = name.removeprefix(PREFIX).rpartition(".")
    ours = name.startswith(PREFIX) and dot and submission.isascii() and submission.isdigit()
    return (topology, int(submission)) if ours and topology else None


@dataclass(frozen=True, slots=True)
class Room:
    """The free resources of a node. Slurm fills nodes with a lower weight first."""

    weight: int
    cpus: int
    memory_mib: int


def spread(batch: Sequence[Request], rooms: Mapping[str, Room], held: Counter[str]) -> dict[str, list[Request]]:
    """Group equal requests by node.

    Among the nodes with enough free resources, each request gets a node of the lowest weight and, among these, the one
    with the fewest containers. Slurm itself would fill one node after another. Requests under "" may start on any node.
    `held` is the number of the topology's containers on each host, and is updated.
    """
    first, free, found = batch[0], dict(rooms), dict[str, list[Request]]()
    cpus, memory_mib = _cpus(first), _memory_mib(first)
    for one in batch:
        fit = [
            name
            for name, room in free.items()
            if room.cpus >= cpus and room.memory_mib >= memory_mib and name not in one.avoid
            if name in found or len(found) < SPREAD_MAX
        ]
        best = min(fit, key=lambda name: (free[name].weight, held[name], -free[name].cpus, name), default="")
        if best:
            room = free[best]
            free[best] = replace(room, cpus=room.cpus - cpus, memory_mib=room.memory_mib - memory_mib)
            held[best] += 1
        found.setdefault(best, []).append(one)
    return found


def _cpus(request: Request) -> int:
    return max(1, math.ceil(request.cpu))


def _memory_mib(request: Request) -> int:
    return max(1, math.ceil(request.ram_bytes / _MIB))


def sbatch_arguments(
    batch: Sequence[Request], options: SlurmOptions, avoid: Sequence[str], chosen: str = ""
) -> list[str]:
    """The sbatch command for requests that differ only in their container; `avoid` lists hosts to exclude.

    `chosen` is the only node on which the containers may start.
    """
    first = batch[0]
    hosts = [host for host in avoid if _HOST.fullmatch(host)]
    arguments = [
        "sbatch", "--parsable", "--no-requeue",
        f"--job-name={job_name(first.topology_id, first.submission)}",
        f"--array={','.join(str(one.container) for one in batch)}",
        "--nodes=1", "--ntasks=1",
        f"--cpus-per-task={_cpus(first)}",
        f"--mem={_memory_mib(first)}M",
        # The environment of this host does not fit other hosts, and may hold secrets.
        "--export=HOME,USER,LOGNAME",
        "--chdir=/",
        f"--signal=B:USR1@{options.leave_s}",
        f"--output={f'{options.output_dir}/%A_%a.out' if options.output_dir else '/dev/null'}",
    ]  # fmt: skip
    arguments += [f"--tmp={math.ceil(first.disk_bytes / _MIB)}M"] if first.disk_bytes else []
    comment = CONTAINERS + ",".join(str(one.container) for one in batch)
    if hosts:
        arguments.append(f"--exclude={','.join(hosts)}")
        comment += f" {AVOIDS}{','.join(hosts)}"
    if chosen:
        arguments.append(f"--nodelist={chosen}")
        comment += f" {CHOSEN}{chosen}"
    arguments.append(f"--comment={comment}")
    arguments += [f"--time={math.ceil(options.time_limit_s / 60)}"] if options.time_limit_s else []
    for name in ("partition", "account", "qos"):
        value = getattr(options, name)
        arguments += [f"--{name}={value}"] if value else []
    return [*arguments, *options.extra]


def batch_script(request: Request, options: SlurmOptions, command: Sequence[str]) -> str:
    """The batch script. It passes the join token as standard input and execs the command, so that signals reach it."""
    end = "HERON_JOIN_TOKEN_END"
    if any(line == end for line in request.token.splitlines()):
        raise ValueError("the join token contains the end marker of its here-document")
    lines = [
        "#!/bin/bash",
        *options.prologue,
        f"export HERON_TOPOLOGY_ID={shlex.quote(request.topology_id)}",
        f'export HERON_CONTAINER="$SLURM_ARRAY_TASK_ID" HERON_SUBMISSION={request.submission}',
        f"exec {shlex.join(command)} <<'{end}'",
        request.token,
        end,
    ]
    return "\n".join(lines) + "\n"
