"""Key groups: the unit in which keyed state moves between tasks. Pure.

A key always belongs to the same of G groups; a component's tasks own consecutive ranges of groups. So the
grouping of tuples and the placement of state agree, and a change of parallelism moves whole groups.
Invariant: the ranges of a component's tasks partition 0 .. G-1, and sizes differ by at most one.
"""

from __future__ import annotations


def key_group_of_hash(hashed: int, key_groups: int) -> int:
    """The key group of a key with this stable hash."""
    return hashed % key_groups


def task_index(group: int, parallelism: int, key_groups: int) -> int:
    """The index, by ascending task id, of the component's task that owns a key group."""
    return group * parallelism // key_groups


def group_range(index: int, parallelism: int, key_groups: int) -> range:
    """The key groups that one task of a component owns; empty when there are more tasks than groups."""
    first = -(-index * key_groups // parallelism)
    end = -(-(index + 1) * key_groups // parallelism)
    return range(first, end)
