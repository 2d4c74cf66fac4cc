"""Checks the contract that every `SplitSpout` must meet; for use in tests."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from heronpy.api.spout.split_spout import Split, SplitSpout, checked_splits
from heronpy.api.topology import TopologyBuilder
from heronpy.common.units import counted
from heronpy.simulator.simulator import Simulator

#: Numbers of tasks with which a stream is compared.
_TASKS = (1, 3)


def check_split_spout(kind: type[SplitSpout], config: dict[str, Any] | None = None) -> None:
    """Check that a spout emits the same tuples from the same splits, as a stream with one or three tasks and as a batch
    run.

    Raises AssertionError with the first difference, and ConfigError for invalid splits.
    """
    config = dict(config or {})
    spec = kind.spec("spout", config=config)
    spout = kind(SimpleNamespace(logger=logging.getLogger("heron.simulator")))
    first, second = (checked_splits(spout.splits(dict(config))) for _ in range(2))
    _compare("the results of two calls to splits()", _names(first), _names(second))
    streams = sorted(spec.output_streams())
    batch = Simulator.run_batch(_topology(kind, config, 1))
    wanted = {stream: _counted(batch.emitted("spout", stream)) for stream in streams}
    for tasks in _TASKS:
        with Simulator(_topology(kind, config, tasks)) as run:
            run.run()
            for stream in streams:
                what = f"the tuples of stream {stream!r} from {counted(tasks, 'task')} and from a batch run"
                _compare(what, _counted(run.emitted("spout", stream)), wanted[stream])
    for tasks in _TASKS:
        for index in range(tasks):
            state = spout.follow_state(first, index, tasks)
            assert hasattr(state, "items"), f"follow_state must return a mapping, not {state!r:.100}"


def _topology(kind: type[SplitSpout], config: dict[str, Any], tasks: int) -> TopologyBuilder:
    builder = TopologyBuilder("contract")
    builder.add_spout("spout", kind, par=tasks, config=config)
    return builder


def _names(splits: Sequence[Split]) -> Counter[str]:
    return Counter(repr(split) for split in splits)


def _counted(rows: Sequence[Any]) -> Counter[str]:
    return Counter(map(repr, rows))


def _compare(what: str, found: Counter[str], wanted: Counter[str]) -> None:
    more, fewer = next(iter(found - wanted), None), next(iter(wanted - found), None)
    assert more is None and fewer is None, f"{what} differ: only the first has {more}, only the second has {fewer}"
