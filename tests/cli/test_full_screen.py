"""The screen of `heron top`: a pure function of view, figures and size, and keys as pure transitions."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from rich.cells import cell_len

from heronpy.cli.look.full_screen.rows import COMPONENTS, TASKS, ordered, short
from heronpy.cli.look.full_screen.screen import Size, changes, draw, painted, trend
from heronpy.cli.look.full_screen.view import (
    KEYS,
    Figures,
    Level,
    View,
    Wish,
    keys_of,
    position,
    press,
    rows_of,
    wish_of,
)
from heronpy.common.ids import instance_id
from heronpy.views.load import Culprit, Load, TaskLoad, Tasks
from tests.support.views import component_load, load_answer

NAMES = ("word", "count", "store", "sort-by-user")


def task_of(component: str, number: int, busy: float | None = None, **more: object) -> TaskLoad:
    given = {
        "state": "RUNNING", "up": True, "error": "", "silent_s": 0.1, "exit_reason": None, "exit_detail": None,
        "culprit": False, "host": "here", "pid": 4000 + number, "restarts": 0,
    }  # fmt: skip
    numbers = dict.fromkeys(
        ("emitted_per_s", "executed_per_s", "failed_per_s", "blocked", "idle", "queue_tuples", "queue_bytes", "pending",
         "latency_p50_s", "latency_p99_s", "cpu", "memory_bytes", "frames_per_s", "tuples_per_frame")
    )  # fmt: skip
    return TaskLoad(
        task_id=number, instance_id=instance_id(1, component, number), component=component, container=1, busy=busy,
        **(numbers | given | more),  # type: ignore[arg-type]
    )  # fmt: skip


def load(names: tuple[str, ...] = NAMES, **fields: object) -> Load:
    rows = [
        component_load(
            name, kind="bolt" if place else "spout", tasks=2, up=2, emitted_per_s=1000.0 * (place + 1),
            busy=0.2 * place, busy_max=min(0.3 * place, 1.0), busiest=instance_id(1, name, 2 * place + 1),
        )
        for place, name in enumerate(names)
    ]  # fmt: skip
    found = load_answer(*rows, state="RUNNING", plan_version=7).load
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def figures(names: tuple[str, ...] = NAMES, tasks: bool = True) -> Figures:
    mine = [
        task_of(name, 2 * place + two, 0.1 * place + 0.01 * two) for place, name in enumerate(names) for two in (1, 2)
    ]
    return Figures(
        "prod", "clicks", load=load(names), uptime_s=3700.0, verdict="skew", calm=False,
        sentence="data skew: container_1_count_3, one of 2 tasks, processes 61 % of the tuples (an even share is 50 %)",
        advice="more tasks will not help: aggregate before the fields grouping, or group by one more field",
        trends={"word": (None, 1.0, 2.0, 3.0)},
        tasks=Tasks(plan_version=7, at=0.0, window_s=10.0, tasks=mine, processes=[]) if tasks else None,
    )  # fmt: skip


def texts(view: View, data: Figures, width: int = 80, height: int = 24, ascii_only: bool = False) -> list[str]:
    return [line.text for line in draw(view, data, Size(width, height), ascii_only)]


def pressed(data: Figures, *keys: str, view: View | None = None) -> View:
    found = view or View()
    for key in keys:
        found = press(found, key, rows_of(found, data))
    return found


KEY = st.one_of(
    st.sampled_from(["up", "down", "pageup", "pagedown", "home", "end", "enter", "esc", "backspace", *"jkgGtsSrx/?h "]),
    st.characters(exclude_characters="q"),
)
HOSTILE = st.text(max_size=30)


@st.composite
def anything(draw_: st.DrawFn) -> Figures:
    """Figures with whatever words and numbers a broken or hostile topology may send."""
    names = tuple(draw_(st.lists(HOSTILE, max_size=6, unique=True)))
    found = load(names, cause=draw_(HOSTILE), state=draw_(st.sampled_from(["RUNNING", "FAILED"])))
    number = st.none() | st.floats(0, 1e18)
    for one in found.components:
        one.emitted_per_s, one.executed_per_s, one.busy_max = draw_(number), draw_(number), draw_(number)
        one.latency_p99_s, one.queue_bytes = draw_(number), draw_(st.none() | st.integers(0, 1 << 62))
        one.up, one.restarts = draw_(st.integers(0, 3)), draw_(st.none() | st.integers(0, 1 << 31))
    if draw_(st.booleans()):
        found.culprits = [
            Culprit(name=draw_(HOSTILE), component=None, task_id=None, queued_bytes=5, since_s=1.0, stmgr="stmgr-1")
        ]
    tasks = [
        task_of(
            name, 1, draw_(number), error=draw_(HOSTILE), exit_reason=draw_(st.none() | HOSTILE), state=draw_(HOSTILE)
        )
        for name in names
    ]
    trends = {name: tuple(draw_(st.lists(number, max_size=5))) for name in names}
    return Figures(
        draw_(HOSTILE), draw_(HOSTILE), load=draw_(st.sampled_from([None, found])), verdict="skew",
        sentence=draw_(HOSTILE), advice=draw_(HOSTILE), losses=draw_(HOSTILE), trends=trends, trouble=draw_(HOSTILE),
        tasks=draw_(st.sampled_from([None, Tasks(plan_version=1, at=0.0, window_s=None, tasks=tasks, processes=[])])),
        stacks=draw_(st.none() | st.tuples(st.just(tasks[0].instance_id if tasks else ""), st.text(max_size=200))),
        log=draw_(st.none() | st.tuples(st.just(tasks[0].instance_id if tasks else ""), st.lists(HOSTILE).map(tuple))),
    )  # fmt: skip


@given(anything(), st.lists(KEY, max_size=12), st.integers(1, 250), st.integers(1, 60), st.booleans())
@settings(max_examples=150, deadline=None)
def test_whatever_is_shown_fills_the_screen_and_no_more(
    data: Figures, keys: list[str], width: int, height: int, ascii_only: bool
) -> None:
    view = pressed(data, *keys)
    lines = draw(view, data, Size(width, height), ascii_only)
    assert len(lines) == height
    for line in lines:
        assert cell_len(line.text) == width
        assert line.text.isprintable(), "nothing that users name may control the terminal"
        assert line.text.isascii() or not ascii_only
        assert "\x1b" not in re.sub(r"\x1b\[[0-9;]*m", "", painted(line, True))


@given(st.lists(KEY, max_size=30))
@settings(max_examples=200, deadline=None)
def test_keys_keep_the_view_whole_and_esc_leads_out(keys: list[str]) -> None:
    data = figures()
    view = pressed(data, *keys)
    names = rows_of(view, data)
    assert not names or 0 <= position(view, names) < len(names)
    assert not view.ended, "only q quits"
    assert len(view.filter) <= 100 and view.scroll >= 0
    out = pressed(data, *["esc"] * 5, view=view)
    assert (out.level, out.filter, out.typing, out.help) == (Level.COMPONENTS, "", False, False)
    assert pressed(data, "q", view=out).ended
    assert wish_of(out) == Wish(), "at the components nothing more is asked for"


@given(
    st.lists(st.none() | st.floats(0, 1e6), max_size=20),
    st.sampled_from(["", *(f"{sign}{column.key}" for column in TASKS for sign in ("", "-"))]),
)
def test_an_order_loses_no_row_and_puts_the_unknown_last(values: list[float | None], sort: str) -> None:
    rows = [task_of("count", number, value, cpu=value) for number, value in enumerate(values)]
    found = ordered(rows, TASKS, sort)
    assert sorted(row.task_id for row in found) == list(range(len(rows)))
    if sort in ("busy", "-busy"):
        known = [row.busy for row in found if row.busy is not None]
        assert known == sorted(known, reverse=sort == "busy")
        assert [row.busy for row in found[len(known) :]] == [None] * (len(rows) - len(known))
    assert sort or found == rows


@given(HOSTILE)
def test_a_filter_only_leaves_out(text: str) -> None:
    data = figures()
    all_, found = rows_of(View(), data), rows_of(View(filter=text), data)
    assert [name for name in all_ if name in found] == found


@given(st.lists(st.none() | st.floats(0, 1e9), max_size=80), st.integers(0, 60))
def test_a_trend_has_a_cell_per_minute_and_the_newest_at_the_right(values: list[float | None], cells: int) -> None:
    found = trend(values, cells)
    assert len(found) == cells
    known = [value for value in values[-cells:] if value is not None] if cells else []
    if known and max(known) > 0:
        assert "█" in found
    if cells and values and values[-1] is None:
        assert found[-1] == " "


@given(anything(), anything(), st.integers(1, 120), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_only_changed_lines_are_written_and_they_suffice(one: Figures, other: Figures, width: int, height: int) -> None:
    before, after = ([painted(line, True) for line in draw(View(), data, Size(width, height))] for data in (one, other))
    written = changes(before, after)
    shown = list(before)
    parts = re.split(r"\x1b\[(\d+);1H", written)
    for place, text in zip(parts[1::2], parts[2::2], strict=True):
        shown[int(place) - 1] = text
    assert shown == after
    assert changes(after, after) == ""


def test_what_is_dropped_upon_backpressure_is_shown() -> None:
    data = figures()
    assert data.load is not None
    full = Culprit(name="container_1_join_6", component="join", task_id=6, queued_bytes=9, since_s=4.0, stmgr="s")
    data = replace(data, load=structs.replace(data.load, dropping=[full], dropped={"join": 1200}))
    shown = [line.rstrip() for line in texts(View(), data)]
    assert "full: container_1_join_6; tuples that do not fit are discarded" in shown
    assert "tuples dropped because of backpressure: 1,200 for join" in shown


def test_the_culprit_and_what_to_do_come_first_on_a_small_terminal() -> None:
    data = figures()
    assert data.load is not None
    data.load.culprits = [
        Culprit(name="container_1_count_3", component="count", task_id=3, queued_bytes=1 << 20, since_s=41.0, stmgr="s")
    ]
    data.load.held = 0.83
    data.load.avoided = [
        Culprit(name="container_1_sort_5", component="sort", task_id=5, queued_bytes=9, since_s=4.0, stmgr="s")
    ]
    shown = texts(View(), data)
    assert any(line.startswith("full: container_1_sort_5; its tuples go to the other tasks of sort") for line in shown)
    assert shown[0].startswith("clicks  RUNNING  8/8 tasks up  1h01m  physical plan 7")
    assert shown[1].startswith("! SKEW data skew: container_1_count_3, one of 2 tasks")
    assert any(line.startswith("next: more tasks will not help") for line in shown)
    assert "spouts held back 83% of the time, now by container_1_count_3 (for 41s, 1MB queued)" in " ".join(
        " ".join(shown).split()
    )
    head = next(line for line in shown if line.startswith("  name"))
    assert head.split() == ["name", "out/s", "in/s", "busy", "queue", "p99", "up", "blkd", "cpu", "last", "minutes"]
    assert any(line.startswith(" !count ") for line in shown), "not by colour alone"
    assert next(line for line in shown if "word" in line and line.startswith(">")).rstrip().endswith("▃▆█")
    assert shown[-1].startswith("q quit") and "? keys" in shown[-1]
    assert "? keys" in texts(pressed(data, "enter"), data)[-1]


def test_a_long_cause_cuts_no_facts() -> None:
    """At 80 columns it ended at "failing for 47 s, given u", and how many tasks were up was not there."""
    data = figures()
    assert data.load is not None
    data.load.state = "DEGRADED"
    data.load.cause = (
        "1 of 4 tasks of work is down, restart 10, next in 24 s, failing for 47 s, restarts stop after 10 min:"
        " ValueError"
    )
    data.load.latency_p99_s, data.load.held = 49.7, 0.83
    data.load.culprits = [
        Culprit(name="container_12_normalise_orders_37", component="n", task_id=3, queued_bytes=1 << 20, since_s=41.0,
                stmgr="s")
    ]  # fmt: skip
    shown = [line.rstrip() for line in texts(View(), data)]
    assert shown[0] == "clicks  DEGRADED  8/8 tasks up  1h01m  physical plan 7  end-to-end p99 49.7s"
    assert " ".join(shown[1:3]) == data.load.cause
    held = "spouts held back 83% of the time, now by container_12_normalise_orders_37 (for 41s, 1MB queued)"
    assert held in " ".join(shown), shown


def test_wide_terminals_show_more_columns() -> None:
    narrow, wide = (
        next(line for line in texts(View(), figures(), width) if line.startswith("  name")) for width in (80, 200)
    )
    assert {"memory", "pend", "rst"} <= set(wide.split()) and "memory" not in narrow


def test_frames_and_what_they_carry_are_shown_of_components_and_tasks() -> None:
    data = figures()
    assert data.load is not None and data.tasks is not None
    for row in (data.load.components[1], *data.tasks.tasks[2:4]):
        row.frames_per_s, row.tuples_per_frame = 987.0, 5.25
    for view in (View(), View(level=Level.TASKS)):
        shown = texts(view, data, 160)
        head = next(line for line in shown if line.startswith("  name"))
        row_ = next(line for line in shown if line[2:].startswith("count"))
        for title, cell in (("frm/s", "987"), ("t/frm", "5.2")):
            end = head.index(title) + len(title)
            assert row_[:end].endswith(" " + cell), title
        assert next(line for line in shown if line[2:].startswith("store")).count(" - ") > 2


def test_enter_goes_from_the_component_to_its_task_and_esc_back() -> None:
    data = figures()
    view = pressed(data, "down", "enter")
    assert (view.level, view.component) == (Level.TASKS, "count") and wish_of(view) == Wish("count")
    assert rows_of(view, data) == ["container_1_count_4", "container_1_count_3"], "the busiest first"
    assert not any("word" in line for line in texts(view, data))
    assert any("tasks of count  2  by busy" in line for line in texts(view, data))
    assert any("by busy, reversed" in line for line in texts(pressed(data, "r", view=view), data))
    view = pressed(data, "enter", view=view)
    assert (view.level, view.task) == (Level.TASK, "container_1_count_4")
    shown = texts(view, data)
    assert any("busy      12%" in line for line in shown)
    assert any("heron logs prod clicks container_1_count_4 -f" in line for line in shown)
    assert wish_of(view) == Wish("count", log="container_1_count_4")
    assert any("log      loading" in line for line in shown)
    view = pressed(data, "x", view=view)
    assert wish_of(view) == Wish("count", ("container_1_count_4", 1))
    assert any("stacks   loading" in line for line in texts(view, data))
    view = pressed(data, "esc", view=view)
    assert view.level is Level.TASKS and view.chosen_task == "container_1_count_4"
    view = pressed(data, "esc", view=view)
    assert view.level is Level.COMPONENTS and view.chosen == "count"


def test_stacks_are_shown_and_scroll() -> None:
    data = figures()
    view = pressed(data, "down", "enter", "enter", "x")
    stacks = "\n".join(f"frame {number}" for number in range(50))
    data = Figures(**{name: getattr(data, name) for name in data.__slots__} | {"stacks": (view.task, stacks)})
    assert any(line.startswith("frame 0 ") for line in texts(view, data))
    shown = texts(pressed(data, "G", view=view), data)
    assert any(line.startswith("frame 49 ") for line in shown) and not any(
        line.startswith("frame 0 ") for line in shown
    )
    other = pressed(data, "esc", "down", "enter", view=view)
    assert not any("frame" in line for line in texts(other, data)), "those of another task are not shown"


def test_the_end_of_the_log_is_shown_and_scrolls_back() -> None:
    data = figures()
    view = pressed(data, "down", "enter", "enter")
    lines = tuple(f"12:00:00 INFO  line {number}" for number in range(100))
    data = replace(data, log=(view.task, lines))
    shown = texts(view, data)
    assert shown[-2].startswith("12:00:00 INFO  line 99 ") and not any("line 0 " in line for line in shown)
    back = texts(pressed(data, "k", "k", view=view), data)
    assert back[-2].startswith("12:00:00 INFO  line 97 ")
    assert any("line 0 " in line for line in texts(pressed(data, "g", view=view), data))
    assert texts(pressed(data, "g", "G", view=view), data) == shown
    stacks = pressed(data, "x", view=view)
    assert not any("line 99" in line for line in texts(stacks, data))
    assert texts(pressed(data, "l", view=stacks), data) == shown
    other = pressed(data, "esc", "down", "enter", view=view)
    assert not any("line 99" in line for line in texts(other, data)), "that of another task is not shown"
    assert any("log, nothing yet" in line for line in texts(view, replace(data, log=(view.task, ()))))


def test_the_filter_is_typed_kept_and_ended() -> None:
    data = figures()
    view = pressed(data, "/", *"SORT")
    assert view.typing and rows_of(view, data) == ["sort-by-user"]
    assert texts(view, data)[-1].startswith("/SORT_")
    view = pressed(data, "enter", view=view)
    assert not view.typing and any("with 'SORT', of 4" in line for line in texts(view, data))
    assert rows_of(pressed(data, "esc", view=view), data) == list(NAMES)
    assert pressed(data, "/", "q").filter == "q" and not pressed(data, "/", "q").ended


def test_many_rows_scroll_with_the_chosen_one() -> None:
    data = figures(tuple(f"bolt-{number:03}" for number in range(300)), tasks=False)
    view = pressed(data, "end")
    shown = texts(view, data)
    assert any(line.startswith(">") and "bolt-299" in line for line in shown)
    assert any(re.match(r"components  28\d-300 of 300", line) for line in shown)


def test_every_key_of_the_help_is_shown() -> None:
    shown = texts(pressed(figures(), "?"), figures(), 100)
    assert all(any(text in line for line in shown) for _, text in KEYS)


def test_what_terminals_send() -> None:
    assert keys_of(b"\x1b[A\x1b[B\x1bOH\x1b[6~\x1b") == ["up", "down", "home", "pagedown", "esc"]
    assert keys_of("jé\r\x7f".encode()) == ["j", "é", "enter", "backspace"]
    assert keys_of(b"\x1b[200~x\x1b[201~\x00") == ["x"], "unknown sequences are no keys"


@given(st.binary(max_size=40))
def test_no_input_breaks_the_keys(data: bytes) -> None:
    assert all(len(key) == 1 or key.isalpha() for key in keys_of(data))


def test_figures_that_are_old_say_so() -> None:
    data = figures()
    old = Figures(**{name: getattr(data, name) for name in data.__slots__} | {"trouble": "no answer for 7s: it ended"})
    assert any("no answer for 7s: it ended" in line for line in texts(View(), old))
    assert any("count" in line for line in texts(View(), old)), "what is known stays"


def test_a_number_has_at_most_five_characters() -> None:
    assert [short(one) for one in (None, 0, 950, 12_345, 1_860_000)] == ["-", "0", "950", "12.3k", "1.86M"]
    assert {column.key for column in COMPONENTS} >= {"out", "in", "busy", "blocked", "queue", "p99"}
