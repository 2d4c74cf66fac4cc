"""The state of `heron top`: figures of the topology, the view, and the effect of each key. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from heronpy.cli.look.full_screen.rows import COMPONENTS, TASKS, fits, ordered
from heronpy.common.ids import short_name
from heronpy.views.load import Load, Tasks

FILTER_MAX = 100
_PAGE = 10


@dataclass(frozen=True, slots=True)
class Figures:
    """The topology master's newest answer of each kind."""

    #: The target as given on the command line, for suggested commands.
    cluster: str
    topology: str
    #: None: no answer yet.
    load: Load | None = None
    #: Seconds since the topology was submitted.
    uptime_s: float = 0.0
    #: The doctor's leading finding: verdict, sentence, next step; empty if unknown.
    verdict: str = ""
    sentence: str = ""
    advice: str = ""
    #: Whether that finding needs no action.
    calm: bool = True
    #: Tuples missing from the result, as text; empty if none are missing.
    losses: str = ""
    #: One line for each pipeline of work units.
    units: tuple[str, ...] = ()
    #: Component -> its tuples per second in each minute, oldest first; None where unknown.
    trends: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    #: None: not requested.
    tasks: Tasks | None = None
    #: The task whose stacks were requested last, with their text or the reason why they are unavailable.
    stacks: tuple[str, str] | None = None
    #: The task whose log was requested last, with its last lines, oldest first, or the reason why it is unavailable.
    log: tuple[str, tuple[str, ...]] | None = None
    #: Why the figures are old, as one sentence; empty if they are up to date.
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Wish:
    """The data that a view needs in addition to the figures by component."""

    #: Component whose tasks' figures are needed; "" for all tasks, None for no tasks.
    component: str | None = None
    #: The instance whose stacks are needed, and how often they were requested; None if not requested.
    stacks: tuple[str, int] | None = None
    #: The instance whose log is needed; "" for no log.
    log: str = ""


class Level(Enum):
    """What the view shows: all components, the tasks of one or all components, or one task."""

    COMPONENTS = "components"
    TASKS = "tasks"
    TASK = "task"


@dataclass(frozen=True, slots=True)
class View:
    """The part of the topology that the user sees."""

    level: Level = Level.COMPONENTS
    #: The component whose tasks are shown; "" for all.
    component: str = ""
    #: The instance that is shown at level TASK.
    task: str = ""
    #: Names of the chosen rows: a component, and an instance.
    chosen: str = ""
    chosen_task: str = ""
    #: Key of the sort column, with a "-" before it for reversed order; "" for the topology's order.
    sort: str = ""
    sort_tasks: str = "busy"
    filter: str = ""
    #: Whether the filter is being typed.
    typing: bool = False
    help: bool = False
    #: Whether the figures are frozen.
    frozen: bool = False
    #: First shown line of the stacks, or number of log lines below the shown lines.
    scroll: int = 0
    #: How often stacks of this task were requested.
    asked: int = 0
    #: Whether the program should end.
    ended: bool = False


KEYS = (
    ("up down j k", "choose a row; also PgUp, PgDn, Home, End"),
    ("Enter", "the tasks of the component; the figures of the task"),
    ("Esc", "back; leave the filter"),
    ("t", "the tasks of all components; back to the components"),
    ("s S", "sort by the next column, or the previous one"),
    ("r", "reverse the order"),
    ("/", "show only rows whose name has these words; Enter keeps the filter, Esc clears it"),
    ("x l", "for a task: the stacks of its threads; the end of its log"),
    ("Space", "freeze the display; continue"),
    ("? h", "this help"),
    ("q", "quit"),
)


def rows_of(view: View, figures: Figures) -> list[str]:
    """Return the names of the rows that the view shows, in the same order."""
    if view.level is Level.COMPONENTS:
        loads = figures.load.components if figures.load is not None else []
        return [row.name for row in ordered(loads, COMPONENTS, view.sort) if fits(view.filter, row.name)]
    if view.level is Level.TASK or figures.tasks is None:
        return []
    mine = [row for row in figures.tasks.tasks if view.component in ("", row.component)]
    return [row.instance_id for row in ordered(mine, TASKS, view.sort_tasks) if fits(view.filter, row.instance_id)]


def wish_of(view: View) -> Wish:
    """Return the data that the view needs from the topology master."""
    if view.level is Level.COMPONENTS:
        return Wish()
    if view.level is Level.TASKS:
        return Wish(view.component)
    return Wish(view.component, (view.task, view.asked)) if view.asked else Wish(view.component, log=view.task)


def position(view: View, names: Sequence[str]) -> int:
    """Return the index of the chosen row, or 0 if this row no longer exists."""
    chosen = view.chosen if view.level is Level.COMPONENTS else view.chosen_task
    return names.index(chosen) if chosen in names else 0


def press(view: View, key: str, names: Sequence[str]) -> View:
    """Return the view after a key press; `names` is the result of `rows_of`."""
    if view.typing:
        return _typed(view, key)
    if view.help:
        return replace(view, help=False, ended=key == "q")
    if key in _MOVES:
        return _moved(view, _MOVES[key], names)
    if key == "enter":
        return _entered(view, names)
    if key in ("esc", "backspace"):
        return _back(view)
    if key == "t" and view.level is Level.COMPONENTS:
        return replace(view, level=Level.TASKS, component="", chosen_task="", filter="")
    if key == "t":
        return replace(view, level=Level.COMPONENTS, filter="", asked=0, scroll=0)
    if key in ("s", "S", "r"):
        return _sorted(view, key)
    if key == "x" and view.level is Level.TASK:
        return replace(view, asked=view.asked + 1, scroll=0)
    if key == "l" and view.level is Level.TASK:
        return replace(view, asked=0, scroll=0)
    if key == "/" and view.level is not Level.TASK:
        return replace(view, typing=True)
    if key in ("?", "h"):
        return replace(view, help=True)
    if key == " ":
        return replace(view, frozen=not view.frozen)
    return replace(view, ended=True) if key == "q" else view


#: How many rows a key moves; the largest numbers go to the ends.
_END = 1 << 30
_MOVES = {
    "up": -1, "k": -1, "down": 1, "j": 1, "pageup": -_PAGE, "pagedown": _PAGE, "home": -_END, "g": -_END, "end": _END,
    "G": _END,
}  # fmt: skip


def _moved(view: View, by: int, names: Sequence[str]) -> View:
    if view.level is Level.TASK:
        # Stacks are read from the beginning, a log from the end.
        return replace(view, scroll=min(max(view.scroll + (by if view.asked else -by), 0), _END))
    if not names:
        return view
    name = names[min(max(position(view, names) + by, 0), len(names) - 1)]
    return replace(view, chosen=name) if view.level is Level.COMPONENTS else replace(view, chosen_task=name)


def _entered(view: View, names: Sequence[str]) -> View:
    if not names:
        return view
    name = names[position(view, names)]
    if view.level is Level.COMPONENTS:
        return replace(view, level=Level.TASKS, component=name, chosen=name, chosen_task="", filter="")
    return replace(view, level=Level.TASK, task=name, chosen_task=name, asked=0, scroll=0)


def _back(view: View) -> View:
    if view.level is Level.TASK:
        return replace(view, level=Level.TASKS, asked=0, scroll=0)
    if view.filter:
        return replace(view, filter="")
    return replace(view, level=Level.COMPONENTS)


def _typed(view: View, key: str) -> View:
    if key == "enter":
        return replace(view, typing=False)
    if key == "esc":
        return replace(view, typing=False, filter="")
    if key == "backspace":
        return replace(view, filter=view.filter[:-1])
    if len(key) == 1 and key.isprintable():
        return replace(view, filter=(view.filter + key)[:FILTER_MAX])
    return view


def _sorted(view: View, key: str) -> View:
    if view.level is Level.TASK:
        return view
    sort, columns = (
        (view.sort, [column.key for column in COMPONENTS])
        if view.level is Level.COMPONENTS
        else (view.sort_tasks, [column.key for column in TASKS])
    )
    if key == "r":
        # The topology's order cannot be reversed.
        sort = sort[1:] if sort.startswith("-") else f"-{sort}" if sort else ""
    else:
        keys = ["", *columns]
        step = 1 if key == "s" else -1
        sort = keys[(keys.index(sort.removeprefix("-")) + step) % len(keys)]
    return replace(view, sort=sort) if view.level is Level.COMPONENTS else replace(view, sort_tasks=sort)


_KEY = re.compile(
    rb"\x1b\[(?P<csi>[0-9;?]*[ -/]*[@-~])|\x1bO(?P<ss3>[A-Za-z])|(?P<esc>\x1b)|(?P<text>[^\x1b]+)", re.DOTALL
)
_NAMED = {
    b"A": "up", b"B": "down", b"H": "home", b"F": "end", b"5~": "pageup", b"6~": "pagedown", b"1~": "home",
    b"7~": "home", b"4~": "end", b"8~": "end",
}  # fmt: skip
_PLAIN = {"\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace", "\x1a": "suspend", "\x0c": "redraw"}


def keys_of(data: bytes) -> list[str]:
    """Return the keys in a terminal's input, as characters or names such as `up`; unknown sequences are dropped."""
    found: list[str] = []
    for match in _KEY.finditer(data):
        named = _NAMED.get(match["csi"] or match["ss3"] or b"")
        if named is not None:
            found.append(named)
        elif match["esc"]:
            found.append("esc")
        elif match["text"]:
            text = match["text"].decode(errors="ignore")
            found += [_PLAIN.get(one, one) for one in text if one in _PLAIN or one.isprintable()]
    return found


def title_of(view: View) -> str:
    """Return the title of the table, such as `components` or `tasks of count`."""
    if view.level is Level.COMPONENTS:
        return "components"
    if view.level is Level.TASK:
        return f"task {short_name(view.task)}"
    return f"tasks of {view.component}" if view.component else "tasks"
