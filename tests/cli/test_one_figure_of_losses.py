"""One figure of losses, in the same words in every view."""

from __future__ import annotations

import json

import pytest

from heronpy.clusters.summary import topology_of
from heronpy.common.losses import WITH_LOSSES, losses_text, lost_text, missing_text, state_label
from heronpy.proto import control_pb2, plan_pb2
from heronpy.views.build_ended import doctor_of_ended
from heronpy.views.overview import totals_of
from heronpy.views.past import Timeline
from tests.cli.conftest import FakeTopology, Heron
from tests.support.views import load_answer

CASES = [
    (control_pb2.TupleTotals(acked=10, failed=3), "", "0"),
    (control_pb2.TupleTotals(dead_letters=1), "1", "0"),
    (control_pb2.TupleTotals(dead_letters=1, lost=2, not_resent=1), "4", "2"),
    (control_pb2.TupleTotals(lost=2000, lost_estimated=True), "about 2,000", "about 2,000"),
    (control_pb2.TupleTotals(lost_estimated=True), "an unknown number", "an unknown number"),
    (
        control_pb2.TupleTotals(lost=20, lost_estimated=True, lost_unknown=True),
        "an unknown number",
        "an unknown number",
    ),
    (
        control_pb2.TupleTotals(dead_letters=2, lost=20, lost_estimated=True, lost_unknown=True),
        "at least 2",
        "an unknown number",
    ),
    (control_pb2.TupleTotals(dead_letters=2, letters_at_least=True), "at least 2", "0"),
    (control_pb2.TupleTotals(letters_at_least=True), "", "0"),
    (control_pb2.TupleTotals(dead_letters=2, restores=1), "about 2", "0"),
]


@pytest.mark.parametrize(("totals", "said", "lost"), CASES)
def test_every_view_says_the_same(
    heron: Heron, wordy: FakeTopology, totals: control_pb2.TupleTotals, said: str, lost: str
) -> None:
    wordy.status.lifecycle = control_pb2.LIFE_FINISHED
    wordy.status.cause = ""
    wordy.status.totals.CopyFrom(totals)
    wordy.status.discarded_tuples = 12
    label = f"FINISHED{WITH_LOSSES}" if said else "FINISHED"
    state = f"{label}: {said}" if said else label
    shown = heron("status", "local", "wordy").out
    assert f"  state      {state}\n" in shown and f", lost {lost}\n" in shown
    more = ", and an unknown number more" if totals.lost_unknown else ""
    assert f"  discarded  12 tuples{more}\n" in shown
    assert f"  {state}  up " in heron("top", "local", "wordy", "-n", "1").out
    as_json = json.loads(heron("status", "local", "wordy", "--json").out)
    assert (as_json["lifecycle"], as_json["state"], as_json["losses"]) == ("FINISHED", label, said or None)
    listed = heron("list", "local").out
    assert label in listed and (not said or f"'wordy' is {state}\n" in listed)
    [row] = [row for row in json.loads(heron("list", "local", "--json").out) if row["name"] == "wordy"]
    assert (row["state"], row["losses"]) == (label, said or None)
    # The pages, while the topology is there and when it has ended.
    load = load_answer(state="FINISHED", totals=totals_of(totals, {}))
    page = topology_of(plan_pb2.ExecutionState(topology="wordy"), load, None, None)
    assert page.totals is not None and page.state == label
    assert (page.totals.losses, page.totals.lost_text) == (said or None, lost)
    page.ended_at, page.uptime_s = 100.0, 50.0
    found = doctor_of_ended(page, [], Timeline(times=[], step_s=60.0, series=[], kept_from=None))
    sentences = [one.sentence for one in found.findings if one.verdict == "losses"]
    assert len(sentences) == bool(said) and all(f"{lost} lost" in one for one in sentences)


@pytest.mark.parametrize(("totals", "said", "lost"), CASES)
def test_what_is_kept_for_pages_says_what_the_answer_says(
    totals: control_pb2.TupleTotals, said: str, lost: str
) -> None:
    kept = totals_of(totals, {})
    assert (losses_text(kept), lost_text(kept)) == (losses_text(totals), lost_text(totals)) == (said, lost)


def test_part_of_a_sentence() -> None:
    said = [missing_text(totals) for totals, _, _ in CASES]
    assert said[:3] == ["", "1 tuple", "4 tuples"]
    assert said[3:5] == ["about 2,000 tuples", "an unknown number of tuples"]


def test_only_a_topology_that_has_finished_is_finished_with_losses() -> None:
    lossy = control_pb2.TupleTotals(lost=1)
    assert [state_label(state, lossy) for state in ("RUNNING", "FAILED", "KILLED")] == ["RUNNING", "FAILED", "KILLED"]
    assert state_label("FINISHED", None) == "FINISHED"
