"""The outcome of an update whose topology master ended before it answered.

The plans in the state manager show the outcome. The packing plan has version v before an update, v+1 during the
update, and v+2 after it. After the update, the plan has the new places or, after a rollback, the old ones. An intent is
stored next to the plan during the update, and a master that takes over continues from the intent. An update without a
stored intent never began. A request names the version that it replaces, so sending it again is safe.

Settings have no version. Setting the same values again is safe, so such a request is always sent again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum

from heronpy.clusters.errors import ClusterError, NotThereError
from heronpy.clusters.session import Session
from heronpy.common.errors import DeadlineError, LostReplyError, RpcError
from heronpy.common.ids import instance_id
from heronpy.proto import control_pb2, plan_pb2

LOOK_S = 0.1


class Outcome(Enum):
    """The state of an update."""

    NOT_BEGUN = "not begun"
    UNDER_WAY = "under way"
    DONE = "done"
    ROLLED_BACK = "rolled back"
    OVERTAKEN = "overtaken"


def moves(plan: plan_pb2.PackingPlan) -> dict[int, str]:
    """Map from task id to instance id; an update may change the instance id."""
    return {
        instance.task_id: instance_id(container.id, instance.component, instance.task_id)
        for container in plan.containers
        for instance in container.instances
    }


def outcome_of(
    old: plan_pb2.PackingPlan,
    new: plan_pb2.PackingPlan,
    stored: plan_pb2.PackingPlan,
    intent: plan_pb2.UpdateIntent | None,
) -> Outcome:
    """The state of the update from `old` to `new`, as the stored plans show it."""
    if intent is not None:
        ours = moves(intent.new_packing_plan) == moves(new) and intent.old_packing_plan.version == old.version
        return Outcome.UNDER_WAY if ours else Outcome.OVERTAKEN
    if stored.version == old.version:
        return Outcome.NOT_BEGUN
    if stored.version == old.version + 1:
        return Outcome.UNDER_WAY  # its intent was stored, or removed, between the two reads
    if stored.version != old.version + 2:
        return Outcome.OVERTAKEN
    if moves(stored) == moves(new):
        return Outcome.DONE
    return Outcome.ROLLED_BACK if moves(stored) == moves(old) else Outcome.OVERTAKEN


def ask(
    session: Session,
    name: str,
    request: control_pb2.UpdateTopology,
    old: plan_pb2.PackingPlan,
    timeout_s: float,
    say: Callable[[str], None],
) -> control_pb2.UpdateReply | None:
    """The answer to an update; None if a master that took over has completed it without a request.

    Raises ClusterError if the update was rolled back or overtaken, or if its outcome is unknown at the deadline.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return session.ask(name, request, max(deadline - time.monotonic(), 0.1))
        except LostReplyError as error:
            say(f"{error}; checking the outcome")
        except RpcError:
            # Either the update was refused, or it had begun and the stopping master could not report its outcome.
            if _look(session, name, old, request.packing_plan) is not Outcome.UNDER_WAY:
                raise
            say("the topology master is stopping; checking the outcome")
        if _outcome(session, name, old, request.packing_plan, deadline) is Outcome.DONE:
            return None


def configure(
    session: Session, name: str, request: control_pb2.RuntimeConfig, timeout_s: float, say: Callable[[str], None]
) -> None:
    """Change settings, if necessary through a master that takes over. Raises DeadlineError if no answer arrives.

    Raises NotThereError if the topology was removed, or replaced by another topology with the same name.
    """
    deadline, topology_id = time.monotonic() + timeout_s, session.find(name).topology_id
    while True:
        try:
            session.ask(name, request, max(deadline - time.monotonic(), 0.1))
            return
        except LostReplyError as error:
            say(f"{error}; sending the request again")
        while not _answers(session, name):
            if time.monotonic() >= deadline:
                raise DeadlineError(
                    f"the settings may or may not have been changed: the topology master of '{name}' has ended, and no"
                    f" other one has answered within {timeout_s:g} s; run this command again, which is safe, once"
                    f" 'heron status {session.target} {name}' answers"
                )
            time.sleep(LOOK_S)
        if session.find(name).topology_id != topology_id:
            raise NotThereError(
                f"topology '{name}' was removed, and another topology with this name was submitted; its settings were"
                " not changed"
            )


def _outcome(
    session: Session, name: str, old: plan_pb2.PackingPlan, new: plan_pb2.PackingPlan, deadline: float
) -> Outcome:
    """Returns DONE if the update is done, NOT_BEGUN if the request can be sent again."""
    while True:
        # Ask first: a master that answers has read its state, so it does not begin this update later.
        alive = _answers(session, name)
        found = _look(session, name, old, new)
        if found is Outcome.DONE or (found is Outcome.NOT_BEGUN and alive):
            return found
        if found is Outcome.ROLLED_BACK:
            raise ClusterError(
                "after the topology master ended, the update was rolled back and the topology runs as before;"
                f" see 'heron logs {session.target} {name} tmaster' for the reason"
            )
        if found is Outcome.OVERTAKEN:
            raise ClusterError(
                "a later update has replaced this one, so the outcome of this one is unknown; see"
                f" 'heron plan {session.target} {name} packing'"
            )
        if time.monotonic() >= deadline:
            state = "has not begun" if found is Outcome.NOT_BEGUN else "is still in progress"
            raise DeadlineError(
                f"the update {state}, and the topology master that began it has ended; see"
                f" 'heron status {session.target} {name}'"
            )
        time.sleep(LOOK_S)


def _answers(session: Session, name: str) -> bool:
    session.find(name)
    return session.poll(name) is not None


def _look(session: Session, name: str, old: plan_pb2.PackingPlan, new: plan_pb2.PackingPlan) -> Outcome:
    intent = session.update_intent(name)
    return outcome_of(old, new, session.packing_plan(name), intent)
