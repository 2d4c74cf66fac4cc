"""Slow tuples at the topology master: of each task, over its processes."""

from __future__ import annotations

from heronpy.proto import control_pb2
from heronpy.tmaster.task_reports import SLOW_KEPT, TaskReports


def report(epoch: int, *took: float, task: int = 3, component: str = "count") -> control_pb2.MetricsReport:
    made = control_pb2.MetricsReport(process=f"container_1_{component}_{task}", task_id=task, component=component)
    made.epoch = epoch
    for each in took:
        made.slow.add(at=each, took_s=each, source="word/default", tuples=1)
    return made


def took(store: TaskReports, component: str = "", task: int = 0) -> list[float]:
    reply = store.slow(control_pb2.GetSlow(component=component, task_id=task))
    return [one.took_s for one in reply.tuples]


def test_a_process_tells_all_it_keeps_and_its_predecessors_stay() -> None:
    store = TaskReports()
    store.take(report(1, 4.0, 2.0), 0.0)
    store.take(report(1, 5.0, 4.0, 2.0), 0.0)
    assert took(store) == [5.0, 4.0, 2.0], "a tuple that is told again counts once"
    store.take(report(2), 0.0)
    store.take(report(2, 3.0), 0.0)
    store.take(report(1, 99.0), 0.0)
    assert took(store) == [5.0, 4.0, 3.0, 2.0], "the last report of the process before may come late"
    for epoch in range(3, 9):
        store.take(report(epoch, *(epoch + n / 100 for n in range(SLOW_KEPT + 5))), 0.0)
    assert len(took(store)) == 2 * SLOW_KEPT


def test_they_are_chosen_by_component_and_task_and_forgotten_with_the_task() -> None:
    store = TaskReports()
    store.take(report(1, 1.0), 0.0)
    store.take(report(1, 2.0, task=4), 0.0)
    store.take(report(1, 3.0, task=5, component="sum"), 0.0)
    assert took(store, "count") == [2.0, 1.0] and took(store, task=5) == [3.0] and took(store, "sum", 3) == []
    [one] = store.slow(control_pb2.GetSlow(task_id=4)).tuples
    assert (one.instance_id, one.component, one.task_id) == ("container_1_count_4", "count", 4)
    store.forget("container_1_count_4")
    assert took(store) == [3.0, 1.0]
