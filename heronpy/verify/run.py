"""Runs the built-in topology with or without a fault, and checks the result.

The input is bounded, so every record is final. The oracle judges the run in this process, from seed and records only.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from heronpy.common.errors import ConfigError
from heronpy.common.setting_types import InstanceSettings, SettingValue, StmgrSettings
from heronpy.loadtest.cluster import Cluster, Topology
from heronpy.loadtest.errors import LabError
from heronpy.loadtest.histogram import quantile
from heronpy.loadtest.run import facts
from heronpy.verify.acts import Act
from heronpy.verify.batch.world import BATCH, BatchWorld
from heronpy.verify.disk import SmallDisk
from heronpy.verify.oracle import Limits, Verdict
from heronpy.verify.proxy import FaultProxy
from heronpy.verify.scenarios import Scenario
from heronpy.verify.spark import SparkWorld
from heronpy.verify.stream import MODES, InputSpec
from heronpy.verify.units.world import UnitWorld
from heronpy.verify.world import World

SCHEMA = 1
#: Time limit from the submit to the first tuple.
FIRST_S = 120.0
#: Size of the small disk.
SMALL_DISK_BYTES = 16 << 20
#: Bytes of a tuple of the built-in topology in addition to its payload.
OVERHEAD_BYTES = 40

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Run:
    mode: str = "ATLEAST_ONCE"
    containers: int = 2
    tasks: int = 2
    """Number of tasks per component."""
    duration_s: float = 10.0
    """Minimum duration of the input, which continues until the last fault is over."""
    baseline_s: float = 3.0
    """Undisturbed traffic before the first fault."""
    faults: int = 1
    """Number of repetitions of each fault."""
    short: bool = True
    pause_ms: float = 0.0
    max_spout_pending: int = 5000
    message_timeout_s: int = 15
    stall_max_s: float = 60.0
    memory_max_bytes: int = 1 << 30
    input: InputSpec = field(default_factory=lambda: InputSpec(rate=1000.0))
    settings: Mapping[str, SettingValue] = field(default_factory=dict)

    def check(self) -> Run:
        """Return the run. Raises ConfigError if it is invalid."""
        if self.mode not in (*MODES, BATCH):
            raise ConfigError(f"unknown mode '{self.mode}'; modes are {', '.join(MODES)} and {BATCH}")
        for name in ("containers", "tasks", "faults"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} of a verification must be above 0, not {getattr(self, name)}")
        if not self.input.rate:
            raise ConfigError(
                "a verification needs a rate above 0, because recovery is the time until that rate is reached again"
            )
        self.input.check()
        return self


def with_scenario(run: Run, scenario: Scenario) -> Run:
    """Return the run with the scenario's input and settings; the input ends on request."""
    source = replace(run.input, **scenario.input, count=0)
    settings = {**scenario.settings, **run.settings}
    if run.mode == "EFFECTIVELY_ONCE":
        # Choose the interval so that faults happen both between and during checkpoints.
        settings.setdefault("heron.checkpoint.interval_s", 1.0)
    return replace(run, input=source, settings=settings).check()


def loss_bound(run: Run, faults: int) -> int:
    """Return how many tuples may be lost in at-most-once mode if this number of processes is killed."""
    stmgr, instance = StmgrSettings(), InstanceSettings()
    tasks = 3 * run.tasks
    per_task = instance.in_queue_bytes_max + instance.out_queue_bytes_max + stmgr.instance_out_window_bytes
    links = run.containers * (run.containers - 1) * stmgr.link_window_bytes
    in_flight = (tasks * per_task + links) // (run.input.payload_bytes + OVERHEAD_BYTES)
    return faults * int(in_flight)


def verify_run(where: Cluster, wanted: Run, scenario: Scenario, number: int, say: Say) -> dict[str, Any]:
    """Do one run; return the result document."""
    run = with_scenario(wanted, scenario)
    if run.mode not in scenario.modes:
        raise ConfigError(f"fault {scenario.name} is defined for {' and '.join(scenario.modes)}, not for {run.mode}")
    if scenario.small_disk and not where.temporary:
        raise ConfigError(f"fault {scenario.name} needs its own home; leave out --cluster")
    name, seed = f"verify-{number}", run.input.seed + number
    out = where.scratch / name
    kind = BatchWorld if run.mode == BATCH else UnitWorld if scenario.units else SparkWorld if scenario.spark else World
    source = replace(run.input, seed=seed) if scenario.units else run.input
    world = kind(Topology(where, name, out), out, random.Random(seed), run.short, run.mode, source)
    began = time.monotonic()
    with ExitStack() as stack:
        if scenario.proxy:
            world.proxy = FaultProxy(world.link_names, seed)
            stack.callback(world.proxy.close)
            # The proxy connects TCP sockets; its traffic is encrypted.
            through = {"heron.stmgr.socks_proxy": world.proxy.address, "heron.security.transport": "tcp"}
            run = replace(run, settings={**run.settings, **through})
        if scenario.small_disk:
            world.disk = stack.enter_context(SmallDisk(where.home / scenario.small_disk, SMALL_DISK_BYTES))
        shape = {key: getattr(scenario, key) for key in ("poison", "whole", "sites", "server", "until", "spark")}
        world.begin({**asdict(run), **shape, "name": name, "out": str(out), "topology": "topology"}, stack)
        error = play_faults(world, run, scenario.act)
        if world.proxy is not None:
            world.notes["proxy"] = dict(world.proxy.counts)
        deaths = sum(fault.disruptive for fault in world.faults)
        verdict = world.verdict(Limits(loss_bound(run, deaths), run.stall_max_s, run.memory_max_bytes))
        rejected = _rejected(world)
    if error:
        say(f"  {scenario.name}: {error}")
    run = run if scenario.units else replace(run, input=world.input)
    return document(run, scenario, world, verdict, error, rejected, time.monotonic() - began)


def play_faults(world: World, run: Run, act: Act) -> str:
    """Inject the faults, end the input, and wait until it has arrived; return the error, or '' without an error."""
    error = ""
    try:
        world.until(lambda: world.arrived() > 0, FIRST_S, "the first tuple")
        began = time.monotonic()
        world.wait(run.baseline_s)
        act(world, run.faults)
        world.wait(began + run.duration_s - time.monotonic())
        if world.faults:
            world.wait(world.faults[-1].at + world.settle_s - time.monotonic())
    except LabError as failure:
        error = str(failure)
    # A failed act has not reset `may_fail`.
    world.may_fail = False
    world.end_input()
    try:
        # End the input even after a failed act, so that tuples in flight do not count as lost.
        world.settled()
        world.complete = True
    except LabError as failure:
        error = error or str(failure)
    return error


def _rejected(world: World) -> int:
    with suppress(LabError):
        reply = world.topology.metrics(["__stmgr_fenced_tasks", "__stmgr_fenced_links"])
        return int(sum(sample.value for report in reply.reports for sample in report.samples))
    return 0


def document(
    run: Run, scenario: Scenario, world: World, verdict: Verdict, error: str, rejected: int, seconds: float
) -> dict[str, Any]:
    """Return the result document of one run."""
    felt = [one.seconds for one in verdict.recovery if one.seconds is not None]
    back = [fault.back_s for fault in world.faults if fault.back_s is not None]
    return {
        "schema": SCHEMA,
        "kind": "verification",
        **facts(),
        "fault": scenario.name,
        "about": scenario.about,
        "options": json.loads(json.dumps(asdict(run))),
        "seconds": seconds,
        "verdict": verdict.as_json(),
        "faults": [{"what": fault.what, "back_s": fault.back_s} for fault in world.faults],
        "recovery_p50_s": quantile(felt, 0.5),
        "recovery_p99_s": quantile(felt, 0.99),
        "not_recovered": len(verdict.recovery) - len(felt),
        "restart_p50_s": quantile(back, 0.5),
        "restart_p99_s": quantile(back, 0.99),
        "rejected": rejected,
        "notes": world.notes,
        "error": error,
        "ok": verdict.ok and not error,
    }
