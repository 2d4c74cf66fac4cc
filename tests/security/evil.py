"""A program whose names, prints, log calls, tuples and exceptions try to act on terminals and logs."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.user_programs import PRELUDE

#: Line breaks of every kind, a forged record, colours, a cleared screen, a title, text that runs backwards.
EVIL = (
    "a\r2026-01-01T00:00:00.000+0000 INFO  tmaster [x] forged\n2026-01-01T00:00:00.000+0000 INFO  tmaster [x] forged"
    "\u2028forged\u2029\x85\x0b\x0c\x1b[31mred\x1b[2J\x1b]0;title\x07\x9b31m\u202ebackwards\x00\x7f end"
)
#: Characters that control a terminal, end a line or reorder text.
TERMINAL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

_BODY = """
import logging

EVIL = {evil!r}


class Words(Numbers):
    outputs = ["n"]

    def next_tuple(self):
        if self.n >= 3:
            print("the last word")
            self.end_of_input()
            return
        self.n += 1
        print(EVIL)
        logging.getLogger(EVIL).warning("%s", EVIL)
        self.emit([EVIL])


class Refuse(Bolt):
    def process(self, tup):
        raise RuntimeError(EVIL)


def main():
    builder = TopologyBuilder({topology!r})
    words = builder.add_spout({component!r}, Words, par=1)
    builder.add_bolt("sink", Refuse, par=1, inputs={{words: Grouping.SHUFFLE}})
    builder.build_and_submit()


main()
"""


def program(folder: Path, topology: str = "wordy", component: str = "words") -> Path:
    path = folder / "evil.py"
    body = _BODY.format(evil=EVIL, topology=topology, component=component)
    path.write_text(PRELUDE + body, encoding="utf-8")
    return path
