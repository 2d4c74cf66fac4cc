"""Identity of a task for its external output: component, index, submission, attempt, and the mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heronpy.api.api_constants import TOPOLOGY_RELIABILITY_MODE, TopologyReliabilityMode
from heronpy.api.topology_context import TopologyContext
from heronpy.connectors.durable_files import run_token


@dataclass(slots=True, frozen=True)
class TaskIdentity:
    """The names that distinguish the output of this process of a task from any other's."""

    component: str
    task: int
    #: Index among the tasks of the component, from 0; the same in every attempt.
    index: int
    #: Id of this submission of the topology.
    run: str
    #: Number of the restore, from 1, under EFFECTIVELY_ONCE; 0 in the other modes.
    attempt: int
    mode: str

    @property
    def is_checkpointed(self) -> bool:
        """Whether checkpoints publish the output. Not in a simulator, where none are taken."""
        return self.attempt > 0

    @property
    def is_acked(self) -> bool:
        """Whether tuples that were not acked are replayed."""
        return self.mode == TopologyReliabilityMode.ATLEAST_ONCE


def identity_of(config: dict[str, Any], context: TopologyContext) -> TaskIdentity:
    """The identity of the task of this context."""
    component, task = context.get_component_id(), context.get_task_id()
    mode = str(config.get(TOPOLOGY_RELIABILITY_MODE) or TopologyReliabilityMode.ATMOST_ONCE).upper()
    return TaskIdentity(
        component=component,
        task=task,
        index=sorted(context.get_component_tasks(component) or ()).index(task),
        run=run_token(context.get_topology_id()),
        attempt=context.attempt if mode == TopologyReliabilityMode.EFFECTIVELY_ONCE else 0,
        mode=mode,
    )
