"""The page of a load test says first what was measured and whether it holds (pure)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from heronpy.loadtest import page


def result(checks: list[tuple[str, bool, str]], runs: int = 1, noisy: bool = False) -> dict[str, Any]:
    shown = [{"name": name, "ok": ok, "text": text} for name, ok, text in checks]
    row = {"min": 1.0, "median": 2.0, "max": 3.0}
    return {
        "profile": "word_count", "about": "1 spout, 2 counters", "unit": "words", "options": {}, "date": "today",
        "heronpy": "1", "python": "3", "host": {"cores": 2, "cpu": "some"},
        "calibration": {"noisy": noisy, "text": "quiet", "loop_s_per_million": 0.05},
        "runs": [{"checks": shown}] * runs, "summary": {"rate": row, "latency_p99_ms": row, "clamped_s": row},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("made", "verdict", "said"),
    [
        (result([("counts", True, "exact: 7 of 7 words")]), "PASSED", "1 of 1 checks passed; exact: 7 of 7 words"),
        (
            result([("counts", True, "x"), ("culprit", False, "nobody")]),
            "FAILED",
            "1 of 2 checks passed; failed: culprit; x",
        ),
        (result([("counts", True, "x")], 3, True), "PASSED", "3 of 3 checks passed in 3 runs; on a noisy machine"),
    ],
)
def test_the_headline_has_verdict_and_key_figures(made: dict[str, Any], verdict: str, said: str) -> None:
    html = page.render(made)
    [headline] = re.findall(r"<p class='headline'>(.*?)</p>", html)
    assert f">{verdict}</b>{said}" == headline[headline.index(">") :]
    assert html.index("class='headline'") < html.index("<h2>Checks</h2>")
    tiles = re.findall(r"<div><b>(.*?)</b><span>(.*?)</span></div>", html)
    assert [label for _, label in tiles] == ["rate", "latency, p99"]
