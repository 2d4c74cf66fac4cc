"""Ctrl-C while `heron` starts: it ends, and no traceback is printed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from heronpy.procs import interrupts
from tests.support.command import REPO
from tests.support.waiting import wait_for

SCRIPT = REPO / "scripts" / "heron"
#: Runs `heron` and interrupts it once the module named first is looked for.
PROGRAM = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

wanted = sys.argv.pop(1)
sys.meta_path.insert(0, Interrupts())
from heronpy.cli.start import main
sys.exit(main())
"""


def run(home: Path, *argv: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "HERON_HOME": str(home)}
    return subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("module", "codes"),
    [
        ("heronpy.cli.main", (-2,)),
        ("click", (-2,)),
        ("inspect", (-2,)),
        ("heronpy.cli.verbs.look", (-2,)),
        ("heronpy.cli.look.topologies", (130,)),
        ("heronpy.statemgr.localfs", (130,)),
        ("zlib", (-2, 130)),
    ],
)
def test_an_interrupted_import_prints_no_traceback(tmp_path: Path, module: str, codes: tuple[int, ...]) -> None:
    command = run(tmp_path, sys.executable, "-c", PROGRAM, module, "list", "local")
    out, err = command.communicate(timeout=60)
    assert command.returncode in codes, f"{command.returncode}: {out}{err}"
    assert "Traceback" not in err and "Exception ignored" not in err, err
    assert err.strip() == ("error: interrupted" if command.returncode == 130 else "")


def test_an_interrupt_at_any_time_prints_no_traceback_of_ours(tmp_path: Path) -> None:
    """What the interpreter says while it starts is its own, until the script has told it what Ctrl-C does."""
    told = next(number for number, line in enumerate(SCRIPT.read_text().splitlines(), 1) if "_signal.signal(" in line)
    for delay_ms in range(0, 201, 5):
        command = run(tmp_path, sys.executable, str(SCRIPT), "list", "local")
        time.sleep(delay_ms / 1000)  # the moment is what is tested
        command.send_signal(signal.SIGINT)
        _, err = command.communicate(timeout=60)
        lines = [int(line) for line in re.findall(rf'File "{re.escape(str(SCRIPT))}", line (\d+)', err)]
        assert "heronpy/" not in err and max(lines, default=0) <= told, f"after {delay_ms} ms: {err}"


def test_the_command_can_be_interrupted_once_it_works(tmp_path: Path) -> None:
    """The script has given the signal its default effect; a verb that begins takes it back, so that it cleans up."""
    words = [str(SCRIPT), "list", "local"]
    program = PROGRAM.replace(
        "from heronpy.cli.start import main\nsys.exit(main())",
        'import runpy\nrunpy.run_path(sys.argv[0], run_name="__main__")',
    )
    program = program.replace("wanted = sys.argv.pop(1)", "wanted = sys.argv.pop(1); sys.argv.pop(0)")
    command = run(tmp_path, sys.executable, "-c", program, "heronpy.cli.look.topologies", *words)
    _, err = command.communicate(timeout=60)
    assert (command.returncode, err.strip()) == (130, "error: interrupted")


def test_who_ignores_the_signal_goes_on_ignoring_it(tmp_path: Path) -> None:
    ignored = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.executable, sys.argv[1:])"
    )
    words = (sys.executable, "-c", ignored, sys.executable, "-c", PROGRAM, "click", "list", "local")
    command = run(tmp_path, *words)
    out, err = command.communicate(timeout=60)
    assert (command.returncode, err) == (0, ""), out


def test_the_tests_can_interrupt_although_their_caller_ignores_the_signal() -> None:
    """As in a job in the background: their processes would inherit that."""
    program = (
        "import signal, subprocess, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); import tests.conftest;"
        "child = 'import signal; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler';"
        "sys.exit(subprocess.call([sys.executable, '-c', child]))"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=REPO, timeout=60, check=False).returncode == 0


def test_an_interrupt_while_a_program_is_prepared_prints_no_traceback(tmp_path: Path) -> None:
    """The child that runs the program imports a lot first; the signal of a Ctrl-C reaches it, too."""
    program = tmp_path / "slow.py"
    program.write_text("import time\ntime.sleep(60)\n")
    hook = tmp_path / "hook"
    hook.mkdir()
    # Python imports this at its start: the child asks for the signal in the middle of its own imports.
    (hook / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'heronpy.api.user_code' and 'load_topology' in ' '.join(sys.orig_argv):\n"
        "            sys.meta_path.remove(self)\n"
        "            os.kill(os.getppid(), signal.SIGINT)\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupts())\n"
    )
    environment = {**os.environ, "HERON_HOME": str(tmp_path / "home"), "PYTHONPATH": str(hook)}
    command = subprocess.run(
        [sys.executable, "-m", "heronpy.cli", "submit", "local", str(program)],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (command.returncode, command.stderr.strip()) == (130, "error: interrupted"), command.stderr


def test_an_interrupt_that_python_drops_comes_again(capfd: pytest.CaptureFixture[str]) -> None:
    """While a module is imported, what is raised in the callback of its lock is dropped, and would be printed."""

    class Falls:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    again = False
    with interrupts.interruptible():
        one: Falls | None = Falls()
        try:
            one = None
            wait_for(lambda: False, 10.0, "the interrupt")
        except KeyboardInterrupt:
            again = True
    assert one is None and again and capfd.readouterr().err == ""


def test_an_interrupt_that_python_has_dropped_is_heeded_before_anything_is_made() -> None:
    with interrupts.interruptible():
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupts.heed()
    interrupts.heed()


def test_a_second_interrupt_does_not_disturb_the_clean_up_of_the_first() -> None:
    cleaned = False
    with interrupts.interruptible(), contextlib.suppress(KeyboardInterrupt):
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            cleaned = True
    assert cleaned
