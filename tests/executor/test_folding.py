"""What py-spy and the interpreter print, and what of it travels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.executor.folding import folded, printed_stacks, profile_of
from heronpy.net.answers import packed

PRINTED = """\
a secret that user code wrote to its output
Thread 0x00007f1562b7d6c0 (most recent call first):
  File "/lib/threading.py", line 1045 in _bootstrap_inner
password = hunter2
Current thread 0x00007f156a241b80 [main] (most recent call first):
  File "/home/me/topo.py", line 9 in process
  ...
  File "/x/heronpy/procs/fork_loop.py", line 336 in _run_main
  File "/x/heronpy/scheduler/__main__.py", line 71 in <module>
Extension modules: zmq, numpy (total: 2)
"""


def test_only_the_stacks_of_the_process_itself_are_shown() -> None:
    assert printed_stacks(PRINTED) == (
        "Thread 0x00007f1562b7d6c0 (most recent call first):\n"
        '  File "/lib/threading.py", line 1045 in _bootstrap_inner\n'
        "\n"
        "Current thread 0x00007f156a241b80 [main] (most recent call first):\n"
        '  File "/home/me/topo.py", line 9 in process\n'
        "  ...\n"
    )
    assert printed_stacks("nothing of it\n") == ""


def test_a_profile_of_py_spy_has_short_paths_and_no_parents() -> None:
    raw = (
        "<module> (/s/runpy.py:88);_run_main (/x/heronpy/procs/fork_loop.py:336);main (instance/a.py:1);f (/h/me/t.py:7) 30\n"
        "main (/h/me/t.py:1);0x7f12 (libc.so.6) 10\n"
        "x (threading.py:1);Poller.poll (/lib/zmq/sugar/poll.py:106) 50\n"
        "_run_main (heronpy/procs/fork_loop.py:336) 1\n"
        "no number\n"
        " 7\n"
    )
    expected = [(("main (instance/a.py:1)", "f (me/t.py:7)"), 0.3), (("main (me/t.py:1)", "0x7f12 (libc.so.6)"), 0.1)]
    assert folded(raw, 100, idle=False) == expected
    assert len(folded(raw, 100, idle=True)) == 3, "waiting threads count on request"


@given(
    st.lists(
        st.tuples(st.lists(st.text(max_size=300), min_size=1, max_size=250).map(tuple), st.floats(0.001, 10)),
        max_size=20,
    ),
    st.integers(0, 5000),
)
def test_an_answer_is_bounded_and_counts_what_it_leaves_out(
    rows: list[tuple[tuple[str, ...], float]], room: int
) -> None:
    reply = profile_of(rows, "py-spy", "", room)
    kept = [one.seconds for one in reply.stacks]
    assert kept == sorted(kept, reverse=True)
    assert sum(kept) + reply.left_out_s == pytest.approx(sum(seconds for _, seconds in rows))
    assert len(packed(reply).data) <= room + 128
    assert all(number < len(reply.frames) for one in reply.stacks for number in one.stack)
    if len(kept) == len(rows):
        names = sorted(tuple(reply.frames[number] for number in one.stack) for one in reply.stacks)
        assert names == sorted(tuple(name[:200] for name in stack[-200:]) for stack, _ in rows)
