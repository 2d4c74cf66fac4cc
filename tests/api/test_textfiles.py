"""Text files as sources: each line exactly once across readers, in order, with its offset."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heronpy.api.config_values import decode_config
from heronpy.api.spout.base_spout import Backlog
from heronpy.api.state.keyed_state import PartitionOwner
from heronpy.api.state.state import HashMapState
from heronpy.common.errors import TopologyError
from heronpy.connectors.mock.arraylooper import ArrayLooper
from heronpy.connectors.textfiles.line_share import LineShare, TextFileError, find_files
from heronpy.connectors.textfiles.textfilesgenerator import TextFileGenerator
from heronpy.connectors.textfiles.textfilespout import TextFileSpout
from tests.api.source_fakes import Context, Delegate, Kept


def spout(
    paths: Any, index: int = 0, tasks: int = 1, kept: Kept | None = None, context: Any = None, **config: Any
) -> TextFileSpout:
    made = TextFileSpout(Delegate())
    made.initialize(
        {"textfile.paths": paths, **{k if "." in k else f"textfile.{k}": v for k, v in config.items()}},
        context or Context(index, tasks, kept=kept),
    )
    return made


def saved(made: TextFileSpout) -> Kept:
    """What a checkpoint keeps of it."""
    made.pre_save("1")
    return pickle.loads(pickle.dumps(made._context.kept()))  # noqa: SLF001


def share_of(files: list[str], index: int, readers: int, positions: Any = None, **more: Any) -> LineShare:
    own = PartitionOwner("", lambda: (index, readers)).own
    return LineShare(files, own, {} if positions is None else positions, **more)


def drain(made: TextFileSpout, calls: int = 10_000) -> list[Any]:
    for _ in range(calls):
        if made.delegate.ended:
            break
        made.next_tuple()
    return [values[0] for values in made.delegate.emitted]


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def lines_of(data: bytes) -> list[str]:
    lines = data.decode().split("\n")
    return [line.removesuffix("\r") for line in (lines[:-1] if data.endswith(b"\n") or not data else lines)]


pieces = st.lists(
    st.sampled_from([b"\n", b"\n", b"a", b"bc", b"\r\n", "\u20acx".encode(), b"0123456789"]),
    max_size=40,
).map(b"".join)


@settings(deadline=None, max_examples=150)
@given(st.lists(pieces, min_size=1, max_size=3), st.integers(1, 4), st.integers(1, 12))
def test_each_line_once_in_order(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], readers: int, block_bytes: int
) -> None:
    directory = tmp_path_factory.mktemp("share")
    files = [write(directory / f"{i}.txt", data) for i, data in enumerate(contents)]
    found: list[tuple[str, int, str]] = []
    for index in range(readers):
        share = share_of(files, index, readers, block_bytes=block_bytes)
        assert share.bytes_left() <= sum(map(len, contents))
        own = []
        while (block := share.next_block()) is not None:
            own += [(block.path, offset, line) for line, offset in zip(block.lines, block.offsets, strict=True)]
        assert own == sorted(own, key=lambda entry: entry[:2])
        assert share.bytes_left() == 0
        assert all(share.line_at(path, offset) == line for path, offset, line in own)
        found += own
    assert len({entry[:2] for entry in found}) == len(found)
    by_file = [[line for p, _, line in sorted(found) if p == path] for path in files]
    assert by_file == [lines_of(data) for data in contents]


@settings(deadline=None, max_examples=60)
@given(pieces, st.integers(1, 3), st.integers(1, 9), st.lists(st.booleans(), max_size=60))
def test_spouts_share_replay_and_end(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, tasks: int, block_bytes: int, failing: list[bool]
) -> None:
    path = write(tmp_path_factory.mktemp("spout") / "f.txt", data)
    done: list[Any] = []
    verdicts = iter(failing)
    for index in range(tasks):
        made = spout(
            path, index, tasks, block_bytes=block_bytes, pending_max=3, **{"topology.reliability.mode": "ATLEAST_ONCE"}
        )
        for _ in range(2000):
            made.next_tuple()
            assert len(made.delegate.ids) <= 3
            emitted, ids = list(made.delegate.emitted), list(made.delegate.ids)
            made.delegate.emitted.clear()
            made.delegate.ids.clear()
            for values, tup_id in zip(emitted, ids, strict=True):
                if next(verdicts, False):
                    made.fail(tup_id)
                else:
                    made.ack(tup_id)
                    done.append((tup_id, values[0]))
            if made.delegate.ended:
                break
        made.next_tuple()
        assert made.delegate.ended == 1
    assert [line for _, line in sorted(done)] == lines_of(data)


def test_default_blocks_over_a_larger_file(tmp_path: Path) -> None:
    data = b"".join(b"line number %d\n" % i for i in range(60_000))
    path = write(tmp_path / "big.txt", data)
    shares = [drain(spout(path, index, 3)) for index in range(3)]
    assert all(shares)
    assert sorted(itertools.chain(*shares)) == sorted(lines_of(data))


def test_several_files_headers_and_line_ends(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", b"head\r\n1\r\n2")
    write(tmp_path / "b.csv", b"head\n")
    write(tmp_path / "c.csv", b"")
    write(tmp_path / "d.csv", b"head\n\n3\n")
    assert drain(spout(str(tmp_path / "*.csv"), skip_header=True)) == ["1", "2", "", "3"]
    both = [str(tmp_path / "d.csv"), str(tmp_path / "a.*"), str(tmp_path / "d.*")]
    assert drain(spout(both, skip_header=2)) == ["2", "3"]


def test_lines_per_call_and_no_ids_without_acking(tmp_path: Path) -> None:
    path = write(tmp_path / "f", b"x\n" * 450)
    made = spout(path)
    made.next_tuple()
    assert len(made.delegate.emitted) == 200 and set(made.delegate.ids) == {None}
    drain(made)
    assert len(made.delegate.emitted) == 450


def test_offsets_can_be_emitted(tmp_path: Path) -> None:
    path = write(tmp_path / "f", "\u20ac\nb\n".encode())
    made = spout(path, emit_offset=True)
    drain(made)
    assert made.delegate.emitted == [["\u20ac", path, 0], ["b", path, 4]]
    spec = TextFileSpout.spec("s", config={"textfile.paths": path, "textfile.emit_offset": True})
    assert spec.output_streams()["default"].fields == ["line", "path", "offset"]


def test_spec_makes_paths_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spec = TextFileSpout.spec("s", config={"textfile.paths": "data/*.txt"})
    config = decode_config(spec.get_protobuf().comp.config)
    assert config["textfile.paths"] == [str(tmp_path / "data/*.txt")]
    assert TextFileSpout.spec("s").output_streams()["default"].fields == ["line"]


def test_pending_is_bounded_by_the_topology(tmp_path: Path) -> None:
    path = write(tmp_path / "f", b"x\n" * 50)
    made = spout(path, **{"topology.reliability.mode": "ATLEAST_ONCE", "topology.max.spout.pending": 7})
    for _ in range(5):
        made.next_tuple()
    assert len(made.delegate.ids) == 7
    made.ack(made.delegate.ids[0])
    made.ack("unknown")
    made.fail("unknown")
    made.next_tuple()
    assert len(made.delegate.ids) == 8 and not made.delegate.ended


def test_replays_can_be_limited(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "f", b"good\npoison\n")
    made = spout(path, replays_max=2, **{"topology.reliability.mode": "ATLEAST_ONCE"})
    made.next_tuple()
    made.ack((path, 0))
    for _ in range(3):
        made.fail((path, 5))
        made.next_tuple()
    assert [v[0] for v in made.delegate.emitted] == ["good", "poison", "poison", "poison"]
    assert made.delegate.ended == 1
    assert "byte 5 of" in caplog.text


def test_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    data = b"".join(b"%d\n" % i for i in range(100))
    path = write(tmp_path / "f", data)
    seen: list[Any] = []
    kept: Kept = {}
    for _ in range(30):
        made = spout(path, kept=kept, block_bytes=50, lines_per_call=7, skip_header=3)
        made.next_tuple()
        seen += [values[0] for values in made.delegate.emitted]
        kept = saved(made)
    assert seen == lines_of(data)[3:]
    assert made.delegate.ended == 1


EFFECTIVELY_ONCE = {"topology.reliability.mode": "EFFECTIVELY_ONCE"}


@settings(deadline=None, max_examples=150)
@given(
    st.lists(pieces, min_size=1, max_size=3),
    st.lists(pieces, max_size=3),
    st.integers(1, 9),
    st.lists(st.tuples(st.sampled_from((1, 2, 3, 7)), st.integers(0, 3)), min_size=1, max_size=6),
)
def test_lanes_move_with_their_positions_to_any_number_of_tasks(
    tmp_path_factory: pytest.TempPathFactory,
    contents: list[bytes],
    added: list[bytes],
    block_bytes: int,
    phases: list[tuple[int, int]],
) -> None:
    """Each phase restores all tasks from the last checkpoint; new files sort before, between and after."""
    folder = tmp_path_factory.mktemp("grown")
    for i, data in enumerate(contents):
        write(folder / f"{i}5.txt", data)
    kept: Kept = {}
    seen: list[str] = []

    def phase(tasks: int, calls: int) -> None:
        nonlocal kept
        merged: Kept = {}
        for index in range(tasks):
            config = {"block_bytes": block_bytes, "lines_per_call": 2, **EFFECTIVELY_ONCE}
            made = spout(str(folder / "*.txt"), index, tasks, kept, **config)
            for _ in range(calls):
                if made.delegate.ended:
                    break
                made.next_tuple()
            part = saved(made)
            seen.extend(values[0] for values in made.delegate.emitted)
            made.next_tuple()  # after the checkpoint: what a failure takes back
            for name, entries in part.items():
                assert not merged.setdefault(name, {}).keys() & entries.keys(), "a lane has two owners"
                merged[name].update(entries)
        kept = merged

    phase(*phases[0])
    for i, data in enumerate(added):
        write(folder / f"{i}{i * 4}.txt", data)
    for tasks, calls in phases[1:]:
        phase(tasks, calls)
    phase(2, 10_000)
    assert sorted(seen) == sorted(itertools.chain(*(lines_of(data) for data in [*contents, *added])))


def test_what_does_not_fit_the_positions_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "f", b"abc\n" * 100)
    made = spout(path, 0, 2, block_bytes=40, lines_per_call=5)
    for _ in range(5):
        made.next_tuple()
    kept = saved(made)
    with pytest.raises(TextFileError, match="has 50 bytes per block, but its positions were saved with 40"):
        spout(path, 0, 2, kept, block_bytes=50)
    with pytest.raises(TextFileError, match=r"was checkpointed without textfile\.follow; remove it"):
        spout(path, 0, 2, kept, follow=True)
    write(tmp_path / "f", b"abc\n")
    with pytest.raises(TextFileError, match="has become shorter than the saved position"):
        spout(path, 0, 2, kept, block_bytes=40)
    with pytest.raises(TopologyError, match="TextFileSpout was checkpointed by a release of heronpy that saved"):
        TextFileSpout(Delegate()).init_state(HashMapState(share={"files": [path]}))


def test_files_that_were_read_may_be_gone(tmp_path: Path) -> None:
    write(tmp_path / "a.log", b"1\n2\n")
    write(tmp_path / "b.log", b"3\n4\n")
    made = spout(str(tmp_path / "*.log"), lines_per_call=3)
    made.next_tuple()
    kept = saved(made)
    (tmp_path / "a.log").unlink()
    assert drain(spout(str(tmp_path / "*.log"), kept=kept)) == ["4"]
    made.next_tuple()
    kept = saved(made)
    (tmp_path / "b.log").unlink()
    assert drain(spout(str(tmp_path / "*.log"), kept=kept)) == []


def test_tasks_that_run_give_and_take_lanes_and_lose_no_line(tmp_path: Path) -> None:
    """At least once 3 -> 7 -> 2: those that had ended read on, and no lane is left without a reader."""
    data = b"".join(b"line %d\n" % i for i in range(3000))
    path = write(tmp_path / "f", data)
    config = {"block_bytes": 256, "lines_per_call": 50, "topology.reliability.mode": "ATLEAST_ONCE"}
    contexts = [Context(index, 3) for index in range(7)]
    made = [spout(path, context=context, **config) for context in contexts[:3]]

    def call(spouts: list[TextFileSpout], calls: int) -> None:
        for one in spouts:
            for _ in range(calls):
                one.next_tuple()
                for tup_id in one.delegate.ids:
                    one.ack(tup_id)
                one.delegate.ids.clear()

    call(made[:1], 100)
    assert made[0].delegate.ended == 1
    call(made[1:], 3)
    for tasks, calls in ((7, 2), (2, 200)):
        for context in contexts:
            context.tasks = tasks
        made += [spout(path, context=context, **config) for context in contexts[len(made) : tasks]]
        call(made[:tasks], calls)
    assert [one.delegate.ended for one in made[:2]] == [2, 1]
    seen = [values[0] for one in made[:2] for values in one.delegate.emitted]
    assert set(seen) == set(lines_of(data)), "all lanes are theirs in the end"


def test_the_backlog_is_what_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "f", b"12345678\n" * 100)
    made = [spout(path, index, 3, block_bytes=90, lines_per_call=10) for index in range(3)]
    assert sum(one.backlog().bytes for one in made) == 900
    drain(made[0])
    assert made[0].backlog() == Backlog(None, 0)
    assert sum(one.backlog().bytes for one in made) == 900 - 9 * len(made[0].delegate.emitted)


def test_encodings(tmp_path: Path) -> None:
    path = write(tmp_path / "f", b"\xef\xbb\xbfone\n\xc3\xa9\n")
    assert drain(spout(path, encoding="utf-8-sig")) == ["one", "\u00e9"]
    assert share_of([path], 0, 1, encoding="utf-8-sig").line_at(path, 0) == "one"
    assert drain(spout(path, encoding="latin-1"))[1] == "\u00c3\u00a9"
    broken = write(tmp_path / "g", b"ok\nbad\xff\n")
    with pytest.raises(TextFileError, match=r"g is not valid utf-8 at byte 6"):
        drain(spout(broken))
    assert drain(spout(broken, decode_errors="replace")) == ["ok", "bad\ufffd"]
    for encoding in ("utf-16", "nonsense"):
        with pytest.raises(ValueError, match=encoding):
            spout(path, encoding=encoding)
    for handler in ("ingore", "xmlcharrefreplace"):
        with pytest.raises(ValueError, match=f"decode_errors is '{handler}'; it must be strict, replace or ignore"):
            spout(path, decode_errors=handler)


def test_errors_name_file_and_byte(tmp_path: Path) -> None:
    with pytest.raises(TextFileError, match=r"no file matches .*\*\.nope"):
        spout(str(tmp_path / "*.nope"))
    long = write(tmp_path / "long", b"ab\n" + b"x" * 100 + b"\n")
    with pytest.raises(TextFileError, match="more than 20 bytes at byte 3"):
        drain(spout(long, block_bytes=10, line_bytes_max=20))
    gone = spout(write(tmp_path / "gone", b"x\n"))
    (tmp_path / "gone").unlink()
    with pytest.raises(TextFileError, match="gone cannot be read at byte 0"):
        gone.next_tuple()
    header = write(tmp_path / "header", b"h\n" * 20)
    with pytest.raises(TextFileError, match="header of"):
        drain(spout(header, block_bytes=10, skip_header=9))


@pytest.mark.parametrize(
    ("config", "error", "text"),
    [
        ({"lines_per_call": 0}, ValueError, "at least 1"),
        ({"pending_max": "x"}, ValueError, "whole number"),
        ({"skip_header": -1}, ValueError, "at least 0"),
    ],
)
def test_wrong_settings(tmp_path: Path, config: dict[str, Any], error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        spout(write(tmp_path / "f", b""), **config)


def test_paths_are_required(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"needs textfile\.paths"):
        TextFileSpout(Delegate()).initialize({}, Context())
    with pytest.raises(ValueError, match="at least one"):
        TextFileSpout.spec("s", config={"textfile.paths": []})
    with pytest.raises(TypeError):
        TextFileSpout.spec("s", config={"textfile.paths": 3})
    assert find_files([write(tmp_path / "[odd].txt", b"")]) == [str(tmp_path / "[odd].txt")]


def test_generator_reads_lazily_and_ends(tmp_path: Path) -> None:
    write(tmp_path / "1.txt", b"a\nb\n")
    write(tmp_path / "2.txt", b"c")
    made = TextFileGenerator(str(tmp_path / "*.txt"))
    with pytest.raises(RuntimeError, match="setup"):
        made.get()
    made = pickle.loads(pickle.dumps(made))
    made.setup(Context())
    assert [made.get(), made.get(), made.get()] == ["a", "b", "c"]
    with pytest.raises(StopIteration):
        made.get()
    halves = []
    for index in range(2):
        made.setup(Context(index, 2))
        halves.append(list(iter_until_stop(made.get)))
    assert sorted(itertools.chain(*halves)) == ["a", "b", "c"]


def iter_until_stop(get: Any) -> Any:
    while True:
        try:
            yield get()
        except StopIteration:
            return


def test_array_looper() -> None:
    looper = ArrayLooper(iter([1, 2]), sleep=0)
    looper = pickle.loads(pickle.dumps(looper))
    looper.setup(None)
    assert [looper.get() for _ in range(5)] == [1, 2, 1, 2, 1]
    with pytest.raises(RuntimeError, match="iterable"):
        ArrayLooper(3)  # type: ignore[arg-type]


def test_array_looper_waits_without_blocking() -> None:
    waits: list[float] = []
    looper = ArrayLooper([1, 2], sleep=5.0)
    looper.setup(SimpleNamespace(get_state=lambda: None, wait=waits.append))
    assert [looper.get() for _ in range(4)] == [1, 2, 1, 2] and waits == [5.0] * 4


def test_the_last_ack_ends_the_input(tmp_path: Path) -> None:
    made = spout(write(tmp_path / "a", b"x\ny\n"), **{"topology.reliability.mode": "ATLEAST_ONCE"})
    made.next_tuple()
    first, second = made.delegate.ids
    made.next_tuple()
    assert made.delegate.waits and not made.delegate.ended
    made.fail(first)
    made.ack(second)
    assert not made.delegate.ended, "a failed line is still to be read again"
    made.next_tuple()
    made.ack(made.delegate.ids[-1])
    made.next_tuple()
    assert made.delegate.ended == 1 and len(made.delegate.emitted) == 3


def test_generators_go_on_from_a_checkpoint(tmp_path: Path) -> None:
    write(tmp_path / "1.txt", b"a\nb\n")
    write(tmp_path / "2.txt", b"c\nd\n")
    for first in range(5):
        context = Context()
        made = TextFileGenerator(str(tmp_path / "*.txt"))
        made.setup(context)
        before = [made.get() for _ in range(first)]
        made.pre_save("1")
        state = pickle.loads(pickle.dumps(context.state))
        again = TextFileGenerator(str(tmp_path / "*.txt"))
        again.setup(Context(state=state))
        assert before + list(iter_until_stop(again.get)) == ["a", "b", "c", "d"]
    with pytest.raises(TextFileError, match="saved with 1; restore with 1 tasks"):
        again.setup(Context(0, 2, state))


def test_the_array_looper_goes_on_from_a_checkpoint() -> None:
    for taken in range(8):
        context = Context()
        looper = ArrayLooper([1, 2, 3])
        looper.setup(context)
        before = [looper.get() for _ in range(taken)]
        looper.pre_save("1")
        again = ArrayLooper([1, 2, 3])
        again.setup(Context(state=pickle.loads(pickle.dumps(context.state))))
        assert before + [again.get() for _ in range(8 - taken)] == [1, 2, 3, 1, 2, 3, 1, 2]
