"""Asks the topology master for what `heron top` shows, in a thread of its own, so that keys never wait for answers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from google.protobuf.message import Message

from heronpy.cli.look import pipelines
from heronpy.cli.look.full_screen.view import Figures, Wish
from heronpy.cli.output import clean_block
from heronpy.clusters.live_evidence import find_process, take
from heronpy.clusters.log_tail import log_tail
from heronpy.clusters.session import Session
from heronpy.common.errors import DeadlineError, HeronError, InvalidRpcError, RpcError
from heronpy.common.losses import losses_text
from heronpy.common.units import format_duration
from heronpy.health.findings import CALM, from_proto
from heronpy.health.texts import advice, sentence
from heronpy.ingest.keys import has_units
from heronpy.net.rpc import RpcClient
from heronpy.proto import control_pb2
from heronpy.views.load import TASK_METRICS, load_of, tasks_of
from heronpy.views.past import timeline_of
from heronpy.views.units import pipelines_of

ASK_S = 1.0
#: Rates of tasks are of this time.
TASK_WINDOW_S = 10.0
#: What the trends show, and how often they are asked for: a point is a minute.
TREND_S, TREND_EVERY_S = 3600.0, 20.0
_NO_PLAN = (1 << 64) - 1
#: A stack of a task that hangs in C code may be long; more is left out.
STACKS_MAX = 64 * 1024


@dataclass(slots=True)
class _Asked:
    """What was answered, by the thread alone."""

    figures: Figures
    topology_id: str = ""
    has_units: bool = False
    heard_at: float = field(default_factory=time.monotonic)
    trends_at: float = float("-inf")
    stacks: tuple[str, int] | None = None


class Asking:
    """The thread. `wake` is a descriptor to which a byte is written after each look."""

    def __init__(
        self, session: Session, topology: str, interval_s: float, look_for_end: Callable[[bool], None], wake: int
    ) -> None:
        """`look_for_end` is told after each question whether it was answered, and raises when nobody will answer."""
        self._session, self._name, self._interval_s = session, topology, interval_s
        self._look_for_end, self._wake = look_for_end, wake
        self._lock = threading.Condition()
        self._wish = Wish()
        self._newest = Figures(session.target.cluster, topology)
        self._error: Exception | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="asking", daemon=True)

    def start(self) -> None:
        """Begin; once."""
        self._thread.start()

    def want(self, wish: Wish) -> None:
        """Ask for this from now on; a new wish is asked for at once."""
        with self._lock:
            if wish != self._wish:
                self._wish = wish
                self._lock.notify()

    def figures(self) -> Figures:
        """The newest; raises what ended the thread."""
        with self._lock:
            if self._error is not None:
                raise self._error
            return self._newest

    def stop(self) -> None:
        """End, as soon as no question is open."""
        with self._lock:
            self._stopped = True
            self._lock.notify()
        self._thread.join(2 * ASK_S + 0.5)

    def _run(self) -> None:
        asked, links = _Asked(self._newest), ExitStack()
        client: RpcClient | None = None
        try:
            while not self._stopped:
                with self._lock:
                    wish = self._wish
                began = time.monotonic()
                try:
                    if client is None:
                        client = links.enter_context(self._session.tmaster(self._name))
                    found = self._look(client, asked, wish)
                    asked.heard_at = time.monotonic()
                    self._look_for_end(True)
                except HeronError as error:
                    links.close()
                    client = None
                    self._look_for_end(False)
                    silent = format_duration(round(time.monotonic() - asked.heard_at))
                    found = replace(asked.figures, trouble=f"no answer for {silent}: {error}")
                asked.figures = found
                self._post(found)
                with self._lock:
                    if wish == self._wish and not self._stopped:
                        self._lock.wait(max(0.0, began + self._interval_s - time.monotonic()))
        except Exception as error:
            with self._lock:
                self._error = error
            self._post(asked.figures)
        finally:
            links.close()

    def _post(self, figures: Figures) -> None:
        with self._lock:
            self._newest = figures
        try:
            os.write(self._wake, b".")
        except BlockingIOError:
            pass  # it is woken anyway
        except OSError:
            self._stopped = True

    def _look(self, client: RpcClient, asked: _Asked, wish: Wish) -> Figures:
        load: control_pb2.LoadReply = client.call(control_pb2.GetLoad(plan_version=_NO_PLAN), ASK_S)
        before, now = asked.figures, time.monotonic()
        if load.topology_id != asked.topology_id:
            asked.topology_id, asked.trends_at = load.topology_id, float("-inf")
            asked.has_units = has_units(self._session.topology(self._name))
            before = replace(before, trends={}, tasks=None, units=())
        finding = next((one for one in map(from_proto, load.findings) if one is not None), None)
        cluster = self._session.target.cluster
        found = replace(
            before,
            load=load_of(load, load.plan_version),
            uptime_s=load.uptime_s,
            verdict=finding.verdict.value if finding is not None else "",
            sentence=sentence(finding, self._name) if finding is not None else "",
            advice=advice(finding, cluster, self._name) if finding is not None else "",
            calm=finding is None or finding.verdict in CALM,
            losses=losses_text(load.totals),
            trouble="",
        )
        if now - asked.trends_at >= TREND_EVERY_S:
            found = replace(found, trends=_trends(client, load))
            asked.trends_at = now
        if asked.has_units:
            reply: control_pb2.MetricsReply = client.call(pipelines.REQUEST, ASK_S)
            found = replace(found, units=tuple(pipelines.lines(pipelines_of(reply).pipelines)))
        if wish.component is None:
            return replace(found, tasks=None)
        return self._tasks(client, found, wish, asked)

    def _tasks(self, client: RpcClient, found: Figures, wish: Wish, asked: _Asked) -> Figures:
        status: control_pb2.StatusReply = client.call(control_pb2.GetStatus(), ASK_S)
        request = control_pb2.GetMetrics(
            component=wish.component or "", names=TASK_METRICS, interval_s=TASK_WINDOW_S
        )  # fmt: skip
        try:
            metrics: control_pb2.MetricsReply = client.call(request, ASK_S)
        except InvalidRpcError:  # an update has removed it
            metrics = control_pb2.MetricsReply()
        tasks = tasks_of(
            status, metrics, found.load.plan_version if found.load else 0, time.time(), wish.component or None
        )
        found = replace(found, tasks=tasks)
        if wish.log:
            found = replace(found, log=(wish.log, self._log(status, wish.log)))
        if wish.stacks is not None and wish.stacks != asked.stacks:
            asked.stacks = wish.stacks
            found = replace(found, stacks=(wish.stacks[0], self._stacks(status, wish.stacks[0])))
        return found

    def _log(self, status: control_pb2.StatusReply, instance: str) -> tuple[str, ...]:
        """The end of its log; the reason if that cannot be read."""
        try:
            return tuple(log_tail(self._session, self._name, status, instance, ASK_S))
        except HeronError as error:
            return (str(error),)

    def _stacks(self, status: control_pb2.StatusReply, instance: str) -> str:
        """What its threads do; the reason if that cannot be seen."""
        try:
            process = find_process(self._name, status, instance)
            reply: Message = take(
                self._session, self._name, process, control_pb2.DumpStacks(name=process.name), 0.0
            )  # fmt: skip
        except HeronError as error:
            return str(error)
        assert isinstance(reply, control_pb2.DumpStacksReply)
        return clean_block(reply.text[:STACKS_MAX].rstrip())


def _trends(client: RpcClient, load: control_pb2.LoadReply) -> dict[str, tuple[float | None, ...]]:
    """Tuples per second by minute: what spouts emit and bolts execute, and now as the last."""
    request = control_pb2.GetTimeline(names=["emitted", "executed"], since=load.at - TREND_S)
    try:
        kept = timeline_of(client.call(request, ASK_S))
    except (DeadlineError, RpcError):
        return {}
    found: dict[str, tuple[float | None, ...]] = {}
    series = {(one.component, one.metric): one.values for one in kept.series}
    for one in load.components:
        name = "emitted" if one.spout else "executed"
        now = getattr(one, name) if one.HasField(name) else None
        found[one.component] = (*series.get((one.component, f"{name}_per_s"), ()), now)
    return found
