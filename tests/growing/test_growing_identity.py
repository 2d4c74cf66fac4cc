"""Whether a file is a known one: what was read decides, not the name or the inode."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from heronpy.growing.identity import (
    HEAD_BYTES,
    Fingerprint,
    Identity,
    advanced,
    before,
    fingerprint_of,
    first_line,
    fits,
    identify,
)

lines = st.lists(st.binary(max_size=40).map(lambda text: text.replace(b"\n", b" ") + b"\n"), min_size=1, max_size=60)
contents = lines.map(b"".join)


def fingerprint_after(content: bytes, cuts: list[int], header: int = 0) -> Fingerprint | None:
    """The fingerprint after reading the content in steps, each to the end of a line."""
    line = first_line(content[: 4 * HEAD_BYTES], header)
    if line is None:
        return None
    fingerprint = fingerprint_of(content[:HEAD_BYTES], line)
    for cut in sorted(cuts):
        end = content.rfind(b"\n", 0, cut) + 1
        if end > fingerprint.cut:
            data, context = content[fingerprint.cut : end], content[before(fingerprint.cut) : fingerprint.cut]
            assert fits(fingerprint, context, content[:HEAD_BYTES])
            fingerprint = advanced(fingerprint, context, data)
    return fingerprint


def seen(fingerprint: Fingerprint, content: bytes, **more: bool) -> Identity:
    size = len(content)
    context = content[before(fingerprint.cut) : fingerprint.cut] if size >= fingerprint.cut else None
    return identify(fingerprint, size, content[:HEAD_BYTES], context, **more)


@given(contents, contents, st.lists(st.integers(0, 3000), max_size=6))
def test_growth_is_the_same_file(content: bytes, more: bytes, cuts: list[int]) -> None:
    fingerprint = fingerprint_after(content, cuts)
    assert fingerprint is not None
    assert seen(fingerprint, content) is Identity.SAME
    assert seen(fingerprint, content + more) is Identity.SAME
    assert seen(fingerprint, content + more, renamed=True) is Identity.RENAMED
    assert seen(fingerprint, b"") is Identity.NEW


@given(contents, st.lists(st.integers(0, 3000), max_size=6), st.integers(0, 2500), st.integers(1, 255))
@example(b"a" * 3000 + b"\n", [3001], 1500, 1)
def test_a_changed_byte_that_was_compared_is_never_the_same(content: bytes, cuts: list[int], at: int, by: int) -> None:
    fingerprint = fingerprint_after(content, cuts)
    assert fingerprint is not None
    at %= len(content)
    changed = content[:at] + bytes([content[at] ^ by]) + content[at + 1 :]
    found = seen(fingerprint, changed)
    if at < fingerprint.head_bytes:
        assert found is Identity.NEW
    elif before(fingerprint.cut) <= at < fingerprint.cut:
        assert found is Identity.MUTATED
    else:
        assert found is Identity.SAME


@given(contents, st.integers(0, 3000))
def test_a_file_that_lost_bytes_that_were_read_waits(content: bytes, size: int) -> None:
    fingerprint = fingerprint_after(content, [len(content)])
    assert fingerprint is not None and fingerprint.cut == len(content)
    shorter = content[: size % len(content)]
    assert seen(fingerprint, shorter) is (Identity.SHORTER if shorter else Identity.NEW)


def test_what_is_written_after_a_truncation_is_new_also_behind_the_same_header() -> None:
    fingerprint = fingerprint_after(b"time,level\n10:00,info\n", [100], header=1)
    assert fingerprint is not None
    for content, expected in (
        (b"time,level\n", Identity.SHORTER),
        (b"time,level\n11:00", Identity.SHORTER),
        (b"time,level\n11:00,info\n", Identity.NEW),
        (b"time,level\n10:00,info\n10:01,info\n", Identity.SAME),
    ):
        context = content[: fingerprint.cut] if len(content) >= fingerprint.cut else None
        assert identify(fingerprint, len(content), content, context, header_lines=1) is expected, content


def test_the_first_line_is_told_once_it_cannot_change() -> None:
    assert first_line(b"") is None and first_line(b"half") is None
    assert first_line(b"one\ntwo") == (0, b"one\n")
    assert first_line(b"head\nhalf", 1) is None
    assert first_line(b"head\none\n", 1) == (5, b"one\n")
    long = b"x" * (HEAD_BYTES + 10)
    assert first_line(long) == first_line(long + b"\n") == (0, b"x" * HEAD_BYTES)
