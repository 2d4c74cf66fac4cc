"""The start and the end of `heron`, where Ctrl-C ends the process without a traceback.

While modules are imported, a KeyboardInterrupt could be raised where nothing can catch it. SIGINT therefore has its
default effect until a verb begins and after the verb has ended. This module imports nothing that is slow to import.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal itself imports enum and more

_plain = False


def main() -> int:
    """Run `heron` and return the exit code."""
    global _plain
    # A command that a script runs in the background ignores Ctrl-C, and this is left unchanged. `scripts/heron`
    # sets SIG_DFL.
    if _signal.getsignal(_signal.SIGINT) in (_signal.default_int_handler, _signal.SIG_DFL):
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
        _plain = True
    from heronpy.cli.main import main as run

    try:
        return run(begin=_begin)
    finally:
        if _plain:
            _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def _begin() -> None:
    """Let Ctrl-C raise a KeyboardInterrupt from now on, so that the verb can clean up."""
    if _plain:
        import sys

        from heronpy.procs.interrupts import dropped, interrupt

        sys.unraisablehook = dropped
        _signal.signal(_signal.SIGINT, interrupt)
