"""The one line that a task logs of a tuple which it gives up."""

from __future__ import annotations

import pytest

from heronpy.api.user_code import user_traceback
from instance.dead_letters import headline


def traceback_of(error: Exception, cause: Exception | None = None) -> str:
    try:
        raise error from cause
    except Exception as raised:
        return user_traceback(raised)


@pytest.mark.parametrize(
    ("why", "said"),
    [
        (traceback_of(ValueError("boom")), "ValueError: boom"),
        (traceback_of(ValueError("boom\nfor the\n\n\x1b[31m")), "ValueError: boom"),
        (traceback_of(ValueError("boom\nred"), KeyError("the\ncause")), "ValueError: boom"),
        (traceback_of(ValueError()), "ValueError"),
        ("a value of this tuple could not be decoded\n" + traceback_of(TypeError("no\nway")), "TypeError: no"),
        (
            "the process ended while it processed this tuple: oom",
            "the process ended while it processed this tuple: oom",
        ),
        (" \n", "no reason is known"),
    ],
)
def test_it_is_the_type_and_the_first_line(why: str, said: str) -> None:
    assert headline(why) == said
