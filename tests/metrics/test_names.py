"""Every name that the product reports is registered: otherwise its page shows it as a metric of the user."""

from __future__ import annotations

import ast
from pathlib import Path

from heronpy.ingest.figures import GAUGES, PUBLISHED, SITE_GAUGES, WORK
from heronpy.metrics.names import METRICS, UNIT_METRICS, Kind, find
from heronpy.views.units import _FIELDS

ROOT = Path(__file__).parents[2]
#: Constants of the same form that name no metric, and beginnings of names that f-strings complete.
NO_METRICS = frozenset({"__system", "__tick", "__main__.", "__stmgr_", "__gateway-"})
#: How the Spark gateway reports.
GATEWAYS = ("self._reports.add", "self._reports.observe")
BEGINNINGS = ("__py-generation-", "__replica/__", "__async-")


def reported() -> dict[str, str]:
    """Text constants that look like names of metrics, and where they stand."""
    found: dict[str, str] = {}
    files = [path for room in ("heronpy", "instance", "stmgr") for path in (ROOT / room).rglob("*.py")]
    for path in files:
        if path.name.endswith("_pb2.py") or path == ROOT / "heronpy/metrics/names.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
                if text.startswith("__") and not text.endswith(("__", ".py")) and " " not in text and len(text) > 4:
                    found[text] = f"{path.relative_to(ROOT)}:{node.lineno}"
            elif isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in GATEWAYS:
                name = node.args[0]
                assert isinstance(name, ast.Constant), f"{path}:{node.lineno} reports a name that is computed"
                found[str(name.value)] = f"{path.relative_to(ROOT)}:{node.lineno}"
    return found


def test_the_names_of_work_units_are_registered_and_read_by_their_view() -> None:
    reported = {*GAUGES, *PUBLISHED, *WORK}
    assert reported == set(UNIT_METRICS) == set(_FIELDS)
    assert {*reported, *SITE_GAUGES} == {name for name in METRICS if name.startswith("units-")}
    assert all(METRICS[name].label == "site" for name in SITE_GAUGES)
    for name in reported:
        metric = METRICS[name]
        assert metric.label == "pipeline" and metric.largest is (name in GAUGES) is (metric.kind is Kind.GAUGE)


def test_every_reported_name_is_registered() -> None:
    names = reported()
    assert (
        len(names) > 100
        and "spark-lag-seconds" not in names
        and {"spark-batches-committed", "spark-run-seconds"} <= names.keys()
    )
    strangers = {
        name: where
        for name, where in names.items()
        if find(name.rstrip("/")) is None and name not in NO_METRICS and not name.startswith(BEGINNINGS)
    }
    assert not strangers, "register them in heronpy/metrics/names.py"
