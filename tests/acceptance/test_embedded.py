"""`heronpy.submit` and `heronpy.status` from a script, and from a session whose classes have no file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import Heron

HELPER = "def shout(word):\n    return word.upper()\n"

CLASSES = """
import dataclasses
import json

import heronpy
from heronpy import Bolt, Grouping, Spout, TopologyBuilder
from heronpy.common.errors import HeronError
import helper

LIMIT = 20

@dataclasses.dataclass
class Word:
    text: str

def louder(word):
    return Word(helper.shout(word.text))

class Words(Spout):
    outputs = ["word"]
    def initialize(self, config, context):
        self.left = LIMIT
    def next_tuple(self):
        if not self.left:
            self.end_of_input()
            return
        self.left -= 1
        self.emit([Word(f"w{self.left}")])

class Store(Bolt):
    def initialize(self, config, context):
        if config.get("bad"):
            raise ZeroDivisionError("bad start")
        self.path = config["out"]
    def process(self, tup):
        assert isinstance(tup.values[0], Word)
        with open(self.path, "a") as file:
            file.write(louder(tup.values[0]).text + "\\n")

def build(name, out, **config):
    builder = TopologyBuilder(name)
    words = builder.add_spout("words", Words, par=1)
    builder.add_bolt("store", Store, par=2, inputs={words: Grouping.SHUFFLE})
    builder.set_config({"out": out, **config})
    return builder
"""

USE = """
with heronpy.submit(build("words", "OUT"), settings={"heron.logging.level": "INFO"}) as running:
    ended = running.wait(60)
    assert (ended["lifecycle"], ended["losses"]) == ("FINISHED", None)
    assert running.status()["topology"] == heronpy.status("words")["topology"] == "words"
    assert running.exceptions() == [] and (running.logs / "tmaster.log").is_file()
try:
    running.status()
except HeronError as error:
    assert "no topology 'words'" in str(error)
running.kill()  # once more does nothing
try:
    heronpy.submit(build("bad", "OUT", bad=True))
except HeronError as error:
    assert "ZeroDivisionError: bad start" in str(error) and "in initialize" in str(error), error
else:
    raise AssertionError("a topology that cannot start was taken for running")
print(json.dumps({"done": True}))
"""

LOSSES = """
import warnings

class Picky(Store):
    def process(self, tup):
        if tup.values[0].text == "w7":
            raise ValueError("not this one")
        super().process(tup)

builder = TopologyBuilder("picky")
words = builder.add_spout("words", Words, par=1)
builder.add_bolt("store", Picky, par=1, inputs={words: Grouping.SHUFFLE})
builder.set_config({"out": "OUT", "topology.reliability.mode": "ATMOST_ONCE"})
with heronpy.submit(builder) as running:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ended = running.wait(60)
    assert (ended["lifecycle"], ended["losses"]) == ("FINISHED", "1"), ended
    assert running.status()["losses"] == "1"
    [told] = [one for one in caught if issubclass(one.category, heronpy.ResultWarning)]
    assert "abandoned tuples (1 dead letter, 0 lost): its results are not complete" in str(told.message)
    assert told.filename == "<stdin>", "the line that waits"
    warnings.simplefilter("error", heronpy.ResultWarning)
    try:
        running.wait(60)
    except heronpy.ResultWarning:
        print(json.dumps({"done": True}))
"""

REFUSED = """
import threading
LOCK = threading.Lock()

class Locked(Bolt):
    def process(self, tup):
        with LOCK:
            pass

def refusal(topology, **options):
    try:
        heronpy.submit(topology, **options)
    except HeronError as error:
        return str(error)
    raise AssertionError("was not refused")

def add(cls):
    builder = TopologyBuilder("refused")
    words = builder.add_spout("words", Words, par=1)
    builder.add_bolt("more", cls, par=1, inputs=[words])
    return builder

def local():
    class Inner(Bolt):
        def process(self, tup):
            pass
    return add(Inner)

told = refusal(add(Locked))
assert "'Locked' cannot be sent to the tasks" in told and "lock" in told, told
assert "defined inside a function" in refusal(local())
assert "is not a topology" in refusal(7)
assert "did you mean 'local'?" in refusal(build("x", "OUT"), cluster="lcoal")
assert "did you mean" in refusal(build("x", "OUT"), settings={"heron.logging.levl": "INFO"})
assert "at least one Spout" in refusal(TopologyBuilder("empty"))
print(json.dumps({"done": True}))
"""


def python(heron: Heron, folder: Path, text: str, *words: str) -> None:
    done = subprocess.run(
        [sys.executable, *words], input=text, cwd=folder, env=heron.env, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout) == {"done": True}  # nothing else is printed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text(HELPER)
    return tmp_path


def check(out: Path) -> None:
    assert sorted(out.read_text().split()) == sorted(f"W{number}" for number in range(20))


def test_classes_that_have_no_file_come_by_value(heron: Heron, folder: Path) -> None:
    python(heron, folder, (CLASSES + USE).replace("OUT", str(folder / "out")), "-")
    check(folder / "out")
    assert heron.names() == []


def test_the_end_of_a_topology_says_that_its_result_is_not_complete(heron: Heron, folder: Path) -> None:
    python(heron, folder, (CLASSES + LOSSES).replace("OUT", str(folder / "out")), "-")
    assert len((folder / "out").read_text().split()) == 19
    assert heron.names() == []


@pytest.mark.heavy
def test_a_script_submits_itself(heron: Heron, folder: Path) -> None:
    guarded = 'if __name__ == "__main__":\n' + "".join(f"    {line}\n" for line in USE.splitlines())
    (folder / "job.py").write_text((CLASSES + guarded).replace("OUT", str(folder / "out")))
    python(heron, folder, "", "job.py")
    check(folder / "out")
    assert heron.names() == []


def test_what_cannot_be_submitted_says_why(heron: Heron, folder: Path) -> None:
    python(heron, folder, (CLASSES + REFUSED).replace("OUT", str(folder / "out")), "-")
    assert heron.names() == []
