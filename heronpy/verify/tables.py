"""Verdicts as tables and as Markdown. Has no side effects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from heronpy.loadtest.histogram import quantile

Document = dict[str, Any]

COLUMNS = ("fault", "mode", "loss", "duplicates", "wrong keys", "reordered", "stall", "max memory", "recovery", "ok")


def seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def megabytes(value: float) -> str:
    return f"{value / 2**20:,.0f} MB" if value else "-"


def row(document: Document) -> tuple[object, ...]:
    verdict = document["verdict"]
    order = verdict["inversions"]
    return (
        document["fault"],
        verdict["mode"],
        f"{verdict['loss']:,} of {verdict['expected']:,}" + ("" if verdict["complete"] else " missing"),
        duplicates(verdict),
        f"{verdict['wrong_keys']:,} of {verdict['keys']:,}" if verdict["complete"] else "unknown",
        "not promised" if order is None else f"{order:,}",
        seconds(verdict["stall_s"]),
        megabytes(verdict["memory_max_bytes"]),
        seconds(document.get("recovery_p50_s")),
        "ok" if document["ok"] else "FAILED",
    )


def duplicates(verdict: Document) -> str:
    """Return the number of duplicates, and how many of them are not replays."""
    text = f"{verdict['duplicates']:,}"
    return f"{text} ({verdict['unexplained']:,} not replayed)" if verdict["unexplained"] else text


def failures(document: Document) -> list[str]:
    """Return the failures of a run, one line each."""
    found = [f"{check['name']}: {check['text']}" for check in document["verdict"]["checks"] if not check["ok"]]
    return [*([document["error"]] if document.get("error") else []), *found]


_REPORT = ("fault", "description", "mode", "runs", "faults", "passed", "tuples", "loss", "duplicates", "wrong keys",
           "reordered", "recovery p50", "recovery p99", "restart p99", "max memory")  # fmt: skip

_INTRODUCTION = """# Effects of faults

Written by `heron verify report`. A seeded source emits tuples on a schedule, faults are injected into real processes,
and a separate process recomputes everything from the seed. [Guarantees](guarantees.md) lists the promises of each mode.

- **Loss**: tuples that never arrived, except poison. Loss and wrong keys include only runs whose input has ended.
- **Duplicates**: tuples that arrived more than once; in effectively-once mode, duplicate committed rows.
- **Wrong keys**: keys with a count or sum that differs from the recomputation.
- **Reordered**: tuples that arrived after a later tuple of their key.
- **Recovery**: time from a fault until new tuples arrive at 90 % of the rate before the first fault.
- **Restart**: time from a fault until the victim's successor runs.
- **Max memory**: memory of the largest process.

For [work units](howto/verify.md#work-units) and [batch runs](howto/verify.md#batch-runs) a tuple is a line. A key of
work units is a unit, and a wrong key is a unit with rows that differ from its lineage.
"""


def markdown(documents: Sequence[Document]) -> str:
    """Return a report about many runs as Markdown: one line per fault and mode, and the failures."""
    first = documents[0]
    options = first["options"]
    rate = options["input"]["rate"] * options["input"]["partitions"]
    lines = [
        _INTRODUCTION,
        f"heronpy {first['heronpy']}, Python {first['python']}, {first['host']['cores']} cores"
        f" ({first['host']['cpu'].strip()}), {documents[-1]['date']}. {options['tasks']} tasks of each component in"
        f" {options['containers']} containers, {rate:,.0f} tuples a second,"
        f" {'faults at full length and number' if not options['short'] else 'short faults'}.",
        "",
        _line(_REPORT),
        _line("---" for _ in _REPORT),
        *(_line(_summary(group)) for group in _groups(documents, lambda one: (one["fault"], one["verdict"]["mode"]))),
        "",
        *_figures(documents),
    ]
    wrong = [one for one in documents if not one["ok"]]
    if wrong:
        lines += ["", "## Failed", ""]
        lines += [f"- {one['fault']}, {one['verdict']['mode']}: {'; '.join(failures(one))}" for one in wrong]
    return "\n".join(lines) + "\n"


def _groups(documents: Iterable[Document], key: Callable[[Document], Any]) -> list[list[Document]]:
    found: dict[Any, list[Document]] = {}
    for one in documents:
        found.setdefault(key(one), []).append(one)
    return list(found.values())


def _line(cells: Iterable[object]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def _felt(group: Iterable[Document]) -> list[float]:
    return [r["seconds"] for one in group for r in one["verdict"]["recovery"] if r["seconds"] is not None]


def _summary(group: Sequence[Document]) -> list[object]:
    verdicts = [one["verdict"] for one in group]
    felt = _felt(group)
    back = [fault["back_s"] for one in group for fault in one["faults"] if fault["back_s"] is not None]

    def total(name: str) -> str:
        return f"{sum(v[name] for v in verdicts):,}"

    def judged(name: str) -> str:
        """Sum over completed runs only, because the losses of other runs are unknown."""
        return f"{sum(v[name] for v in verdicts if v['complete']):,}"

    order = "not promised" if verdicts[0]["inversions"] is None else f"{sum(v['inversions'] for v in verdicts):,}"
    return [
        group[0]["fault"], group[0]["about"], verdicts[0]["mode"], len(group), sum(len(one["faults"]) for one in group),
        sum(one["ok"] for one in group), total("expected"), judged("loss"), total("duplicates"), judged("wrong_keys"),
        order, seconds(quantile(felt, 0.5)), seconds(quantile(felt, 0.99)), seconds(quantile(back, 0.99)),
        megabytes(max(v["memory_max_bytes"] for v in verdicts)),
    ]  # fmt: skip


#: Promised times: name, faults, the bound as text, the bound in seconds.
_TARGETS = (
    ("kill -9 of a task: time until 90 % of the rate", ("F01-spout", "F01-bolt", "F01-sink"), "p99 below 2 s", 2.0),
    ("kill -9 of a stream manager: time until 90 % of the rate", ("F02",), "p99 below 5 s", 5.0),
    ("kill -9 of all containers: time until 90 % of the rate", ("F05-all",), "p99 below 60 s", 60.0),
)
_FALL_MAX = 0.05


def _figures(documents: Sequence[Document]) -> list[str]:
    """Compare the measured times with the promised times."""
    rows: list[list[object]] = []
    for what, faults, words, bound in _TARGETS:
        chosen = [one for one in documents if one["fault"] in faults]
        for group in _groups(chosen, lambda one: one["verdict"]["mode"]):
            felt = quantile(_felt(group), 0.99)
            if felt is not None:
                kept = "yes" if felt <= bound else "**no**"
                rows.append([what, group[0]["verdict"]["mode"], words, seconds(felt), kept])
    chosen = [one for one in documents if one["fault"] == "F03"]
    for group in _groups(chosen, lambda one: one["verdict"]["mode"]):
        changes = [r["change"] for one in group for r in one["verdict"]["recovery"] if r["change"] is not None]
        if changes:
            # Only a drop counts: a source that was behind its schedule on a busy machine catches up later.
            fall = quantile([max(0.0, -one) for one in changes], 0.5) or 0.0
            kept = "yes" if fall < _FALL_MAX else "**no**"
            rows.append(["kill -9 of the topology master: drop of the rate within 3 s", group[0]["verdict"]["mode"],
                         "p50 below 5 %", f"{fall:.1%}", kept])  # fmt: skip
    if not rows:
        return []
    head = ("figure", "mode", "promised", "measured", "kept")
    return ["## Figures", "", _line(head), _line("---" for _ in head), *map(_line, rows)]
