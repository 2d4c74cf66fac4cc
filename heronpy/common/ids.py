"""The names of things: processes, containers, tasks and epochs. Pure.

Every process derives the same name from the same numbers, so names are never sent. A name chosen by a user becomes part
of file names, of state paths, and of commands that people paste. `topology_name_problem` and `part_name_problem` are
the rules for new names, and `name_problem` for names that are looked up.
"""

from __future__ import annotations

import hashlib
import re
from typing import NewType

from heronpy.common.log_format import is_plain

TaskId = NewType("TaskId", int)
ContainerId = NewType("ContainerId", int)
Epoch = NewType("Epoch", int)

#: Longest user-chosen name in UTF-8 bytes; "container_<c>_<name>_<task>.log.1" must fit 255.
NAME_BYTES_MAX = 200

_STARTS_BITS = 16
_TOPOLOGY = re.compile(r"\w[\w.-]*")
#: No shell acts upon these characters inside a word.
_PART = re.compile(r"\w[\w.:@%+=,-]*")


def stmgr_id(container: int) -> str:
    """The name of the stream manager of a container."""
    return f"stmgr-{container}"


def executor_id(container: int) -> str:
    """The name of the executor of a container."""
    return f"executor-{container}"


def container_of(name: str) -> int:
    """The number of a container from the name of its executor."""
    return int(name.rpartition("-")[2])


def bootstrap_id(container: int) -> str:
    """The name of the first process of a container on another host, which starts its executor."""
    return f"bootstrap-{container}"


def instance_id(container: int, component: str, task: int) -> str:
    """The name of an instance, in Heron's form."""
    return f"container_{container}_{component}_{task}"


def parse_instance_id(name: str) -> tuple[ContainerId, str, TaskId]:
    """Container, component and task of an instance's name; the component may contain underscores."""
    head, _, task = name.rpartition("_")
    prefix, _, rest = head.partition("_")
    container, _, component = rest.partition("_")
    numbers = (container, task)
    if prefix != "container" or not component or not all(n.isascii() and n.isdigit() for n in numbers):
        raise ValueError(f"'{name}' is not the name of an instance; it must be container_<number>_<component>_<task>")
    return ContainerId(int(container)), component, TaskId(int(task))


def short_name(name: str) -> str:
    """`count-7` for `container_1_count_7`, for views with little room; other names unchanged."""
    try:
        _, component, task = parse_instance_id(name)
    except ValueError:
        return name
    return f"{component}-{task}"


def is_called(name: str, word: str) -> bool:
    """Whether a word means an instance.

    `container_1_count_7` is also called `count-7`, `count_7`, `count (task 7)`, `task 7` and `7`.
    """
    try:
        _, component, task = parse_instance_id(name)
    except ValueError:
        return word == name
    own = (f"{component}-{task}", f"{component}_{task}", f"{component} (task {task})")
    return word in (name, *own, f"task {task}", str(task))


def child_epoch(container_epoch: int, start: int) -> Epoch:
    """The epoch of a process: a later start, or a later container, always wins."""
    if not 0 <= start < 1 << _STARTS_BITS:
        raise ValueError(f"start number {start} does not fit into an epoch; it must be below {1 << _STARTS_BITS}")
    return Epoch((container_epoch << _STARTS_BITS) | start)


def incarnation_of(epoch: int, bits: int) -> int:
    """A number of `bits` bits that distinguishes the incarnations of a process: the epoch, if it fits.

    Epochs in pools have 40 bits or more and are replaced by a digest; two digests are equal once in `2 ** bits`.
    """
    if epoch < 1 << bits:
        return epoch
    return int.from_bytes(hashlib.md5(epoch.to_bytes(16), usedforsecurity=False).digest()) & ((1 << bits) - 1)


def container_epoch_of(epoch: int) -> int:
    """The epoch of the container in which a process has this epoch."""
    return epoch >> _STARTS_BITS


def is_first_start(epoch: int, container_epoch: int) -> bool:
    """Whether no process of its name has run in its container since the container had this epoch."""
    return epoch <= child_epoch(container_epoch, 1)


def short_hash(text: str) -> str:
    """Twelve hex digits that represent a long name where paths are limited."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def topology_name_problem(name: str) -> str | None:
    """Why a name is invalid for a new topology. Commands use it, so it must be one plain word in any shell."""
    problem = name_problem(name)
    if problem is None and not _TOPOLOGY.fullmatch(name):
        return "may contain only letters, digits, '_', '-' and '.', and must begin with a letter, a digit or '_'"
    return problem


def edge_id(source: str, stream: str, target: str) -> str:
    """`source/stream>target`"""
    return f"{source}/{stream or 'default'}>{target}"


def part_name_problem(name: str) -> str | None:
    """Why a name is invalid for a component or stream. It must be one plain word in any shell."""
    problem = name_problem(name)
    if problem is None and not _PART.fullmatch(name):
        return "may contain only letters, digits and _ - . : @ % + = , and must begin with a letter, a digit or '_'"
    return problem


def name_problem(name: str) -> str | None:
    """Why a name cannot be part of a path or be shown, as the end of a sentence; None when it is valid."""
    if not name.strip():
        return "is empty"
    if "/" in name or "\\" in name:
        return "contains a slash"
    # Names reach terminals and logs, so they contain nothing that would have to be escaped there.
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
