"""Recorded runs give the same diagnosis again, word by word.

Each file in `histories/` is the end of what `heron doctor --watch --window 60 --evidence FILE` wrote about a run of
`topologies/sick.py`, or of a topology that keeps up: `healthy` with idle tasks, `loaded` with tasks that are 40 to 90 %
busy on a machine that others use, too; `starved` is a leak on a machine where others use nearly all CPU. The sentences are those of their last look.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from heronpy.health.diagnose import diagnose
from heronpy.health.findings import CALM, Verdict
from heronpy.health.recording import replay
from heronpy.health.signals import Signals
from heronpy.health.texts import advice, sentence

HISTORIES = Path(__file__).parent / "histories"

_RESTART = "heron profile local Sick container_1_work_2; heron restart local Sick container_1_work_2"
_MEMORY = (
    "heron heap local Sick container_1_work_2 shows what it keeps; keep less, or raise the limit of its tasks"
    " (heron.instance.memory_soft_limit_bytes)"
)
_WAITS = "look at what store calls (heron profile local Sick container_1_store_6); an AsyncBolt can wait for many calls at once"
_SKEW = "more tasks will not help: aggregate before the fields grouping, or group by one more field"
#: Per history, the first sentence and what to do next.
SENTENCES = {
    "healthy": ("Sick is healthy: 473/s, spouts held 0 % of the time, busiest task container_1_work_2 at 7 %", ""),
    "loaded": ("Sick is healthy: 464/s, spouts held 0 % of the time, busiest task container_1_work_2 at 94 %", ""),
    "slow": ("container_1_work_2 is slow: while busy it handles 39/s, the other tasks of work 836/s", _RESTART),
    "skew": (
        "data skew: container_1_work_3, one of 4 tasks, gets 85 % of the tuples (an even share is 25 %) and is 100 % busy,"
        " the others 8 %", _SKEW,
    ),
    "crash": (
        "container_1_work_2 was restarted 8 times: ValueError: order 49 of user 66 cannot be booked",
        "heron exceptions local Sick; heron logs local Sick container_1_work_2",
    ),
    "leak": (
        "container_1_work_2 ran out of memory 6 times: its resident memory peaked at 141.5MB, above the limit of 120MB",
        _MEMORY,
    ),
    "starved": (
        "container_1_work_2 ran out of memory 7 times: its resident memory peaked at 120.5MB, above the limit of 120MB",
        _MEMORY,
    ),
    "sink": ("store is waiting, not computing: 51ms per tuple, 578us of it CPU", _WAITS),
}  # fmt: skip


def looks(name: str) -> list[Signals]:
    path = HISTORIES / f"{name}.jsonl"
    return [signals for _, signals in replay(path.read_text(encoding="utf-8").splitlines(), path.name)]


@pytest.mark.parametrize("name", SENTENCES)
def test_the_first_finding_is_the_cause(name: str) -> None:
    wanted, todo = SENTENCES[name]
    found = diagnose(looks(name)[-1])[0]
    assert sentence(found, "Sick") == wanted
    assert advice(found, "local", "Sick") == todo


@pytest.mark.parametrize("name", SENTENCES)
def test_a_topology_that_keeps_up_is_healthy_all_the_time_and_the_others_never(name: str) -> None:
    keeps_up = name in ("healthy", "loaded")
    for signals in looks(name):
        assert (diagnose(signals)[0].verdict in CALM) == keeps_up, sentence(diagnose(signals)[0], "Sick")


def test_more_tasks_are_not_advised_where_no_cpu_is_left() -> None:
    """All tasks of work were 88 % busy and more: waiting for a core."""
    found = diagnose(looks("starved")[-1])
    assert [one.verdict for one in found] == [Verdict.MEMORY, Verdict.MACHINE]


def test_every_history_has_its_sentence() -> None:
    assert {path.stem for path in HISTORIES.glob("*.jsonl")} == SENTENCES.keys()
