"""What the executor keeps of its processes' last reports."""

from __future__ import annotations

from pathlib import Path

from heronpy.executor.metrics_inbox import SPANS_MAX, MetricsInbox
from heronpy.net.rpc import seal, wrap
from heronpy.proto import control_pb2


async def test_the_last_report_of_a_replaced_or_removed_task_is_sent_before_its_successors(home: Path) -> None:
    inbox = MetricsInbox(f"ipc://{home}/m", 1, lambda _: True, lambda _: None, lambda: None)

    def receive(epoch: int, emitted: float) -> None:
        report = control_pb2.MetricsReport(process="task", epoch=epoch)
        report.samples.add(name="emitted", value=emitted)
        inbox.receive([seal(wrap(report))])

    def sent() -> list[tuple[int, float]]:
        batch = inbox.take_batch()
        assert batch is not None
        batches.append(batch)
        return [(one.epoch, one.samples[0].value) for one in batch.reports]

    batches: list[control_pb2.MetricsBatch] = []
    receive(1, 10)
    assert sent() == [(1, 10)]
    receive(1, 20)
    receive(2, 3)
    assert sent() == [(1, 20), (2, 3)]
    inbox.put_back(batches[-1])
    receive(2, 4)
    inbox.forget("task")
    assert sent() == [(1, 20), (2, 4)]
    assert inbox.take_batch() is None
    inbox.repeat()
    assert sent() == [(2, 4)], "for a new topology master"
    assert inbox.take_batch() is None
    inbox.close()


async def test_the_spans_of_a_replaced_report_go_with_the_next_one(home: Path) -> None:
    inbox = MetricsInbox(f"ipc://{home}/m", 1, lambda _: True, lambda _: None, lambda: None)

    def receive(*numbers: int, epoch: int = 1) -> None:
        report = control_pb2.MetricsReport(process="task", epoch=epoch)
        for number in numbers:
            report.spans.add(trace=7, number=number)
        inbox.receive([seal(wrap(report))])

    def sent() -> list[list[int]]:
        batch = inbox.take_batch()
        assert batch is not None
        batches.append(batch)
        return [[span.number for span in one.spans] for one in batch.reports]

    batches: list[control_pb2.MetricsBatch] = []
    receive(1, 2)
    receive(3)
    assert sent() == [[1, 2, 3]]
    receive(4)
    assert sent() == [[4]], "what was sent is not sent again"
    receive(5)
    inbox.put_back(batches[-1])
    assert sent() == [[4, 5]] and inbox.spans_discarded == 0
    inbox.put_back(batches[-1])
    assert sent() == [[4, 5]], "nothing newer had come"
    receive(*range(SPANS_MAX))
    receive(*range(SPANS_MAX, SPANS_MAX + 7))
    assert sent() == [list(range(7, SPANS_MAX + 7))] and inbox.spans_discarded == 7
    receive(8)
    receive(9, epoch=2)
    assert sent() == [[8], [9]]
    inbox.close()
