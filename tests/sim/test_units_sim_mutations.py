"""The simulation of work units finds bugs: each test plants one in the product, and some seed of a few must fail (F39)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from heronpy.growing import chunks
from heronpy.ingest import unit as units
from heronpy.ingest import watch
from heronpy.ingest.attempt import Attempt
from heronpy.ingest.keeper import LogKeeper
from heronpy.ingest.ledger import finishing, leasing, machine, requests, tracking
from heronpy.ingest.ledger.client import Ledger
from heronpy.ingest.ledger.draft import Draft
from heronpy.ingest.ledger.reaching import Reached
from heronpy.ingest.ledger.store import SiteScan
from heronpy.ingest.ledger.types import Scanned, Span
from heronpy.ingest.outputs.stages import Stages
from heronpy.ingest.worker import LogWorker
from tests.sim.planted import Patch, Run, each, found_by, passes
from tests.sim.units import run_units
from tests.sim.units_after import run_two
from tests.sim.units_ledgers import run_homes, run_sealed, run_sites
from tests.support.memory_ledger import Tables

SEEDS = 150


def _handled(patch: pytest.MonkeyPatch, kind: type, bug: Callable[..., Any]) -> None:
    patch.setitem(machine._HANDLERS, kind, bug)


def commit_without_generation(patch: pytest.MonkeyPatch) -> None:
    """An attempt that was begun before a rebuild counts after it."""

    def commit(draft: Draft, request: requests.Commit, who: requests.Who) -> requests.Committed:
        return finishing.commit(draft, replace(request, generation=draft.pipeline.generation), who)

    _handled(patch, requests.Commit, commit)


def publish_before_the_record(patch: pytest.MonkeyPatch) -> None:
    """A worker publishes what it has staged, and asks the ledger afterwards."""
    finish = Attempt._finish

    def publish(self: Attempt, writer: Any) -> requests.Commit:
        request = finish(self, writer)
        self._stages.publish(request.generation, request.unit, request.attempt)
        return request

    patch.setattr(Attempt, "_finish", publish)


def record_before_the_publication(patch: pytest.MonkeyPatch) -> None:
    """The ledger is told that a unit is visible before it is."""
    publish = LogKeeper._publish

    def told(self: LogKeeper) -> bool:
        found = self._asking.ask(requests.ListFinished()).units
        if not found:
            return publish(self)
        self._asking.ask(requests.Published(tuple(one.unit for one in found), self._generation))
        for one in found:
            self._stages.publish(one.generation, one.unit, one.winner)
        return True

    patch.setattr(LogKeeper, "_publish", told)


def merge_across_files(patch: pytest.MonkeyPatch) -> None:
    merge = Draft._merge

    def merged(self: Draft, file: int, spans: dict[int, Span]) -> None:
        merge(self, 1, spans)

    patch.setattr(Draft, "_merge", merged)


def trust_who_has_slept(patch: pytest.MonkeyPatch) -> None:
    """A keeper that has missed files may say that a renamed one is new."""
    patch.setattr(tracking, "_knows_all", lambda draft, request: True)


def trust_the_inode(patch: pytest.MonkeyPatch) -> None:
    """A worker reads the path of its file, although another file may be there by now."""
    patch.setattr(units, "file_matches", lambda head, descriptor: True)


def cut_unfinished_lines(patch: pytest.MonkeyPatch) -> None:
    """A line counts before its end is written, so a reader gets an incomplete line."""

    def lenient(*args: Any, **options: Any) -> Iterator[chunks.Lines]:
        with suppress(chunks.UnfinishedLineError):
            yield from chunks.read_chunk(*args, **options)

    patch.setattr(watch, "safe_size", lambda descriptor, size, known=0: size)
    patch.setattr(units, "read_chunk", lenient)


def keep_older_stages(patch: pytest.MonkeyPatch) -> None:
    """After a rebuild, the stages of the lost ledger may still be published."""
    patch.setattr(Stages, "drop_older", lambda self, generation: None)
    patch.setattr(Stages, "refuse_older", lambda self, generation: None)


def remove_live_stages(patch: pytest.MonkeyPatch) -> None:
    """Stages are removed without asking whether their units live."""
    staged = Stages.staged_units

    def none_lives(self: Stages, generation: int) -> dict[int, list[Path]]:
        found = staged(self, generation)
        for stages in found.values():
            for stage in stages:
                self.discard(stage)
        return found

    patch.setattr(Stages, "staged_units", none_lives)


def finish_late(patch: pytest.MonkeyPatch) -> None:
    """The lineage of a stage is written after the record in the ledger."""
    finish, take = Stages.finish, LogWorker._take
    waiting: dict[int, tuple[Path, Any]] = {}

    def later(self: Stages, stage: Path, lineage: Any) -> None:
        waiting[lineage.unit] = stage, lineage

    def taken(self: LogWorker, request: Any, answer: object) -> None:
        if isinstance(request, requests.Commit) and request.unit in waiting:
            stage, lineage = waiting.pop(request.unit)
            if stage.exists():
                finish(self._stages, stage, lineage)
        take(self, request, answer)

    patch.setattr(Stages, "finish", later)
    patch.setattr(LogWorker, "_take", taken)


def forget_bad_lines(patch: pytest.MonkeyPatch) -> None:
    """The record of a bad line dies with its worker."""
    patch.setattr(LogKeeper, "_complete_records", lambda self, watch: None)


def no_backups(patch: pytest.MonkeyPatch) -> None:
    """A lease never ends, and no worker takes the unit of a dead process."""
    patch.setattr(leasing, "_candidates", lambda draft, orphans, paces, with_backups: leasing._ready(draft))
    _handled(patch, requests.GiveBack, lambda draft, request, who: requests.Returned(()))


#: Bug, and a seed that is known to find it.
PLANTED: list[tuple[Patch, int]] = [
    (commit_without_generation, 10),
    (publish_before_the_record, 44),
    (record_before_the_publication, 1),
    (merge_across_files, 0),
    (trust_who_has_slept, 24),
    (trust_the_inode, 2),
    (cut_unfinished_lines, 0),
    (keep_older_stages, 5),
    (remove_live_stages, 15),
    (finish_late, 1),
    (forget_bad_lines, 4),
    (no_backups, 0),
]
#: Kinds of faults that find a bug more often.
AMONG = {commit_without_generation: ("worker_sleeps",), keep_older_stages: ("keeper_sleeps",)}
#: Quick enough for every day: the worst bugs there could be, and one that nearly every seed finds.
SHORT = {commit_without_generation, publish_before_the_record, merge_across_files, cut_unfinished_lines}
#: Seeds that are known to find a bug, too, when the product has changed: tried before all others.
ALSO = {
    commit_without_generation: (11, 20, 25),
    publish_before_the_record: (16, 18, 37, 40),
    merge_across_files: (1, 2, 3),
    keep_older_stages: (13, 16, 21),
}


@pytest.mark.parametrize(("plant", "seed"), each(PLANTED, SHORT))
def test_a_planted_bug_is_found(plant: Patch, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # The product changes, and another seed may find it then.
    seeds = (seed, *ALSO.get(plant, ()), *range(SEEDS))
    finds(run_units, plant, seeds, monkeypatch, among=AMONG.get(plant, ()))


def finds(run: Run, plant: Patch, seeds: Sequence[int], monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    """The bug is to blame for what a seed finds: without it the seed passes."""
    with monkeypatch.context() as patch:
        plant(patch)
        seed = found_by(run, seeds, **options)
    assert seed is not None, f"found by none of {len(seeds)} seeds"
    passes(run, (seed,), **options)


# ---- several pipelines -----------------------------------------------------------------------
def forget_open_bytes(patch: pytest.MonkeyPatch) -> None:
    """A pipeline does not wait for bytes that the other one has seen and not published."""
    patch.setattr(Tables, "oldest_open", lambda self, pipeline: None)


def forget_looks(patch: pytest.MonkeyPatch) -> None:
    """A pipeline does not wait for bytes that the other one has not seen yet."""
    always = SiteScan(Scanned("", 0.0, math.inf, True), True, math.inf)
    patch.setattr(Tables, "scans", lambda self, pipeline: [always])


def work_by_any_map(patch: pytest.MonkeyPatch) -> None:
    """A process that works by an older map is not refused."""
    patch.setattr(Ledger, "follow", lambda self, version: None)


def take_what_others_refuse(patch: pytest.MonkeyPatch) -> None:
    """A map is changed although a ledger of it is somebody else's."""
    patch.setattr(Reached, "_refuse_change", lambda self, changed: None)


def share_the_table(patch: pytest.MonkeyPatch) -> None:
    """Any ledger may write it."""
    patch.setattr(Stages, "refuse", lambda self, pipeline, ledger="": None)
    patch.setattr(Stages, "refuse_other_ledger", lambda self, ledger: None)


def grow_what_is_sealed(patch: pytest.MonkeyPatch) -> None:
    """Looks after the first one add and grow files."""
    for name in ("_file_of", "_grow"):
        real = getattr(tracking, name)
        patch.setattr(tracking, name, lambda *about, real=real: real(*about[:-1], False))


PLANTED_BESIDE = [
    (forget_open_bytes, run_two),
    (forget_looks, run_two),
    (work_by_any_map, run_sites),
    (take_what_others_refuse, run_sites),
    (share_the_table, run_homes),
    (grow_what_is_sealed, run_sealed),
]


@pytest.mark.parametrize(("plant", "run"), each(PLANTED_BESIDE, ()))
def test_a_planted_bug_beside_others_is_found(plant: Patch, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    finds(run, plant, range(60), monkeypatch)
