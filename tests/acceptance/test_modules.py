"""Which modules of the product each everyday process imports: whoever does not use a feature pays nothing for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import wait_for

LISTS = Path(__file__).with_name("modules.txt")
RUN = """
import atexit, os, sys
out, owner, sys.argv[1:] = sys.argv[1], os.getpid(), sys.argv[2:]
def dump():
    if os.getpid() == owner:
        with open(out, "w") as file:
            file.write("\\n".join(sys.modules))
atexit.register(dump)
from heronpy.cli.start import main
sys.exit(main())
"""
TOPOLOGY = """
import os
import sys
from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Grouping
from heronpy.api.topology import TopologyBuilder

class Once(Spout):
    outputs = ["n"]
    def next_tuple(self):
        self.emit([1])

class Dump(Bolt):
    def initialize(self, config, context):
        self.out = config["out"]
    def process(self, tup):
        with open(self.out + ".new", "w") as file:
            file.write("\\n".join(sys.modules))
        os.replace(self.out + ".new", self.out)

builder = TopologyBuilder(sys.argv[1])
spout = builder.add_spout("once", Once, par=1)
builder.add_bolt("dump", Dump, par=1, inputs={spout: Grouping.SHUFFLE}, config={"out": sys.argv[2]})
builder.build_and_submit()
"""
#: Modules of others that take long to import, or that a process does not need.
HEAVY = ("asyncio", "click", "pickle", "psutil", "pyarrow", "numpy", "ssl", "uvloop", "yaml", "zmq", "httpx", "uvicorn")
PRODUCT = ("heronpy", "instance", "stmgr")


def _listed(process: str, modules: list[str]) -> str:
    """A line for each package: the process, the package, and its modules."""
    packages: dict[str, list[str]] = {}
    for name in modules:
        if name.split(".")[0] in PRODUCT:
            package, _, module = name.rpartition(".")
            packages.setdefault(package, []).append(module)
    lines = [f"{process} {package or '-'}: {' '.join(sorted(found))}" for package, found in sorted(packages.items())]
    return "\n".join([*lines, f"{process} others: {' '.join(sorted(set(HEAVY).intersection(modules)))}"])


def _heron(out: Path, *words: str) -> list[str]:
    subprocess.run([sys.executable, "-c", RUN, str(out), *words], check=True, capture_output=True, timeout=60)
    return out.read_text().split()


def test_each_process_imports_what_its_list_has(home: Path, tmp_path: Path) -> None:
    """HERON_WRITE_LISTS=1 writes the lists again. Look at the difference before you commit it."""
    program, dumped = tmp_path / "program.py", tmp_path / "task"
    program.write_text(TOPOLOGY)
    out = tmp_path / "modules"
    found = [_listed("help", _heron(out, "--help"))]
    try:
        found.append(_listed("submit", _heron(out, "submit", "local", str(program), "modules", str(dumped))))
        wait_for(dumped.exists, 60, "the bolt to write its modules")
        found.append(_listed("task", dumped.read_text().split()))
    finally:
        found.append(_listed("kill", _heron(out, "kill", "local", "modules")))
    guardian = "import sys, heronpy.scheduler.__main__, heronpy.scheduler.guardian; print('\\n'.join(sys.modules))"
    result = subprocess.run([sys.executable, "-c", guardian], check=True, capture_output=True, text=True, timeout=60)
    found.append(_listed("guardian", result.stdout.split()))
    text = "\n".join(found) + "\n"
    if os.environ.get("HERON_WRITE_LISTS"):
        LISTS.write_text(text)
    assert text.splitlines() == LISTS.read_text().splitlines()
