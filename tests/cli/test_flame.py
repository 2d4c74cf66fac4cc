"""Flame graphs and speedscope files of given stacks."""

from __future__ import annotations

import json
from xml.etree import ElementTree

from heronpy.cli.look.flame import flame_graph, speedscope

ROWS = [
    (("main", "f (a/b.py:1)", "g<x> (a/b.py:2)"), 3.0),
    (("main", "f (a/b.py:1)"), 1.0),
    (("other",), 4.0),
]


def boxes(text: str) -> dict[str, float]:
    """Title of each box to its width."""
    space = "{http://www.w3.org/2000/svg}"
    root = ElementTree.fromstring(text)
    return {
        group.findtext(f"{space}title", "").rpartition(": ")[0]: float(group.find(f"{space}rect").get("width"))  # type: ignore[union-attr, arg-type]
        for group in root.iter(f"{space}g")
    }


def test_the_width_of_a_box_is_its_share() -> None:
    found = boxes(flame_graph("wc <count>", ROWS))
    whole = found["all"]
    assert {name: round(width / whole, 3) for name, width in found.items()} == {
        "all": 1.0,
        "main": 0.5,
        "f (a/b.py:1)": 0.5,
        "g<x> (a/b.py:2)": 0.375,
        "other": 0.5,
    }


def test_boxes_too_narrow_to_see_are_left_out_and_nothing_at_all_is_a_picture_too() -> None:
    assert "tiny" not in flame_graph("t", [*ROWS, (("tiny",), 0.0001)])
    assert boxes(flame_graph("t", [])) == {}


def test_speedscope_has_every_stack_with_its_weight() -> None:
    found = json.loads(speedscope("wc", ROWS))
    frames, profile = found["shared"]["frames"], found["profiles"][0]
    stacks = [[frames[number]["name"] for number in sample] for sample in profile["samples"]]
    assert stacks == [["main", "f", "g<x>"], ["main", "f"], ["other"]]
    assert profile["weights"] == [3.0, 1.0, 4.0] and profile["endValue"] == 8.0
    assert frames[1] == {"name": "f", "file": "a/b.py", "line": 1}
