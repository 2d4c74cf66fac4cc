"""One of three workers is ten times as slow: how long a unit takes then, from its first attempt to visible rows.

The function of this profile sleeps, so that the figure is that of the backups and not of a busy machine.
"""

from __future__ import annotations

from heronpy.ingest.ledger.policy import LEASE_MIN_S
from heronpy.loadtest.checks import Check
from heronpy.loadtest.cluster import Cluster
from heronpy.loadtest.run import Say
from heronpy.loadtest.unit_lines import stamped_lines
from heronpy.loadtest.units import judge
from heronpy.loadtest.units.pipeline import Pipeline
from heronpy.loadtest.units.plan import Sizes

WORKERS, UNIT_S, UNIT_LINES, LINE_BYTES = 3, 1.0, 100, 100
PATIENCE_S = 90.0


def straggler(where: Cluster, sizes: Sizes, number: int, say: Say) -> tuple[dict[str, float], list[Check]]:
    """The figures of one run."""
    made = Pipeline(where, f"straggler-{number}")
    units = max(WORKERS + 1, int(sizes.seconds / UNIT_S) * (WORKERS - 1))
    lines = units * UNIT_LINES
    made.log("clicks").write_text(stamped_lines(0, lines, 0, LINE_BYTES), encoding="ascii")
    with made.running(
        "slow", workers=WORKERS, unit_s=UNIT_S, unit_bytes=UNIT_LINES * LINE_BYTES, unit_wait_s=0.2
    ) as topology:
        made.until(lambda: made.look() >= units, sizes.seconds + PATIENCE_S, f"{units} units being published", topology)
    began = made.attempts()
    seconds = judge.unit_seconds(began, made.visible_ns())
    median, late = judge.share(seconds, 50), judge.share(seconds, 99)
    rows = [int(line.split(" ", 1)[0]) for _, text in made.texts() for line in text.splitlines()]
    values = {
        "straggler_p50_s": median,
        "straggler_p99_s": late,
        # The pace of these units gives the shortest lease.
        "straggler_p99_share": late / (LEASE_MIN_S + 1.5 * median) if median else 0.0,
        "straggler_backups": float(sum(one.attempt > 1 for one in began)),
    }
    slow = len({one.pid for one in began}) == WORKERS
    say(f"straggler: a unit takes {median:.2f} s, p99 {late:.2f} s; {values['straggler_backups']:.0f} backups")
    return values, [
        judge.rows_check("straggler", judge.wrong_numbers(rows, lines), lines),
        Check("straggler workers", slow, f"{len({one.pid for one in began})} of {WORKERS} workers took part"),
    ]
