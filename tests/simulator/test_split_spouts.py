"""Spouts of splits: the same tuples as a stream and as a batch, exactly once over restores, and behind a batch."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.spout.split_spout import SPLIT_BYTES_MAX, Split, SplitSpout, To, checked_splits, done_state
from heronpy.api.stream import Grouping, Stream
from heronpy.api.topology import TopologyBuilder
from heronpy.common.errors import ConfigError
from heronpy.simulator import Simulator
from heronpy.simulator.split_contract import check_split_spout

CONFIG = {"sizes": [3, 0, 700, 40, 1]}
ALL = sorted([f"s{split}", n] for split, size in enumerate(CONFIG["sizes"]) for n in range(size))


class Rows(SplitSpout):
    outputs = ["name", "number", Stream(fields=["text"], name="errors")]

    def splits(self, config: dict[str, Any]) -> list[Split]:
        return [Split(f"s{n}", 100 * size, {"size": size}) for n, size in enumerate(config["sizes"])]

    def read(self, split: Split) -> Any:
        for n in range(split.data["size"]):
            yield [split.name, n]
            if n % 50 == 7:
                yield To("errors", [f"{split.name} {n}"])


class Keeping(Rows):
    """Keeps something of its own in its State."""

    def read(self, split: Split) -> Any:
        self.state["last"] = split.name
        yield from super().read(split)


class Sets(Bolt):
    """Counts each row by its split."""

    def initialize(self, config: Any, context: Any) -> None:
        self.seen = context.keyed_state("seen")
        self.failed: set[Any] = set()

    def process(self, tup: Any) -> None:
        name, number = tup.values
        if self.refuses(name, number):
            self.fail(tup)
            return
        self.seen[name] = [*self.seen.get(name, []), number]
        self.ack(tup)

    def refuses(self, name: str, number: int) -> bool:
        return False


class Refusing(Sets):
    """Fails each third row once."""

    def refuses(self, name: str, number: int) -> bool:
        known = (name, number) in self.failed or number % 3
        self.failed.add((name, number))
        return not known


def topology(kind: type[SplitSpout], bolt: type[Bolt], mode: str, par: int = 2, **config: Any) -> TopologyBuilder:
    builder = TopologyBuilder("splits")
    source = builder.add_spout("spout", kind, par=par, config={**CONFIG, **config})
    builder.add_bolt("sets", bolt, par=2, inputs={source: Grouping.fields("name")})
    builder.set_config({"topology.reliability.mode": mode})
    return builder


def seen(run: Simulator) -> list[Any]:
    found: dict[str, list[int]] = {}
    for index in (0, 1):
        found.update(dict(run.task("sets", index).seen.items()))
    return sorted([name, number] for name, numbers in found.items() for number in numbers)


class Live(Rows):
    """Goes on behind the splits with numbers of a list that grows."""

    log: list[int] = []

    def follow_state(self, splits: Any, index: int, tasks: int) -> dict[str, int]:
        return {"place": splits[0].data["size"] + index, "step": tasks}

    def follow(self) -> Any:
        place = self.state["place"]
        if place >= len(self.log):
            return None
        self.state["place"] = place + self.state["step"]
        return ["live", self.log[place]]


def test_a_stream_goes_on_elsewhere_behind_its_splits() -> None:
    """Each item once, also over a restore, and each task from its State; splits are listed no more."""
    Live.log = list(range(10))
    with Simulator(topology(Live, Sets, "EFFECTIVELY_ONCE")) as run:
        run.run(seconds=1)
        run.checkpoint()
        Live.log += range(10, 20)
        run.run(seconds=1)
        run.kill_task("spout")
        run.run(seconds=1)
        found = seen(run)
    Live.log = []
    assert sorted(found) == sorted(ALL + [["live", number] for number in range(3, 20)])


def test_a_spout_that_keeps_the_contract_passes() -> None:
    check_split_spout(Rows, CONFIG)


class OtherSplits(Rows):
    calls = itertools.count()

    def splits(self, config: dict[str, Any]) -> list[Split]:
        return [Split(f"s{next(self.calls)}")]


class OtherRows(Rows):
    calls = itertools.count()

    def read(self, split: Split) -> Any:
        yield [split.name, next(self.calls)]


class KeepsAcrossSplits(Rows):
    """A split depends on the splits that the same task has read before."""

    total = 0

    def read(self, split: Split) -> Any:
        self.total += split.data["size"]
        yield [split.name, self.total]


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (OtherSplits, r"the results of two calls to splits\(\) differ"),
        (OtherRows, "stream 'default' from 1 task and from a batch run"),
        (KeepsAcrossSplits, "stream 'default' from 1 task and from a batch run"),
    ],
)
def test_a_spout_that_breaks_the_contract_is_found(kind: type[SplitSpout], found: str) -> None:
    with pytest.raises(AssertionError, match=found):
        check_split_spout(kind, CONFIG)


@pytest.mark.parametrize("seed", range(6))
def test_each_row_counts_once_whatever_is_killed(seed: int) -> None:
    dice = random.Random(seed)
    with Simulator(topology((Rows, Keeping)[seed % 2], Sets, "EFFECTIVELY_ONCE"), seed=seed) as run:
        for _ in range(4):
            run.run(max_steps=dice.randint(1, 12))
            if dice.random() < 0.6:
                run.checkpoint()
            run.kill_task(dice.choice(("spout", "sets")), dice.randrange(2))
        assert run.run().reason == "finished"
        assert seen(run) == ALL


def test_failed_rows_are_emitted_again_and_the_input_ends_when_all_are_acked() -> None:
    with Simulator(topology(Rows, Refusing, "ATLEAST_ONCE")) as run:
        assert run.run().reason == "finished"
        assert seen(run) == ALL
        assert len(run.failed("spout")) == sum(1 for _, number in ALL if number % 3 == 0)


class Follows(Rows):
    follow_s = 10.0
    more: list[Split] = []

    def splits(self, config: dict[str, Any]) -> list[Split]:
        return [*super().splits(config), *self.more]


def test_a_spout_that_follows_finds_new_splits_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with Simulator(topology(Follows, Sets, "EFFECTIVELY_ONCE")) as run:
        run.run(seconds=5.0)
        assert seen(run) == ALL
        monkeypatch.setattr(Follows, "more", [Split("new", 1, {"size": 2})])
        run.run(seconds=25.0)
        assert seen(run) == sorted([*ALL, ["new", 0], ["new", 1]])
        assert not run.is_finished


def test_a_stream_behind_a_batch_skips_its_splits() -> None:
    class Behind(Follows):
        more = [Split("new", 1, {"size": 2})]

        def initialize(self, config: Any, context: Any) -> None:
            super().initialize(config, context)
            for (name, number), value in done_state(Rows.splits(self, config)).items():
                if self._positions.owns((name, number)):
                    self._positions[name, number] = value

    with Simulator(topology(Behind, Sets, "EFFECTIVELY_ONCE")) as run:
        run.run(seconds=5.0)
        assert seen(run) == [["new", 0], ["new", 1]]


@pytest.mark.parametrize(
    ("splits", "why"),
    [
        (["a"], "must return Split objects"),
        ([Split("a"), Split("a")], "needs a unique name, not 'a'"),
        ([Split("")], "needs a unique name"),
        ([Split("a", -1)], "split 'a' has -1 bytes"),
        ([Split("a", 1, object())], "must be JSON values"),
        ([Split("a", 1, "x" * SPLIT_BYTES_MAX)], "exceeds the limit"),
    ],
)
def test_invalid_splits_are_refused_by_name(splits: list[Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        checked_splits(splits)
