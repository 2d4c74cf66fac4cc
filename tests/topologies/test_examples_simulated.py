"""The example topologies do what they say; each is run in the simulator."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from heronpy.simulator import Simulator
from heronpy.streamlet import KeyedWindow, Runner
from topologies import (
    ack_and_fail,
    async_bolt,
    batch_word_count,
    custom_grouping,
    direct_grouping,
    log_table,
    multi_stream,
    sick,
    streamlet_word_count,
    windowed,
    word_count,
)

EXAMPLES = (
    ack_and_fail,
    async_bolt,
    batch_word_count,
    custom_grouping,
    direct_grouping,
    log_table,
    multi_stream,
    sick,
    streamlet_word_count,
    windowed,
    word_count,
)


@pytest.mark.parametrize("module", EXAMPLES, ids=lambda module: module.__name__)
def test_says_how_to_run_it_and_stays_short(module: object) -> None:
    path = Path(str(module.__file__))  # type: ignore[attr-defined]
    text = path.read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(text)) or ""
    assert f"heron submit local topologies/{path.name} " in docstring
    assert len(text.splitlines()) < 160
    assert 'if __name__ == "__main__":' in text


def test_word_count_of_files(tmp_path: Path) -> None:
    texts = {"a.txt": "the cat saw the dog\n", "b.txt": "the dog\n\nsaw nothing\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    builder = word_count.word_count("test", [str(tmp_path / name) for name in texts])
    simulator = Simulator(builder, seed=1)
    assert simulator.run().reason == "finished"
    counts = simulator.emitted("count")
    assert sorted(counts) == [["cat", 1], ["dog", 2], ["nothing", 1], ["saw", 2], ["the", 3]]
    tasks = [simulator.task("count", index).counts for index in (0, 1)]
    assert not tasks[0].keys() & tasks[1].keys()


def test_word_count_without_files_never_ends() -> None:
    simulator = Simulator(word_count.word_count("test"))
    assert simulator.run(seconds=0.5).reason == "seconds"
    words = Counter(tup.values[0] for tup in simulator.executed("count"))
    assert set(words) == {word for line in word_count.BUILT_IN for word in line.split()}
    counted = simulator.task("count", 0).counts + simulator.task("count", 1).counts
    assert counted == words


def test_multi_stream() -> None:
    simulator = Simulator(multi_stream.multi_stream("test"))
    simulator.run(seconds=10.05)
    broken = simulator.emitted("sensors", "broken")
    assert len(broken) == 20
    assert all(error == "no contact" for _, error in broken)
    streams = Counter(tup.stream for tup in simulator.executed("report"))
    assert streams == {"broken": 20, "default": len(simulator.emitted("sensors"))}


def test_custom_grouping() -> None:
    simulator = Simulator(custom_grouping.custom_grouping("test"))
    simulator.run(seconds=20)
    customers = [set(simulator.task("book", index).totals) for index in range(3)]
    assert customers[0] == {"acme", "globex"}
    assert customers[1] | customers[2] == set(custom_grouping.CUSTOMERS) - customers[0]
    assert not customers[1] & customers[2]


def test_direct_grouping_balances_sizes() -> None:
    simulator = Simulator(direct_grouping.direct_grouping("test"))
    simulator.run(seconds=30)
    done = [simulator.task("worker", index).done for index in range(3)]
    assert sum(done) == sum(size for _, size in simulator.emitted("jobs"))
    assert max(done) - min(done) <= 10 + 0.1 * sum(done)


def test_ack_and_fail_books_everything() -> None:
    simulator = Simulator(ack_and_fail.ack_and_fail("test", 60))
    assert simulator.run().reason == "finished"
    assert simulator.task("book").booked == set(range(60))
    assert sorted(simulator.failed("payments")) == list(range(0, 60, 3))
    assert sorted(simulator.acked("payments")) == list(range(60))


def test_ack_and_fail_survives_the_loss_of_a_task() -> None:
    simulator = Simulator(ack_and_fail.ack_and_fail("test", 60))
    simulator.run(max_steps=100)
    simulator.kill_task("check")
    assert simulator.run().reason == "finished"
    assert sorted(simulator.acked("payments")) == list(range(60))


def test_batch_word_count_is_exact() -> None:
    with Simulator(batch_word_count.batch_word_count("test", 3000)) as simulator:
        simulator.run()
        expected = Counter(word for line in batch_word_count.LINES for word in line.split() * 1000)
        counts = [simulator.task("count", index).counts for index in range(2)]
        assert counts[0] + counts[1] == expected and not counts[0].keys() & counts[1].keys()
        assert len(simulator.acked("line")) == 3000


def test_async_bolt_has_many_look_ups_under_way() -> None:
    with Simulator(async_bolt.async_bolt("test", 200)) as simulator:
        assert simulator.run().reason == "finished"
        numbers = [number for number, _ in simulator.emitted("look_up")]
        assert sorted(numbers) == list(range(200))
        assert simulator.metrics("look_up")["__async-concurrency-max"] == 50
        assert simulator.now < 1  # one after the other would take twenty seconds


def test_windowed() -> None:
    simulator = Simulator(windowed.windowed("test"))
    simulator.run(seconds=30)
    counts = [count for _, _, count in simulator.emitted("count")]
    assert len(counts) == 6
    assert sum(counts) == len(simulator.emitted("readings"))
    averages = simulator.emitted("average")
    assert len(averages) == 15
    assert all(end - start == 10 and 15 <= average <= 25 for start, end, average in averages)


def test_streamlet_word_count() -> None:
    config = streamlet_word_count.at_least_once()
    builder = Runner().build("test", config, streamlet_word_count.word_count())
    simulator = Simulator(builder)
    simulator.run(seconds=20)
    totals: Counter[str] = Counter()
    for [(keyed, count)] in simulator.emitted("counts", "output"):
        assert isinstance(keyed, KeyedWindow)
        totals[keyed.key] += count
    words = Counter(values[0] for values in simulator.emitted("words", "output"))
    assert totals == words
    assert simulator.failed("lines") == []
    assert len(simulator.acked("lines")) > 90
