"""What `heron submit` hands on to tasks, and what it leaves when it is interrupted."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
from pathlib import Path

import pytest

from tests.support.command import EXAMPLES, Heron

WORD_COUNT = EXAMPLES / "word_count.py"
PROGRAM = Path(__file__).parent / "programs" / "arguments.py"


def test_tasks_have_the_arguments_of_the_submit(heron: Heron, out: Path) -> None:
    here = out / "here"
    here.mkdir()
    shutil.copy(PROGRAM, out / "my program.py")
    heron("submit", "local", "../my program.py", "renamed", "--greeting", "hello world", cwd=here).ok()
    given = r"\['renamed', '--greeting', 'hello world'\]"
    heron.when_logged("renamed", f"spout has {given}, greets 'hello world'", "*words*")
    heron.when_logged("renamed", rf"bolt has {given} of '\.\./my program\.py'", "*count*")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGHUP])
@pytest.mark.heavy
def test_interrupting_the_wait_detaches_and_says_how_to_come_back(heron: Heron, signum: int) -> None:
    code, out, err = interrupted_wait(heron, signum)
    assert code == 130
    assert re.fullmatch(r"  tuples: acked [0-9,]+, failed 0, replayed 0, dead letters 0, lost 0", out.splitlines()[-1])
    assert "topology 'kept' keeps running" in err and "Traceback" not in err
    commands = [line.split(":", 1)[1].strip() for line in err.splitlines()[1:]]
    assert commands == ["heron status local kept", "heron top local kept", "heron kill local kept"]
    assert heron.status("kept")["lifecycle"] == "RUNNING"
    heron(*shlex.split(commands[2])[1:]).ok()


def test_kill_on_interrupt_ends_the_topology_as_well(heron: Heron) -> None:
    code, out, err = interrupted_wait(heron, signal.SIGINT, "--kill-on-interrupt")
    assert out.splitlines()[-1].startswith("  tuples: acked ")
    assert code == 130 and "interrupted: removing topology 'kept'" in err
    assert heron.names() == []
    heron.check_clean()
    assert err.rstrip().endswith("topology 'kept' was removed; its logs: heron logs local kept")
    heron("logs", "local", "kept").ok()
    heron("submit", "local", WORD_COUNT, "kept", "--kill-on-interrupt").refused(2, "--kill-on-interrupt needs --wait")


def interrupted_wait(heron: Heron, signum: int, *flags: str) -> tuple[int, str, str]:
    """Exit code, last output and stderr of a `submit --wait` that is interrupted once it waits."""
    submit = heron.start("submit", "local", WORD_COUNT, "kept", "--wait", *flags)
    assert submit.stdout is not None
    try:
        lines = iter(submit.stdout.readline, "")
        assert any("RUNNING |" in line for line in lines)
        submit.send_signal(signum)
        out, err = submit.communicate(timeout=60)
    finally:
        submit.kill()
        submit.wait()
    return submit.returncode, out, err
