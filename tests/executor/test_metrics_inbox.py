"""What the executor keeps of its processes' last reports."""

from __future__ import annotations

import asyncio
from pathlib import Path

from heronpy.executor.metrics_inbox import MetricsInbox
from heronpy.net.rpc import seal, wrap
from heronpy.proto import control_pb2


def test_the_last_report_of_a_replaced_or_removed_task_is_sent_before_its_successors(home: Path) -> None:
    async def scenario() -> None:
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
        inbox.close()

    asyncio.run(scenario())
