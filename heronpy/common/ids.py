"""Names and epochs of processes, containers and tasks. Pure.

Every process derives the same name from the same numbers, so names are never sent. A name chosen by a user becomes part
of file names, of state paths, and of commands that people paste. `topology_name_problem` and `part_name_problem` are
the rules for new names, and `name_problem` is the rule for names that are looked up.
"""

from __future__ import annotations

import hashlib
import re
from typing import NewType

from heronpy.common.log_format import is_plain

TaskId = NewType("TaskId", int)
ContainerId = NewType("ContainerId", int)
Epoch = NewType("Epoch", int)

#: Maximum UTF-8 bytes of a user's name, so that "container_<c>_<name>_<task>.log.1" fits into 255 bytes.
NAME_BYTES_MAX = 200

_STARTS_BITS = 16
_TOPOLOGY = re.compile(r"\w[\w.-]*")
#: Characters without a special meaning inside a word in any shell.
_PART = re.compile(r"\w[\w.:@%+=,-]*")


def stmgr_id(container: int) -> str:
    """Return the name of a container's stream manager."""
    return f"stmgr-{container}"


def executor_id(container: int) -> str:
    """Return the name of a container's executor."""
    return f"executor-{container}"


def container_of(name: str) -> int:
    """Return the number of the container whose executor has this name."""
    return int(name.rpartition("-")[2])


def bootstrap_id(container: int) -> str:
    """Return the name of the process that starts a container's executor on another host."""
    return f"bootstrap-{container}"


def instance_id(container: int, component: str, task: int) -> str:
    """Return the name of an instance, in Heron's format."""
    return f"container_{container}_{component}_{task}"


def parse_instance_id(name: str) -> tuple[ContainerId, str, TaskId]:
    """Split an instance's name into container, component and task; the component may contain underscores."""
    head, _, task = name.rpartition("_")
    prefix, _, rest = head.partition("_")
    container, _, component = rest.partition("_")
    numbers = (container, task)
    if prefix != "container" or not component or not all(n.isascii() and n.isdigit() for n in numbers):
        raise ValueError(f"'{name}' is not the name of an instance; it must be container_<number>_<component>_<task>")
    return ContainerId(int(container)), component, TaskId(int(task))


def short_name(name: str) -> str:
    """Shorten `container_1_count_7` to `count-7`, for narrow views; other names are returned unchanged."""
    try:
        _, component, task = parse_instance_id(name)
    except ValueError:
        return name
    return f"{component}-{task}"


def is_called(name: str, word: str) -> bool:
    """Whether an instance has this name.

    `container_1_count_7` is also called `count-7`, `count_7`, `count (task 7)`, `task 7` and `7`.
    """
    try:
        _, component, task = parse_instance_id(name)
    except ValueError:
        return word == name
    own = (f"{component}-{task}", f"{component}_{task}", f"{component} (task {task})")
    return word in (name, *own, f"task {task}", str(task))


def child_epoch(container_epoch: int, start: int) -> Epoch:
    """Compute a process's epoch, which grows with each start and with each epoch of the container."""
    if not 0 <= start < 1 << _STARTS_BITS:
        raise ValueError(f"start number {start} does not fit into an epoch; it must be below {1 << _STARTS_BITS}")
    return Epoch((container_epoch << _STARTS_BITS) | start)


def incarnation_of(epoch: int, bits: int) -> int:
    """Return a number of `bits` bits that distinguishes the incarnations of a process: the epoch, if it fits.

    An epoch in a pool has at least 40 bits and is replaced by a digest. Digests collide with probability `2 ** -bits`.
    """
    if epoch < 1 << bits:
        return epoch
    return int.from_bytes(hashlib.md5(epoch.to_bytes(16), usedforsecurity=False).digest()) & ((1 << bits) - 1)


def container_epoch_of(epoch: int) -> int:
    """Return the epoch of the container from the epoch of one of its processes."""
    return epoch >> _STARTS_BITS


def is_first_start(epoch: int, container_epoch: int) -> bool:
    """Whether a process with this epoch is the first of its name since the container got its epoch."""
    return epoch <= child_epoch(container_epoch, 1)


def short_hash(text: str) -> str:
    """Return twelve hex digits that replace a long name where the length of a path is limited."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def topology_name_problem(name: str) -> str | None:
    """Return why a name is invalid for a new topology, or None. A valid name is one plain word in any shell."""
    problem = name_problem(name)
    if problem is None and not _TOPOLOGY.fullmatch(name):
        return "may contain only letters, digits, '_', '-' and '.', and must begin with a letter, a digit or '_'"
    return problem


def edge_id(source: str, stream: str, target: str) -> str:
    return f"{source}/{stream or 'default'}>{target}"


def part_name_problem(name: str) -> str | None:
    """Return why a name is invalid for a component or stream, or None. A valid name is one plain word in any shell."""
    problem = name_problem(name)
    if problem is None and not _PART.fullmatch(name):
        return "may contain only letters, digits and _ - . : @ % + = , and must begin with a letter, a digit or '_'"
    return problem


def name_problem(name: str) -> str | None:
    """Return why a name cannot be used in a path or in output, as the end of a sentence; None if it is valid."""
    if not name.strip():
        return "is empty"
    if "/" in name or "\\" in name:
        return "contains a slash"
    # Names appear in terminals and logs, so they must not contain characters that need escapes there.
    if not is_plain(name):
        return "contains a control character"
    if name.startswith("-"):
        return "starts with '-'"
    if ".." in name:
        return "contains '..'"
    if name == ".":
        return "is a single dot"
    if len(name.encode(errors="replace")) > NAME_BYTES_MAX:
        return f"is longer than {NAME_BYTES_MAX} bytes"
    return None
