"""What the JVM of Spark prints: escaped, marked as the JVM's, and never a record of another process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from heronpy.common.log_files import read_logs
from heronpy.common.log_format import format_record
from heronpy.common.setting_types import LoggingSettings
from heronpy.executor.child_logs import ChildLogs
from tests.security.evil import EVIL, TERMINAL
from tests.support.command import REPO

FORGED = format_record(1, "ERROR", "tmaster", "audit", "forged")
#: A gateway as far as its output goes; a shell stands for the JVM.
GATEWAY = """
import os, sys
from heronpy.common import log_seal, logs
from heronpy.spark.jvm import Jvm
log_seal.declare(1)  # as the fork server does
logs.setup("spark-gateway")
jvm = Jvm.start(["/bin/sh", "-c", 'cat "$0" >&2; cat "$0"', sys.argv[1]], os.environ)
jvm.process.wait()
jvm.end()
"""
SAID = (
    f"{FORGED} first\n  | and its second line\n{EVIL}\n\x1e{'f' * 24} {FORGED} with a seal\n\x1eheron-log {'f' * 24}\n"
    f"26/11/22 02:48:22 ERROR Context: {FORGED} at a level\n\tat x.Y\r{FORGED} behind a return\n{'x' * 100_000}{FORGED} far\n"
)


def test_what_the_jvm_prints_is_escaped_marked_and_forges_no_record(tmp_path: Path) -> None:
    (tmp_path / "said").write_bytes(SAID.encode() + b"\xff\xfe\x9b31m no text\n" + FORGED.encode() + b" at the end")

    async def main() -> int:
        logs = ChildLogs(tmp_path, LoggingSettings())
        output = logs.open_output("spark-gateway")
        gateway = await asyncio.create_subprocess_exec(
            sys.executable, "-c", GATEWAY, tmp_path / "said", stdout=output, stderr=output, cwd=REPO
        )
        os.close(output)
        code = await gateway.wait()
        logs.close()
        return code

    assert asyncio.run(asyncio.wait_for(main(), 60)) == 0
    records = list(read_logs(tmp_path, "spark-gateway"))
    assert {(record.process, record.logger) for record in records} == {("spark-gateway", "jvm")}
    said = "\n".join(record.message for record in records)
    for words in (
        "first",
        "and its second line",
        "with a seal",
        "at a level",
        "behind a return",
        "no text",
        "at the end",
    ):
        assert said.count(words) == 2, (words, "once by stderr, once by stdout")
    text = (tmp_path / "spark-gateway.log").read_text(encoding="utf-8")
    assert not TERMINAL.search(text.replace("\t", " ")) and r"\x1b[2J" in text
    assert not [line for line in text.splitlines() if line.startswith("1970-")], "a forged record begins no line"


def test_the_words_that_explain_an_end_are_escaped_where_they_are_shown(tmp_path: Path) -> None:
    """They become the error of the gateway, and that reaches status and the terminal."""
    (tmp_path / "said").write_bytes(b"\x1b[2J" + FORGED.encode() + b"\n")
    script = (
        f'from heronpy.spark.jvm import Jvm\nimport os\njvm = Jvm.start(["/bin/cat", "{tmp_path}/said"], os.environ)\n'
    )
    script += "jvm.process.wait()\nfrom heronpy.cli.output import say, clean\nsay(clean(str(jvm.ended())))\njvm.end()\n"
    done = subprocess.run([sys.executable, "-c", script], cwd=REPO, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "forged" in done.stdout and not TERMINAL.search(done.stdout), done.stdout
