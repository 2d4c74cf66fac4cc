"""Poison tuples through real processes: after N tries a dead letter, and all others unaffected (F19)."""

from __future__ import annotations

import base64
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from heronpy.proto import control_pb2
from tests.support.command import Heron
from tests.support.inside import ask_master, inside, metric
from tests.support.waiting import wait_for

PROGRAM = Path(__file__).parent / "programs" / "poison.py"
#: Many restarts in a row are what is wanted here.
QUICK = (
    "--config-property", "heron.executor.restart_budget=100",
    "--config-property", "heron.executor.restart_backoff_max_s=0.1",
    "--config-property", "heron.executor.restart_backoff_s=0.01",
)  # fmt: skip
COUNT = 200


def submit(heron: Heron, out: Path, poison: dict[int, str], *words: object) -> None:
    heron.submit(PROGRAM, "poison", "--out", out, "--count", COUNT, "--poison", json.dumps(poison), *QUICK, *words)


def numbers(file: Path) -> Counter[int]:
    return Counter(int(line) for line in file.read_text().split())


def tries(out: Path, number: int) -> int:
    return len((out / f"tried.{number}").read_text())


def letters(heron: Heron) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = heron("dead-letters", "local", "poison", "--json").json()
    return sorted(found, key=lambda letter: str(letter["payload"]))


def check_others(out: Path, poison: dict[int, str]) -> None:
    assert set(numbers(out / "stored")) == set(range(COUNT)) - set(poison), "other tuples were affected"
    assert set(numbers(out / "acked")) == set(range(COUNT)), "a dead letter counts as acked"


RAISING = {20: "raise", 60: "recursion", 100: "huge", 140: "sysexit"}
DEADLY = {30: "exit", 90: "segfault"}
ENDLESS = 50
WORDS = {20: "ValueError: this tuple is poison", 60: "RecursionError", 140: "SystemExit"}


@pytest.mark.parametrize("asynchronous", [False, pytest.param(True, marks=pytest.mark.heavy)])
def test_after_some_tries_a_poison_tuple_is_a_dead_letter(heron: Heron, out: Path, asynchronous: bool) -> None:
    """What raises, what ends the process, and what never returns; in between all others arrive."""
    endless = "sleep" if asynchronous else "hang"
    poison = {**RAISING, **DEADLY, ENDLESS: endless}
    limit = ("--config-property", "heron.instance.execute_timeout_s=0.5")
    submit(heron, out, poison, *limit, *(["--asynchronous"] if asynchronous else []))
    heron.when_state("poison", "FINISHED", 120)
    check_others(out, poison)
    found = {letter["payload"][0]: letter for letter in letters(heron)}
    written = Counter(letter["payload"][0] for letter in letters(heron))
    # One whose settling died with the process comes again, and is written again rather than maybe not at all.
    assert sorted(written) == sorted(poison) and max(written.values()) <= 2
    assert {letter["component"] for letter in found.values()} == {"work"}
    assert {letter["tries"] for letter in found.values()} == {3}
    for number, text in WORDS.items():
        assert text in found[number]["traceback"]
    for number in poison:
        # The first death of a healthy process has no witness; and where a process dies of one tuple, another
        # may be tried again because its spout has not heard yet.
        assert 3 <= tries(out, number) <= 6, poison[number]
    for number in DEADLY:
        assert "ended while it processed this tuple" in found[number]["traceback"]
    assert "process() has lasted" in found[ENDLESS]["traceback"]
    assert "bite" in found[ENDLESS]["traceback"] or asynchronous, "the stack shows where it hangs"
    check_shown(heron, out, poison)


def check_shown(heron: Heron, out: Path, poison: dict[int, str]) -> None:
    """Also on the component's own stream, in the metrics, in the exceptions, and for people."""
    emitted = [json.loads(line) for line in (out / "letters").read_text().splitlines()]
    assert {payload[0] for payload, _, _, _ in emitted} == set(poison)
    assert {times for _, _, _, times in emitted} <= {3, 4}
    assert metric(ask_master(heron, "poison", control_pb2.GetMetrics(component="work")), "__dead-letters") >= 1
    shown = heron("dead-letters", "local", "poison", "--component", "work", "-n", 1).ok().out
    assert "failed 3 times" in shown and "tuple of source/default: [" in shown
    raised = heron("exceptions", "local", "poison").ok().out
    assert "process() has lasted" in raised and "signal SIGSEGV" in raised


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", pytest.param("ATLEAST_ONCE", marks=pytest.mark.heavy)])
def test_the_first_failure_of_what_nobody_sends_again_is_a_dead_letter(heron: Heron, out: Path, mode: str) -> None:
    """Nothing is tried again, also at least once where a tuple has no id, so what raised is lost: the letter says so."""
    poison = {20: "raise", 150: "raise"}
    submit(heron, out, poison, "--guarantee", mode, "--untracked")
    heron.when_state("poison", "FINISHED")
    assert numbers(out / "stored") == Counter(set(range(COUNT)) - set(poison))
    assert [(letter["payload"], letter["tries"]) for letter in letters(heron)] == [([150], 1), ([20], 1)]
    assert tries(out, 20) == tries(out, 150) == 1


@pytest.mark.heavy
@pytest.mark.parametrize("words", [["ATLEAST_ONCE"], ["ATLEAST_ONCE", "--batches"], ["EFFECTIVELY_ONCE"]])
def test_a_value_whose_decoding_ends_the_process_is_one_dead_letter(heron: Heron, out: Path, words: list[str]) -> None:
    """It is found although no tuple of its frame was made; the others arrive, and the topology goes on."""
    poison = {20: "decode-exit", 150: "decode-segfault"}
    submit(heron, out, poison, "--config-property", "heron.checkpoint.interval_s=0.2", "--guarantee", *words)
    heron.when_state("poison", "FINISHED", 120)
    assert set(numbers(out / "stored")) == set(range(COUNT)) - set(poison)
    found = letters(heron)
    pickles = [base64.b64decode(letter["payload"][0]["base64"]) for letter in found]
    assert {data[-6] for data in pickles} == set(poison), "the bytes that came are kept"
    assert len(found) == 2 or words[0] == "ATLEAST_ONCE"
    for letter in found:
        assert "ended while it decoded a value of this tuple: crashed" in letter["traceback"]
        assert letter["tries"] == 3


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("mode", "asynchronous"),
    [("ATLEAST_ONCE", False), ("ATLEAST_ONCE", True), ("EFFECTIVELY_ONCE", False)],
)
def test_a_value_that_cannot_be_decoded_is_one_dead_letter(
    heron: Heron, out: Path, mode: str, asynchronous: bool
) -> None:
    """Its neighbours in the frame arrive, each once; it is not sent again; it is counted. `tests/fault`: at most once."""
    poison = {20: "undecodable", 21: "undecodable", 150: "undecodable"}
    submit(heron, out, poison, "--guarantee", mode, *(["--asynchronous"] if asynchronous else []))
    heron.when_state("poison", "FINISHED")
    assert sorted(numbers(out / "stored").elements()) == sorted(set(range(COUNT)) - set(poison))
    found = letters(heron)
    pickles = [base64.b64decode(letter["payload"][0]["base64"]) for letter in found]
    assert sorted(data[-6] for data in pickles) == sorted(poison), "the bytes that came are kept"
    assert all(
        "does not come back" in letter["traceback"] and "could not be decoded" in letter["traceback"]
        for letter in found
    )
    for letter in found:  # begins with the user's own frame
        files = [line.strip() for line in letter["traceback"].splitlines() if line.startswith("  File ")]
        assert "poison.py" in files[0] and "another exception" not in letter["traceback"], letter["traceback"]
    [work] = [task for task in inside(heron, "poison").tasks if task.component == "work"]
    assert work.executed == COUNT, "what is given up as a dead letter counts as executed"
    assert (work.dead_letters, work.lost_tuples) == (len(poison), 0)
    wait_for(
        lambda: metric(ask_master(heron, "poison", control_pb2.GetMetrics(component="work")), "__malformed-tuples")
        == len(poison), 10, "the metric",
    )  # fmt: skip
    if mode == "ATLEAST_ONCE":
        assert numbers(out / "acked") == Counter(range(COUNT))
