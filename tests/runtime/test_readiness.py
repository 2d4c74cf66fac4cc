"""No spout is asked for tuples before the sinks are ready; everybody sees what is waited for."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import PATIENCE_S, Heron
from tests.support.user_programs import write_program
from tests.support.waiting import wait_for

PROGRAM = """
    import os
    import sys
    from pathlib import Path

    from heronpy import AsyncBolt, NotReadyError

    GATE, MODE, KIND = Path(sys.argv[1]), sys.argv[2], sys.argv[3]


    class Stamps(Spout):
        outputs = ["stamp"]

        def initialize(self, config, context):
            self.n, self.gate = 0, Path(config["gate"])

        def next_tuple(self):
            if not self.gate.exists() and not self.n:
                raise AssertionError("the spout was called although the sink is not ready")
            if self.n >= 50:
                self.end_of_input()
                return
            self.n += 1
            self.emit([self.n], tup_id=self.n)

        def fail(self, tup_id):
            raise AssertionError("a tuple failed")


    class Gated:
        asked = 0

        def initialize(self, config, context):
            self.gate = Path(config["gate"])
            self.delegate.log("initialized")

        def is_ready(self):
            self.asked += 1
            if self.gate.exists():
                return True
            if self.asked < 3:
                return False
            raise NotReadyError("the gate is shut")


    class GatedSink(Gated, Bolt):
        def process(self, tup):
            self.ack(tup)


    class GatedAsyncSink(Gated, AsyncBolt):
        async def process(self, tup):
            self.ack(tup)


    def main():
        builder = TopologyBuilder("gated")
        stamps = builder.add_spout("stamps", Stamps, par=1, config={"gate": str(GATE)})
        kind = GatedSink if KIND == "sync" else GatedAsyncSink
        builder.add_bolt("store", kind, par=2, inputs={stamps: Grouping.SHUFFLE}, config={"gate": str(GATE)})
        builder.set_config({"topology.reliability.mode": MODE, "topology.message.timeout.secs": 1})
        builder.build_and_submit()


    main()
"""


def seconds_of(cause: str) -> int:
    """How long the gate has been shut, as people are told; 0 when the cause is another one."""
    found = re.fullmatch(r"the gate is shut, (\d+) s", cause)
    return int(found[1]) if found else 0


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("ATLEAST_ONCE", "sync"),
        pytest.param("EFFECTIVELY_ONCE", "sync", marks=pytest.mark.heavy),
        pytest.param("ATLEAST_ONCE", "async", marks=pytest.mark.heavy),
    ],
)
def test_spouts_are_called_when_the_last_sink_is_ready(heron: Heron, home: Path, mode: str, kind: str) -> None:
    gate = home / "gate"
    program = write_program(home.parent, PROGRAM)
    # Waiting for readiness does not count against --timeout, which starts when the wait is over.
    submit = heron.start("submit", "local", program, "-", gate, mode, kind, "--timeout", "40")
    try:
        status = heron.when("gated", lambda now: "the gate is shut" in now["cause"], "what is waited for")
        assert status["lifecycle"] == "WAITING"
        heron.when("gated", lambda now: seconds_of(now["cause"]) >= 3, "a cause that tells the time")
        assert submit.poll() is None
        gate.touch()
        out, err = submit.communicate(timeout=PATIENCE_S)
    finally:
        submit.kill()
        submit.communicate()
    assert submit.returncode == 0, err
    assert "WAITING: the gate is shut, " in out
    done = heron.when_state("gated", "FINISHED")
    assert sum(row["executed"] for row in done["components"] if row["name"] == "store") == 50
    assert "Assertion" not in heron.log_text("gated")


@pytest.mark.heavy
def test_a_sink_that_restarts_alone_stops_no_spout(heron: Heron, home: Path) -> None:
    gate = home / "gate"
    gate.touch()
    endless = PROGRAM.replace("if self.n >= 50:", "time.sleep(0.01)\n            if self.n >= 5_000_000:")
    endless = endless.replace("and not self.n", "and self.n < 0")
    heron.submit(write_program(home.parent, endless), "-", gate, "ATMOST_ONCE", "sync")
    gate.unlink()

    def emitted(status: dict[str, Any]) -> int:
        return next(int(row["emitted"]) for row in status["components"] if row["name"] == "stamps")

    before = heron.when_state("gated", "RUNNING")
    os.kill(next(task["pid"] for task in before["tasks"] if task["component"] == "store"), signal.SIGKILL)
    heron.when_logged("gated", "initialized", "*store*", count=3)
    count = emitted(heron.status("gated"))
    heron.when("gated", lambda now: emitted(now) > count + 200, "a spout that goes on")
    heron.when_state("gated", "RUNNING")


def test_a_sink_that_is_never_ready_fails_with_what_it_waits_for(heron: Heron, home: Path) -> None:
    program = write_program(home.parent, PROGRAM)
    done = heron("submit", "local", program, "-", home / "gate", "ATLEAST_ONCE", "sync",
                 "--config-property", "heron.instance.ready_timeout_s=1.5")  # fmt: skip
    done.refused(1, "store is not ready after 1.5 s: the gate is shut", "heron.instance.ready_timeout_s")
    wait_for(lambda: not heron.processes(), PATIENCE_S, "nothing that is left")
