"""Who a task is, for what it writes outside: component, place in it, submission, attempt, and the mode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heronpy.api.api_constants import TOPOLOGY_RELIABILITY_MODE, TopologyReliabilityMode
from heronpy.connectors.durable_files import run_token


@dataclass(slots=True, frozen=True)
class TaskIdentity:
    """The names that tell what this process of a task writes from what any other writes."""

    component: str
    task: int
    #: Place among the tasks of the component, from 0; the same in every attempt.
    index: int
    #: Tells this submission of the topology from any other.
    run: str
    #: Which restore this is, from 1, under EFFECTIVELY_ONCE; 0 in the other modes.
    attempt: int
    mode: str

    @property
    def is_checkpointed(self) -> bool:
        """Does what is written become visible by checkpoints? Not where nobody takes any: in a simulator."""
        return self.attempt > 0

    @property
    def is_acked(self) -> bool:
        """Are tuples that were not acked replayed?"""
        return self.mode == TopologyReliabilityMode.ATLEAST_ONCE


def identity_of(config: dict[str, Any], context: Any) -> TaskIdentity:
    """The identity of the task that this context is of."""
    component, task = context.get_component_id(), context.get_task_id()
    mode = str(config.get(TOPOLOGY_RELIABILITY_MODE) or TopologyReliabilityMode.ATMOST_ONCE).upper()
    return TaskIdentity(
        component=component,
        task=task,
        index=sorted(context.get_component_tasks(component)).index(task),
        run=run_token(context.get_topology_id()),
        attempt=context.attempt if mode == TopologyReliabilityMode.EFFECTIVELY_ONCE else 0,
        mode=mode,
    )
