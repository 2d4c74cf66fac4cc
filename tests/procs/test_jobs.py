"""Jobs: failures are logged and told, repetitions go on, and all jobs end with the process."""

from __future__ import annotations

import asyncio

import pytest

from heronpy.procs.jobs import Jobs


def test_a_failure_is_logged_and_told_and_a_cancellation_is_none(caplog: pytest.LogCaptureFixture) -> None:
    failures: list[str] = []

    async def fail() -> None:
        raise RuntimeError("job")

    def fail_call() -> None:
        raise RuntimeError("call")

    async def main() -> None:
        jobs = Jobs(lambda: failures.append("failed"))
        jobs.start(fail())
        jobs.start(asyncio.Event().wait())  # type: ignore[arg-type]
        await asyncio.sleep(0)
        assert failures == ["failed"]
        jobs.call(fail_call)
        await jobs.close()
        assert failures == ["failed"] * 2

    asyncio.run(main())
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == ["job", "call"]


async def test_a_repeated_call_goes_on_after_a_failure() -> None:
    done, calls = asyncio.Event(), iter(range(3))

    def call() -> None:
        if next(calls) == 2:
            done.set()
        raise RuntimeError

    jobs = Jobs()
    jobs.every(0.0, call)
    async with asyncio.timeout(30):
        await done.wait()
    await jobs.close()
