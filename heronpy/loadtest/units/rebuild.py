"""A ledger made anew from its table: how long it takes, and whether nothing is lost or doubled by it.

The table is written directly, a line per unit, as workers and keepers would leave it. One unit is missing: a topology
then processes that hole and nothing else.
"""

from __future__ import annotations

import time
from hashlib import sha256

from heronpy.common.folders import make_folders
from heronpy.growing.identity import HEAD_BYTES, digest
from heronpy.ingest.checking import check, rebuild
from heronpy.ingest.ledger.requests import Rebuilt
from heronpy.ingest.ledger.types import Config
from heronpy.ingest.outputs.lineage import FILE, Lineage, Range, folder_name
from heronpy.ingest.outputs.stages import About, Stages
from heronpy.loadtest.checks import Check
from heronpy.loadtest.cluster import Cluster
from heronpy.loadtest.run import Say
from heronpy.loadtest.unit_lines import stamped_lines
from heronpy.loadtest.units import judge
from heronpy.loadtest.units.pipeline import NAME, Pipeline
from heronpy.loadtest.units.plan import Sizes

LOGS, LINE_BYTES = 10, 100
PATIENCE_S = 60.0


def rebuilding(where: Cluster, sizes: Sizes, number: int, say: Say) -> tuple[dict[str, float], list[Check]]:
    """The figures of one run."""
    made = Pipeline(where, f"rebuild-{number}")
    lines = max(sizes.units, LOGS + 1)
    hole = lines // 2
    _write(made, lines, hole)
    began = time.perf_counter()
    answer = rebuild(made.ledger, NAME, str(made.table))
    rebuild_s = time.perf_counter() - began
    began = time.perf_counter()
    compared = check(made.ledger, NAME, str(made.table))
    check_s = time.perf_counter() - began
    with made.running("line", unit_wait_s=0.5) as topology:
        made.until(lambda: made.rows() >= lines, PATIENCE_S, "the hole being filled", topology)
    rows = [int(line.split(" ", 1)[0]) for _, text in made.texts() for line in text.splitlines()]
    say(f"rebuild: {lines - 1:,} units in {rebuild_s:.2f} s")
    return {"rebuild_s": rebuild_s, "check_s": check_s}, [
        Check("rebuild", *_judge(answer, (lines - 1) * LINE_BYTES)),
        Check("rebuild check", not compared.problems, "; ".join(compared.problems[:3]) or "table and ledger agree"),
        judge.rows_check("rebuild rows", judge.wrong_numbers(rows, lines), lines),
    ]


def _judge(answer: Rebuilt, done_bytes: int) -> tuple[bool, str]:
    right = answer.done_bytes == done_bytes and answer.units == 1 and not answer.bad_bytes
    return right, f"{answer.done_bytes:,} bytes done of {done_bytes:,}, {answer.units} unit to process again"


def _write(made: Pipeline, lines: int, hole: int) -> None:
    """Logs, and a table that has a unit for each line but one."""
    texts = {f"{place}.log": b"" for place in range(LOGS)}
    units: list[tuple[str, int, int, bytes]] = []
    per_log = -(-lines // LOGS)
    for number in range(lines):
        key = f"{number // per_log}.log"
        line = stamped_lines(number, 1, 0, LINE_BYTES).encode()
        units.append((key, len(texts[key]), number, line))
        texts[key] += line
    heads = {}
    for key, data in texts.items():
        if data:
            (made.logs / key).write_bytes(data)
            first = data[: data.index(b"\n") + 1]
            heads[key] = f"{digest(first)}:{min(HEAD_BYTES, len(data))}:{digest(data[:HEAD_BYTES])}"
    Stages(str(made.table)).claim(About(NAME, Config(pattern=str(made.logs / "*.log"))))
    for key, begin, number, line in units:
        if number == hole:
            continue
        chunk = Range(key, 1, begin, begin + len(line), heads[key], sha256(line).hexdigest())
        folder = made.table / folder_name(1, number + 1)
        make_folders(folder)
        (folder / "part-0.txt").write_bytes(line)
        record = folder / FILE
        record.write_text(Lineage(NAME, 1, number + 1, 1, 1, (chunk,)).to_json(), encoding="utf-8")
        record.chmod(0o600)
