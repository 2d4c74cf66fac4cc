"""The terminal of `heron top`: keys in, lines out; it always leaves the terminal as it was."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from heronpy.cli.interrupts import interruptible
from heronpy.cli.look.full_screen.asking import Asking
from heronpy.cli.look.full_screen.screen import Size, changes, draw, painted
from heronpy.cli.look.full_screen.view import Figures, View, keys_of, press, rows_of, wish_of
from heronpy.clusters.session import Session

#: The other screen, without cursor; and back. Lines never wrap, so that a resize does not tear them.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J", "\x1b[?7h\x1b[?25h\x1b[?1049l"
_CLEAR = "\x1b[2J"
_READ = 4096


def fits_terminal() -> bool:
    """Whether keys can be read and lines be placed."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def show(session: Session, topology: str, interval_s: float, look_for_end: Callable[[bool], None]) -> None:
    """Show the topology until q or Ctrl-C; raises what `look_for_end` raises."""
    with interruptible(), _pipe() as (readable, wake):
        asking = Asking(session, topology, interval_s, look_for_end, wake)
        terminal = _Terminal()
        try:
            with terminal.taken(), _woken(signal.SIGWINCH, wake):
                asking.start()
                _loop(asking, terminal, readable)
        finally:
            asking.stop()


def _loop(asking: Asking, terminal: _Terminal, readable: int) -> None:
    view, figures = View(), asking.figures()
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(readable, select.POLLIN)
    while not view.ended:
        terminal.show(view, figures)
        ready = dict(poll.poll())
        if readable in ready:
            os.read(readable, _READ)
            newest = asking.figures()
            figures = figures if view.frozen else newest
        if 0 in ready:
            data = os.read(0, _READ)
            if not data:  # the terminal is gone
                return
            for key in keys_of(data):
                if key == "suspend":
                    terminal.suspend()
                elif key == "redraw":
                    terminal.forget()
                else:
                    view = press(view, key, rows_of(view, figures))
            asking.want(wish_of(view))


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    try:
        yield readable, writable
    finally:
        os.close(readable)
        os.close(writable)


@contextmanager
def _woken(signum: signal.Signals, wake: int) -> Iterator[None]:
    """While this signal writes to the pipe, so that no moment is missed."""
    held, before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False), signal.signal(signum, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signum, before)
        signal.set_wakeup_fd(held)


class _Terminal:
    """What is on the screen now, and how it was found."""

    def __init__(self) -> None:
        self._before: list[str] = []
        self._size: os.terminal_size | None = None
        self._found = termios.tcgetattr(0)
        self._colour = not os.environ.get("NO_COLOR")
        encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
        self._ascii = encoding not in ("utf8", "utf16", "utf32")

    @contextmanager
    def taken(self) -> Iterator[None]:
        """While keys come one by one and the other screen is shown."""
        self._enter()
        try:
            yield
        finally:
            self._leave()

    def _enter(self) -> None:
        mode = termios.tcgetattr(0)
        mode[3] &= ~(termios.ICANON | termios.ECHO)
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
        # Ctrl-Z comes as a key, so that the screen can be given back before.
        mode[6][termios.VSUSP] = os.fpathconf(0, "PC_VDISABLE").to_bytes(1, "little")
        termios.tcsetattr(0, termios.TCSADRAIN, mode)
        self._write(_ENTER)
        self.forget()

    def _leave(self) -> None:
        self._write(_LEAVE)
        termios.tcsetattr(0, termios.TCSADRAIN, self._found)

    def suspend(self) -> None:
        """Give the terminal back and stop, as Ctrl-Z means it; go on when told to."""
        self._leave()
        os.kill(os.getpid(), signal.SIGTSTP)
        self._enter()

    def forget(self) -> None:
        """Write every line again."""
        self._size = None

    def show(self, view: View, figures: Figures) -> None:
        """Bring the screen up to date; writes nothing when nothing has changed."""
        size = os.get_terminal_size(1)
        text = ""
        if size != self._size:
            self._size, self._before, text = size, [], _CLEAR
        lines = draw(view, figures, Size(size.columns, size.lines), self._ascii)
        after = [painted(line, self._colour) for line in lines]
        text += changes(self._before, after)
        self._before = after
        if text:
            self._write(text)

    def _write(self, text: str) -> None:
        data = text.encode(sys.stdout.encoding or "ascii", "replace")
        blocking = os.get_blocking(1)
        if not blocking:
            os.set_blocking(1, True)
        while data:
            data = data[os.write(1, data) :]
        if not blocking:
            os.set_blocking(1, False)
