"""Shell completion: offers existing names that can be read without delay.

Every function takes click's arguments: (context, parameter, start of the word). Completion must never
print an error into the user's prompt, so after an error nothing is offered. Each function imports only
what it needs, and only when it is called, because the shell waits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from heronpy.clusters.target import Target

if TYPE_CHECKING:
    from heronpy.clusters.records import Records

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completer(names: Callable[[click.Context], Iterable[str]]) -> Completer:
    @functools.wraps(names)
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            return [CompletionItem(name) for name in names(ctx) if name.startswith(incomplete)]
        except Exception:
            return []

    return complete


def _known_clusters() -> list[str]:
    from heronpy.clusters.client_config import known_clusters

    return known_clusters()


def _place(ctx: click.Context) -> tuple[Records, str]:
    """Return the records of the named or only cluster, and the name of the topology; "" if no topology is named yet."""
    from heronpy.clusters.records import Records

    target, topology = ctx.params.get("target"), ctx.params.get("topology")
    if not isinstance(target, Target):
        # After an option that lacks its value, click has not parsed the words before it.
        words, known = list(ctx.args), _known_clusters()
        if words and ("/" in words[0] or words[0] in known):
            target = Target.parse(words.pop(0))
        else:
            [only] = known
            target = Target(only)
        topology = words[0] if words else ""
    return Records(target), str(topology or "")


def _components(ctx: click.Context) -> list[str]:
    from heronpy.proto import components_of

    records, topology = _place(ctx)
    return list(components_of(records.topology(topology)))


def _instances(ctx: click.Context) -> list[tuple[int, str, int]]:
    """Return (container, instance id, task id) for each task."""
    from heronpy.common.ids import instance_id

    records, topology = _place(ctx)
    return [
        (container.id, instance_id(container.id, instance.component, instance.task_id), instance.task_id)
        for container in records.packing_plan(topology).containers
        for instance in container.instances
    ]


clusters = _completer(lambda ctx: _known_clusters())
jobs = _completer(lambda ctx: _place(ctx)[0].state.children("jobs"))
topologies = _completer(lambda ctx: _place(ctx)[0].names())
components = _completer(lambda ctx: _components(ctx))
#: The start of COMPONENT:TASKS.
parallelism = _completer(lambda ctx: [f"{name}:" for name in _components(ctx)])
#: Ids of tasks, which are numbers.
tasks = _completer(lambda ctx: [str(task) for _, _, task in _instances(ctx)])
#: The keyword for a checkpoint; ids and paths belong to a topology that is not known yet.
restores = _completer(lambda ctx: ["latest"])
#: The start of KEY=VALUE.
settings = _completer(lambda ctx: [f"{key}=" for key in _setting_keys()])


def clusters_and_topologies(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the first word of a verb whose cluster is optional."""
    return clusters(ctx, param, incomplete) + topologies(ctx, param, incomplete)


@_completer
def instances(ctx: click.Context) -> Iterable[str]:
    """Offer the instance ids of tasks and the names of stream managers."""
    from heronpy.common.ids import stmgr_id

    found = _instances(ctx)
    return [*(name for _, name, _ in found), *(stmgr_id(number) for number in sorted({one[0] for one in found}))]


@_completer
def restartable(ctx: click.Context) -> Iterable[str]:
    """Offer containers, components, and the instance ids of tasks."""
    found = _instances(ctx)
    containers = sorted({container for container, _, _ in found})
    return ["0", *map(str, containers), *_components(ctx), *(name for _, name, _ in found)]


@_completer
def logged(ctx: click.Context) -> Iterable[str]:
    """Offer the processes that have logs, and their components."""
    from heronpy.clusters.log_folders import log_dir, words_of

    return sorted(words_of(log_dir(*_place(ctx))))


@_completer
def metrics(ctx: click.Context) -> Iterable[str]:
    from heronpy.metrics.names import METRICS

    return sorted(METRICS)


@_completer
def checkpoints(ctx: click.Context) -> Iterable[str]:
    """Offer the ids of the complete checkpoints of the topology, newest first."""
    from heronpy.clusters.places import found_of

    return [str(found.checkpoint) for found in found_of(*_place(ctx))]


@_completer
def past_runs(ctx: click.Context) -> Iterable[str]:
    """Offer the topologies with kept runs, and the ids of these runs."""
    from heronpy.clusters.ended import kept_files
    from heronpy.common.folders import heron_home

    paths = list(kept_files(heron_home(), _place(ctx)[0].target.cluster))
    return sorted({name for path in paths for name in (path.name, path.parents[1].name)})


@_completer
def client_keys(ctx: click.Context) -> Iterable[str]:
    from heronpy.clusters.client_config import CLIENT_KEYS

    return [*CLIENT_KEYS, *_setting_keys()]


@_completer
def engines(ctx: click.Context) -> Iterable[str]:
    from heronpy.engines.open import kinds

    return kinds()


@_completer
def rooms(ctx: click.Context) -> Iterable[str]:
    from heronpy.common.setting_types import ROOMS

    return list(ROOMS)


def _setting_keys() -> list[str]:
    from heronpy.common.setting_types import ROOMS

    return [f"heron.{room}.{name}" for room, kind in ROOMS.items() for name in kind.described]


@_completer
def faults(ctx: click.Context) -> Iterable[str]:
    from heronpy.verify.scenarios import scenarios

    return [one.name for one in scenarios().values()]
