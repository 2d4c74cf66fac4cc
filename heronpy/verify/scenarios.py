"""The faults of a verification, by number (F01, F02, ...).

A scenario is a function that acts on a running topology, with the input and settings that its run needs. `runs` is the
number of repetitions; `world.short` shortens acts that take minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from heronpy.api.api_constants import TOPOLOGY_MAX_SPOUT_PENDING
from heronpy.common.errors import ConfigError
from heronpy.common.setting_types import SettingValue
from heronpy.verify import acts, damage, verbs
from heronpy.verify.acts import Act
from heronpy.verify.batch import acts as batch
from heronpy.verify.batch.world import BATCH
from heronpy.verify.proxy import Rule
from heronpy.verify.spark import TABLES
from heronpy.verify.stream import MODES
from heronpy.verify.units import acts as units
from heronpy.verify.units.topology import POINTS
from heronpy.verify.world import World

#: Seconds of a run in addition to its faults, and the maximum per fault in a short run.
START_S, SHORT_S = 8.0, 8.0

ACKED = ("ATLEAST_ONCE", "EFFECTIVELY_ONCE")
EXACT = ("EFFECTIVELY_ONCE",)


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    about: str
    act: Act
    times: int = 1
    """Number of repetitions in a full run."""
    each_s: float = 5.0
    """Approximate seconds of one fault in a full run."""
    modes: tuple[str, ...] = MODES
    usual: tuple[str, ...] = EXACT
    """The default modes."""
    input: dict[str, Any] = field(default_factory=dict)
    """Fields of the input."""
    settings: Mapping[str, SettingValue] = field(default_factory=dict)
    """Settings of the topology; the run's settings override them."""
    proxy: bool = False
    """Whether the stream managers reach each other and the topology master through the fault proxy."""
    small_disk: str = ""
    """Folder in HERON_HOME that is on a disk of a few megabytes; "" for none."""
    units: bool = False
    """Whether the topology processes work units from rotating logs."""
    poison: int = 0
    """Work units: one line in about this number cannot be processed. Batch run: whether there are such lines."""
    whole: bool = False
    """Work units: whether user code reads all lines of a unit before it makes a row."""
    sites: bool = False
    """Work units: whether the pipeline runs on two sites."""
    server: bool = False
    """Work units: whether the ledger is in the run's own PostgreSQL."""
    until: str = "forever"
    """Work units: the argument `until` of `LogUnits.specs`."""
    spark: bool = False
    """Whether the sink is a SparkSink, whose table contains the records."""

    def seconds(self, full: bool, times: int | None) -> float:
        """Return the approximate duration of a run in seconds, without its baseline."""
        each = self.each_s if full else min(self.each_s, SHORT_S)
        return START_S + each * (times or (self.times if full else 1))


#: Frequent checkpoints, so that a short run has several.
_OFTEN: dict[str, SettingValue] = {"heron.checkpoint.interval_s": 0.5}
_STANDBY: dict[str, SettingValue] = {"heron.tmaster.standbys": 1, "heron.tmaster.takeover_s": 1.0}
#: Rare checkpoints, so that no checkpoint completes between reading the newest checkpoint and a kill.
_RARELY: dict[str, SettingValue] = {"heron.checkpoint.interval_s": 3.0}
_FILES = {**_OFTEN, "heron.checkpoint.inline_max_bytes": 0}
#: Many deaths are intended; they must not end the topology.
_PATIENT = {
    "heron.executor.restart_budget": 100_000,
    "heron.executor.restart_exception_budget_s": 0,
    "heron.executor.restart_backoff_max_s": 0.2,
}
_POISON = {
    **_OFTEN,
    **_PATIENT,
    "heron.checkpoint.restore_budget": 1000,
    "heron.instance.poison_tries": verbs.POISON_TRIES,
    "heron.instance.execute_timeout_s": 1.0,
}
_CRASHES = {"heron.executor.restart_budget": 4, "heron.executor.restart_backoff_max_s": 1.0}
#: A barrier waits behind a minute of tuples; a snapshot waits for a single tuple.
_CLAMPED = {**_OFTEN, "heron.checkpoint.timeout_s": 4.0}
_LIMITED: dict[str, SettingValue] = {"heron.instance.memory_limit_bytes": "1GB", **_PATIENT}
_SLOWLY = {**_OFTEN, **_PATIENT, "heron.executor.restart_backoff_s": 1.0, "heron.executor.restart_backoff_max_s": 1.0}
_BIG = {"payload_bytes": 4000}
#: All rows of a batch arrive at once, and on a busy machine Spark takes a few hundred rows per second.
_TO_SPARK = {"ordered": False, "rate": 200.0}
#: Pending tuples are processed within the message timeout, even if one task has most of them.
_FEW_PENDING = {TOPOLOGY_MAX_SPOUT_PENDING: 500}

_KILLS = (
    Scenario("none", "no fault", acts.nothing, 1, 60.0, (*MODES, BATCH), (*MODES, BATCH)),
    Scenario("F01-spout", "kill -9 a spout task", acts.kill_task("source"), 50, 2.0, usual=MODES),
    Scenario("F01-bolt", "kill -9 a bolt task", acts.kill_task("work"), 50, 2.0, usual=MODES),
    Scenario("F01-sink", "kill -9 a sink task", acts.kill_task("sink"), 50, 2.0, usual=MODES),
    Scenario("F02", "kill -9 a stream manager", acts.kill_stmgr, 20, 4.0, usual=MODES),
    Scenario("F03", "kill -9 the topology master", acts.kill_tmaster, 20, 3.0, usual=ACKED),
    Scenario("F03-standby", "kill -9 the active topology master while a standby runs", acts.kill_tmaster, 20, 3.0,
             usual=ACKED, settings=_STANDBY),
    Scenario("F03-down", "no topology master for 10 minutes", acts.tmaster_down, 1, 620.0, settings=_SLOWLY),
    Scenario("F04", "kill -9 an executor; its processes must end too", acts.kill_executor, 10, 6.0, usual=ACKED),
    Scenario("F05", "kill -9 every process of a container", acts.kill_container, 10, 6.0, usual=ACKED),
    Scenario("F05-all", "kill -9 every process of all containers", acts.kill_all_containers, 5, 8.0, usual=ACKED),
    Scenario("F06", "kill -9 observers: commands and scrapers", verbs.beside, 1, 300.0, usual=("ATMOST_ONCE",)),
    Scenario("F08", "chaos monkey: kill or stop processes at random", acts.monkey, 1, 1800.0, settings=_PATIENT),
    Scenario("F09", "kill -9 during a restore, and while a checkpoint is taken", acts.kill_in_restore, 10, 5.0, EXACT),
    Scenario("F10-task", "SIGSTOP a task, then SIGCONT", acts.stop("sink"), 3, 60.0, usual=ACKED),
    Scenario("F10-stmgr", "SIGSTOP a stream manager, then SIGCONT", acts.stop("stmgr"), 3, 60.0, usual=ACKED),
    Scenario("F10-tmaster", "SIGSTOP the topology master, then SIGCONT", acts.stop("tmaster"), 3, 60.0, usual=ACKED),
    Scenario("F10-executor", "SIGSTOP an executor, then SIGCONT", acts.stop("executor"), 3, 60.0, usual=ACKED),
    Scenario("F10-guardian", "SIGSTOP the scheduler's guardian, then SIGCONT", acts.stop(acts.GUARDIAN), 3, 60.0,
             usual=ACKED),
    Scenario("F10-scheduler", "SIGSTOP the scheduler, then SIGCONT", acts.stop(acts.SCHEDULER), 3, 60.0, usual=ACKED),
    Scenario("F10-fork-server", "SIGSTOP the scheduler's fork server, then SIGCONT", acts.stop(acts.FORK_SERVER), 3,
             60.0, usual=ACKED),
    Scenario("F10-fork-servers", "SIGSTOP the executors' fork servers, then SIGCONT", acts.stop(acts.FORK_SERVERS), 3,
             60.0, usual=ACKED),
    Scenario("F10-all", "SIGSTOP every process of the topology, then SIGCONT", acts.stop(acts.EVERY_PROCESS), 3, 60.0,
             usual=ACKED),
    Scenario("F11", "crash loop: a bolt task dies at every start", verbs.crash_loop, 1, 30.0, settings=_CRASHES),
)  # fmt: skip

_LINKS = (
    Scenario("F12", "network partition of two containers", acts.partition, 3, 60.0, usual=MODES),
    Scenario("F12-one-way", "one-way network partition of containers", acts.partition_one_way, 3, 15.0, usual=MODES),
    Scenario("F12-flap", "repeated short network partitions", acts.partition_flapping, 50, 6.0, usual=MODES),
    Scenario("F13", "a container cannot reach the topology master", acts.partition_tmaster, 3, 25.0, usual=MODES),
    Scenario("F14-reset", "1 % of reads reset the connection", acts.bad_link(Rule(reset_share=0.01)), 3, 20.0,
             ACKED, ACKED),
    Scenario("F14-delay", "network delay of 200 ms +- 100 ms", acts.bad_link(Rule(delay_s=0.2, jitter_s=0.1)), 3, 20.0,
             usual=MODES),
    Scenario("F14-corrupt", "flipped bits in network data", acts.corrupt, 3, 20.0, ACKED, ACKED),
    Scenario("F15", "one link limited to 1 Mbit/s", acts.throttle, 3, 20.0, usual=MODES, input={"payload_bytes": 600}),
    Scenario("F16", "half-open connections", acts.half_open, 5, 15.0, usual=MODES),
)  # fmt: skip

_USER_CODE = (
    Scenario("F17", "slow bolt: one slow task holds back the spouts", acts.slow_bolt, 1, 75.0, usual=ACKED,
             settings=_OFTEN),
    Scenario("F18", "a sink task stopped for 10 minutes", acts.stopped_sink, 1, 620.0),
    Scenario("F19", "poison tuples: raise, exit, recurse, segfault, hang, emit 64 MB", verbs.poison, 1, 60.0,
             ACKED, ACKED, input={"poison": 3}, settings=_POISON),
    Scenario("F42", "kill -9 bolts that process many equal tuples, 1 ms each", acts.kill_busy, 5, 30.0,
             usual=MODES, input={"distinct": 16, "work_ms": 1.0, "rate": 200.0},
             settings=_OFTEN | _PATIENT | _FEW_PENDING),
    Scenario("F43", "values that cannot be decoded", verbs.poison, 1, 10.0, usual=MODES, input={"undecodable": 3},
             settings=_OFTEN),
    Scenario("F25", "a bolt leaks memory up to its limit", acts.leak, 1, 120.0, settings=_LIMITED),
    Scenario("F35", "backlog: all sinks stopped under full input, then continued", acts.backlog, 1, 660.0),
    Scenario("F36", "hot key with 90 % of the tuples", acts.nothing, 1, 60.0, input={"hot_share": 0.9}),
    Scenario("F36-zipf", "Zipf-distributed keys, exponent 1.2", acts.nothing, 1, 60.0, input={"zipf": 1.2}),
    Scenario("F38", "aligned checkpoints under full backpressure", acts.checkpoint_under_backpressure(False),
             3, 30.0, EXACT, input=_BIG, settings={**_CLAMPED, "heron.checkpoint.aligned_timeout_s": 3600.0}),
    Scenario("F38-unaligned", "unaligned checkpoints under full backpressure",
             acts.checkpoint_under_backpressure(True), 3, 30.0, EXACT, input=_BIG,
             settings={**_CLAMPED, "heron.checkpoint.aligned_timeout_s": 0.0}),
)  # fmt: skip

_HOSTS = (
    Scenario("F21-store", "no space in the checkpoint store", damage.full_store, 3, 10.0, EXACT,
             settings=_FILES | _PATIENT, small_disk="checkpoints"),
    Scenario("F21-logs", "no space for logs", damage.full_logs, 3, 10.0, settings=_OFTEN, small_disk="topologies"),
    Scenario("F21-state", "no space for the state manager", damage.full_state, 3, 10.0,
             settings=_OFTEN | _PATIENT, small_disk="state"),
    Scenario("F21-packages", "no space in the package cache", damage.full_packages, 3, 10.0, small_disk="packages"),
    Scenario("F21-spark-handover", "no space for the batches of a Spark sink", damage.full_spark, 3, 40.0, EXACT,
             input=_TO_SPARK, settings=_PATIENT, small_disk="topologies", spark=True),
    Scenario("F21-spark-table", "no space for the table of a Spark sink", damage.full_spark, 3, 40.0, EXACT,
             input=_TO_SPARK, settings=_PATIENT, small_disk=TABLES, spark=True),
    Scenario("F23", "damaged checkpoint: restore from the previous checkpoint", damage.damaged_checkpoint, 3, 30.0,
             EXACT, settings=_FILES | _PATIENT),
    Scenario("F23-none", "no intact checkpoint: the topology fails", damage.no_checkpoint_left, 3, 10.0, EXACT,
             settings={**_RARELY, "heron.checkpoint.allow_empty": False}),
    Scenario("F23-empty", "no intact checkpoint: the topology starts empty if allowed",
             damage.empty_when_no_checkpoint_is_left, 3, 10.0, EXACT,
             settings={**_RARELY, "heron.checkpoint.allow_empty": True}),
    Scenario("F24", "invalid data in the state manager", damage.garbage_in_state, 4, 10.0, settings=_OFTEN | _PATIENT),
    Scenario("F24-future", "state written by a later version", damage.future_state, 3, 10.0, settings=_OFTEN),
    Scenario("F26", "submit with a limit of 64 open files", verbs.few_files, 3, 10.0, usual=("ATMOST_ONCE",)),
    Scenario("F44", "two adjacent components scaled up under load", verbs.grow_neighbours, 5, 40.0, usual=MODES,
             input={"ordered": False}, settings=_OFTEN),
    Scenario("F34", "commands repeated, run concurrently, and killed", verbs.duplicate_verbs, 3, 20.0, settings=_OFTEN),
)  # fmt: skip

_AT_POINT = {
    "stage": "while rows are staged",
    "prepare": "before rows are on disk",
    "record": "before the ledger records the unit",
    "publish": "before the rename into the table",
    "settle": "before the ledger records the rename",
    "clean": "before staged rows of losing attempts are removed",
}

#: A site counts as lost after twice this silence.
_SOON_SILENT: dict[str, SettingValue] = {"heron.ingest.silent_s": 5.0}

_UNITS = (
    Scenario("units", "work units over rotating logs, no fault", acts.nothing, 1, 60.0),
    *(Scenario(f"U15-{point}", f"kill -9 and SIGSTOP a process {_AT_POINT[point]}", units.ends_at(point), 20, 20.0)
      for point in POINTS),
    Scenario("U21", "a worker is stopped while it has a unit: a backup wins", units.straggler, 3, 15.0),
    Scenario("U22", "kill -9 a whole site of work units, then take the site down", units.site_down, 3, 40.0,
             sites=True),
    Scenario("U22-silent", "SIGSTOP a whole site of work units, without notice to the ledger", units.site_silent, 3,
             30.0, sites=True, settings=_SOON_SILENT),
    Scenario("U23", "user code hangs on one site of work units", units.site_partly_away, 1, 80.0,
             sites=True),
    Scenario("U29", "lines of work units at which code raises or ends its process", units.poison, 3, 30.0, poison=4000),
    Scenario("U29-whole", "lines at which code raises or ends its process after it has read the whole unit",
             units.poison, 3, 40.0, poison=12000, whole=True),
    Scenario("U31", "the ledger of work units is lost and rebuilt from the table", units.lose_the_ledger, 3, 20.0),
    Scenario("U35", "a second ledger for the same table", units.another_ledger, 3, 40.0),
    Scenario("U36", "bounded runs of work units while logs grow", units.bounded_runs, 3, 40.0, until="now"),
    Scenario("F01-worker", "kill -9 a worker of work units", acts.kill_task(units.WORKER), 50, 2.0),
    Scenario("F01-keeper", "kill -9 a keeper of work units", acts.kill_task(units.KEEPER), 50, 2.0),
    Scenario("F04-units", "kill -9 an executor of work units; its processes must end too", acts.kill_executor, 10, 6.0),
    Scenario("F08-units", "chaos monkey on work units", acts.monkey, 1, 1800.0),
    Scenario("F10-worker", "SIGSTOP a worker of work units, then SIGCONT", acts.stop(units.WORKER), 3, 60.0),
    Scenario("F10-keeper", "SIGSTOP a keeper of work units, then SIGCONT", acts.stop(units.KEEPER), 3, 60.0),
    Scenario("F21-table", "no space for the table of work units", units.no_space, 3, 10.0, small_disk="tables"),
    Scenario("F21-ledger", "no space for the ledger of work units", units.no_space, 3, 10.0, small_disk="ledger"),
    Scenario("F27-units", "work units with wall clocks that jump and differ", units.wrong_clocks, 3, 10.0),
    Scenario("F28-units", "the ledger of work units is unavailable for 60 s", units.ledger_away, 3, 70.0),
    Scenario("F28-postgres", "the PostgreSQL ledger of work units is unavailable for 60 s", units.server_away, 3,
             70.0, server=True),
)  # fmt: skip

_BATCH = (
    Scenario("batch-worker", "kill -9 a worker of a batch run", batch.kill_worker, 20, 4.0),
    Scenario("batch-worker-stops", "SIGSTOP a worker of a batch run, then SIGCONT", batch.stop_worker, 3, 120.0),
    Scenario("batch-keeper", "kill -9 a keeper of a batch run", batch.kill_keeper, 20, 4.0),
    Scenario("batch-keeper-stops", "SIGSTOP a keeper of a batch run, then SIGCONT", batch.stop_keeper, 3, 120.0),
    Scenario("batch-kills", "kill -9 a worker of a batch run every 2 s", batch.kills, 1, 240.0),
    Scenario("batch-monkey", "chaos monkey on a batch run", batch.monkey, 1, 1800.0),
    Scenario("batch-executor", "kill -9 an executor of a batch run; its processes must end too", batch.kill_executor,
             10, 12.0),
    Scenario("batch-tmaster", "kill -9 the topology master of a batch run", batch.kill_tmaster, 10, 6.0),
    Scenario("batch-scheduler", "kill -9 the scheduler of a batch run", batch.kill_scheduler, 10, 12.0),
    Scenario("batch-preempted", "SIGTERM to a worker of a batch run", batch.preempt, 20, 4.0),
    Scenario("batch-disk", "no space for the files of a batch run", batch.no_space, 3, 20.0, small_disk="batch"),
    Scenario("batch-state", "the state manager of a batch run is unavailable", batch.state_away, 3, 70.0),
    Scenario("batch-poison", "lines of a batch run at which code raises or ends its process", batch.poison, 1, 60.0,
             poison=1),
)  # fmt: skip

_ALL = (
    *_KILLS, *(replace(one, proxy=True) for one in _LINKS), *_USER_CODE, *_HOSTS,
    *(replace(one, units=True, usual=("ATMOST_ONCE",), settings={**_PATIENT, **one.settings}) for one in _UNITS),
    *(replace(one, modes=(BATCH,), usual=(BATCH,), settings=_PATIENT) for one in _BATCH),
)  # fmt: skip


def scenarios() -> dict[str, Scenario]:
    return {one.name: one for one in _ALL}


def find(words: tuple[str, ...]) -> list[Scenario]:
    """Return the named scenarios. `F01` also selects every `F01-...`, and `all` selects all scenarios."""
    known = scenarios()
    if "all" in words:
        return list(known.values())
    found: dict[str, Scenario] = {}
    for word in words:
        chosen = {name: one for name, one in known.items() if name == word or name.startswith(f"{word}-")}
        if not chosen:
            raise ConfigError(f"there is no fault '{word}'; choose one of {', '.join(known)}")
        found.update(chosen)
    return list(found.values())


def together(chosen: list[Scenario]) -> list[Scenario]:
    """Combine the faults into as few runs as possible; a run injects its faults one after the other.

    Faults that need another topology, input, disk, or value of a setting have separate runs.
    """
    runs: list[list[Scenario]] = []
    for one in chosen:
        for run in runs:
            if all(_go_together(one, other) for other in run):
                run.append(one)
                break
        else:
            runs.append([one])
    return [_in_one_run(run) for run in runs]


def _go_together(one: Scenario, other: Scenario) -> bool:
    needs = [(s.units, s.spark, s.whole, s.sites, s.server, s.until, s.poison, s.input) for s in (one, other)]
    same_disk = one.small_disk == other.small_disk or not (one.small_disk and other.small_disk)
    shared = one.settings.keys() & other.settings.keys()
    return needs[0] == needs[1] and same_disk and all(one.settings[key] == other.settings[key] for key in shared)


def _in_one_run(chosen: list[Scenario]) -> Scenario:
    settings: dict[str, SettingValue] = {}
    for one in chosen:
        settings |= one.settings

    def act(world: World, runs: int) -> None:
        for one in chosen:
            one.act(world, runs)

    return replace(
        chosen[0],
        name="+".join(one.name for one in chosen),
        about="; ".join(one.about for one in chosen),
        act=act,
        each_s=sum(one.times * one.each_s for one in chosen),
        times=1,
        modes=tuple(mode for mode in (*MODES, BATCH) if all(mode in one.modes for one in chosen)),
        settings=settings,
        proxy=any(one.proxy for one in chosen),
        small_disk=max(one.small_disk for one in chosen),
    )
