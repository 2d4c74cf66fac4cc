"""Handles requests from containers at the endpoint: admission, lease renewal, the package, and last reports.

It implements the endpoint's `Handlers` for a scheduler whose containers run on an engine. Requests become events for
placement, which answers them through `answer`.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from heronpy.common.engine_settings import EngineSettings
from heronpy.common.errors import ConfigError, FencedError, HeronError, InvalidRpcError, RetryableRpcError
from heronpy.common.folders import open_private
from heronpy.common.ids import bootstrap_id
from heronpy.common.settings import settings_for
from heronpy.engines.lease import Fencing, LeaseTimes
from heronpy.net import endpoint_keys
from heronpy.net.curve import Keys, Pair
from heronpy.net.endpoint_keys import EndpointKeys
from heronpy.plan.launch import LaunchSpec
from heronpy.procs.child_log import last_line_of
from heronpy.proto import endpoint_pb2
from heronpy.scheduler.bindings import NONCE_BYTES, Bindings
from heronpy.scheduler.control_endpoint import Who
from heronpy.scheduler.kept_logs import END_MAX_BYTES, KeptLogs
from heronpy.scheduler.leases import Permit
from heronpy.scheduler.package_endpoint import PackageEndpoint
from heronpy.scheduler.placement_events import Activate, Effect, Entry, Event, Fence, Grant, Heard, Leaving

log = logging.getLogger("heronpy.scheduler")

#: Maximum number of log ends that wait to be written. A container resends a refused log end.
LOGS_MAX = 64
#: Hellos that may wait until the package is packed.
HELLOS_MAX = 2000
#: A state manager that has lost its records may lack at most this number of submissions. A submission with a higher
#: number is a forgery.
AHEAD_MAX = 1000
EPOCH_MAX = 1 << 40
SPANS_MAX = 16
_SPAN_NAME_MAX = 40
_TAIL_BYTES = 4096
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
#: Maximum number of open requests; the submissions of this topology cannot have more.
WAITING_MAX = 10_000


@dataclass(slots=True)
class _Open:
    number: int
    received_at: float
    answer: asyncio.Future[endpoint_pb2.Renewed]


class Renewals:
    """The open requests of containers: the last request of each submission, by (container, submission).

    A standby's request is answered when there is a verdict for it, or after the request's waiting time. A request from
    an acting container is answered immediately. If a submission sends another request, its open request is answered
    without a verdict.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], _Open] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, who: tuple[int, int], number: int, received_at: float) -> asyncio.Future[endpoint_pb2.Renewed]:
        """Register a request; returns a future for its answer."""
        self.say(who, endpoint_pb2.VERDICT_NONE)
        if len(self._open) >= WAITING_MAX:
            raise RetryableRpcError("too many requests are waiting at the control endpoint; try again later")
        answer: asyncio.Future[endpoint_pb2.Renewed] = asyncio.get_running_loop().create_future()
        self._open[who] = _Open(number, received_at, answer)
        return answer

    def received_at(self, who: tuple[int, int]) -> float | None:
        """When the open request of a submission arrived; None if it has no open request."""
        found = self._open.get(who)
        return found.received_at if found is not None else None

    def say(
        self,
        who: tuple[int, int],
        verdict: endpoint_pb2.Verdict,
        epoch: int = 0,
        why: str = "",
        after: endpoint_pb2.Cause | None = None,
    ) -> bool:
        """Answer the open request of a submission; returns False if it has no open request."""
        found = self._open.pop(who, None)
        if found is None or found.answer.done():
            return False
        found.answer.set_result(
            endpoint_pb2.Renewed(number=found.number, verdict=verdict, epoch=epoch, why=why, after=after)
        )
        return True


@dataclass(frozen=True, slots=True)
class Terms:
    """The data that each container receives when it is admitted."""

    launch: LaunchSpec
    times: LeaseTimes
    fencing: Fencing
    endpoint_keys: EndpointKeys = field(repr=False)
    #: Keys of the links between containers.
    links: Keys = field(repr=False)
    #: Folders that all hosts share according to the settings.
    shared: tuple[str, ...] = ()


class Admission:
    """Admits containers and answers their requests.

    `handle` passes events to placement, and `now` is placement's clock. `permit` is None until this scheduler has a
    permit.
    """

    def __init__(self, terms: Terms, handle: Callable[[Event], list[Effect]], now: Callable[[], float]) -> None:
        self._terms = terms
        self._handle = handle
        self._now = now
        self.permit: Permit | None = None
        self._renewals = Renewals()
        self._hosts: dict[int, tuple[int, str]] = {}
        self._package = PackageEndpoint(
            terms.launch.package_dir,
            terms.launch.working_dir,
            terms.launch.topology_id,
            settings_for(terms.launch, EngineSettings).packages,
        )
        #: Packages of the topologies that run in the slots of a pool, by digest.
        self.packages: dict[str, PackageEndpoint] = {}
        self._logs = KeptLogs(terms.launch.log_dir)
        self._writing = asyncio.Lock()
        #: The submissions that have not sent a log yet, with their hosts; and the submissions that have sent one.
        self._silent: dict[Who, str] = {}
        self._sent: set[Who] = set()
        self._log_ends = self._hellos = 0
        #: By container: a submission that was refused or has ended, and the reason as a sentence.
        self._final_message: dict[int, tuple[int, str]] = {}
        #: By container: the newest submission that has reported the steps of its start, and these steps.
        self._starts: dict[int, tuple[int, list[endpoint_pb2.StartSpan]]] = {}
        #: The submissions of a container that may exist.
        self.known: Callable[[int], Sequence[int]] = lambda container: ()
        #: The ledger entry of a container; None for an unknown container.
        self.entry_of: Callable[[int], Entry | None] = lambda container: None
        #: Whether a submission has reported that all of its processes have ended.
        self.stopped: Callable[[int, int], bool] = lambda container, submission: False
        folder = endpoint_keys.folder_of(terms.launch.working_dir)
        self._bindings = Bindings(folder, lambda who: who[1] in self.known(who[0]))
        #: Number of hellos from processes to which the submission is not bound, and from other releases of heronpy or
        #: Python.
        self.impostors = self.releases = 0
        #: Number of requests that were temporarily refused, because too many were open.
        self.busy = 0

    def start(self) -> None:
        """Write a proof file into each shared folder, and begin to pack the package; may raise ConfigError."""
        self._bindings.load()
        for folder in self._terms.shared:
            file = Path(folder) / self._proof_name
            try:
                with open(open_private(file, os.O_WRONLY | os.O_TRUNC), "wb") as opened:
                    opened.write(self._proof_of(folder))
            except OSError as error:
                raise ConfigError(
                    f"heron.engine.shared names {folder}, to which this host cannot write ({error.strerror}); name a"
                    " folder that all hosts reach at the same path, or leave the setting empty"
                ) from None
        self._package.start()

    @property
    def _proof_name(self) -> str:
        return f".heron-{self._terms.launch.topology_id}"

    def _proof_of(self, folder: str) -> bytes:
        """The content of a shared folder's proof file, which only schedulers of this topology can compute."""
        return hmac.digest(self._terms.endpoint_keys.secret_key, f"shared {folder}".encode(), "sha256").hex().encode()

    def remove(self) -> None:
        """Remove this object's files after the topology has ended. May wait for the package store."""
        for folder in self._terms.shared:
            try:
                (Path(folder) / self._proof_name).unlink(missing_ok=True)
            except OSError as error:
                log.warning("cannot remove %s from %s: %s", self._proof_name, folder, error.strerror)
        self._package.remove()

    # ---- answers ----------------------------------------------------------------------------
    def answer(self, effect: Activate | Grant | Fence) -> None:
        """Answer the open request of a submission; does nothing without a request, or if the permit forbids it."""
        who = effect.container, effect.submission
        received_at = self._renewals.received_at(who)
        if received_at is None:
            return
        if isinstance(effect, Fence):
            self._renewals.say(who, endpoint_pb2.VERDICT_FENCED, why=effect.why)
        elif self.permit is not None and self.permit.may_grant(received_at):
            activates = isinstance(effect, Activate)
            verdict = endpoint_pb2.VERDICT_ACTIVATED if activates else endpoint_pb2.VERDICT_GRANTED
            entry = self.entry_of(effect.container) if activates else None
            cause = entry.cause if entry is not None else None
            after = endpoint_pb2.Cause(reason=cause.reason.value, text=cause.text) if cause is not None else None
            self._renewals.say(who, verdict, effect.epoch if isinstance(effect, Activate) else 0, after=after)

    # ---- requests ---------------------------------------------------------------------------
    async def hello(self, hello: endpoint_pb2.Hello) -> endpoint_pb2.Welcome:
        """Admit a submission. Raises InvalidRpcError for another release or Python, FencedError if it was replaced."""
        self._check_ready()
        if self._hellos >= HELLOS_MAX:
            self.busy += 1
            raise RetryableRpcError("too many containers are requesting admission; try again")
        who = hello.container, hello.submission
        try:
            self._check_release(hello)
        except InvalidRpcError as error:
            self.releases += 1
            if who[1] in self.known(who[0]) and self._final_message.get(who[0]) != (who[1], str(error)):
                self._final_message[who[0]] = who[1], str(error)
                log.error("container %d, submission %d, is refused: %s", *who, error)
            raise
        self._check_who(who, hello.nonce)
        host = hello.host[:255]
        effects = self._handle(Heard(*who, host=host))
        for effect in effects:
            if isinstance(effect, Fence) and (effect.container, effect.submission) == who:
                raise FencedError(f"container {who[0]}, submission {who[1]}, is not expected: {effect.why}")
        if self.entry_of(who[0]) is None:
            raise RetryableRpcError("the scheduler has no plan for its containers yet; try again")
        await self._bindings.bind(who, hello.nonce)
        self._hosts[who[0]] = who[1], host
        if who not in self._sent:
            self._silent[who] = host
        terms, launch = self._terms, self._terms.launch
        log.info(
            "container %d, submission %d, on %s (%s) is admitted: %g cores, %d MB",
            *who, host, hello.address[:50], hello.cpu, hello.ram_bytes >> 20,
        )  # fmt: skip
        self._hellos += 1
        try:
            archive = await self._package.archive()
        finally:
            self._hellos -= 1
        return endpoint_pb2.Welcome(
            secret=terms.endpoint_keys.secret_of(*who),
            submitted=launch.submitted.to_bytes(),
            server=_pair(terms.links.server),
            client=_pair(terms.links.client),
            package=self._package.digest,
            package_bytes=archive.size,
            package_sha256=archive.sha256,
            package_place=archive.place,
            shared=[
                endpoint_pb2.SharedFolder(path=folder, name=self._proof_name, content=self._proof_of(folder))
                for folder in terms.shared
            ],
            renew_s=terms.times.renew_s,
            fence_s=terms.times.fence_s,
            stop_grace_s=terms.times.stop_grace_s,
            fencing=terms.fencing.value,
            log_kept_bytes=END_MAX_BYTES,
        )

    def _check_who(self, who: Who, nonce: bytes) -> None:
        """Refuse a process if the submission does not exist or is bound to another process."""
        entry = self.entry_of(who[0])
        if entry is not None and who[1] > entry.submitted:
            if who[1] > entry.submitted + AHEAD_MAX:
                raise InvalidRpcError(f"container {who[0]} has no submission {who[1]}; it was never submitted")
            # If the state manager has lost its records, the engine's next list will show the submission.
            raise RetryableRpcError(f"container {who[0]} has no submission {who[1]} yet; try again")
        if len(nonce) != NONCE_BYTES:
            raise InvalidRpcError(f"a hello needs a nonce of {NONCE_BYTES} bytes, not {len(nonce)}")
        if self._bindings.is_other(who, nonce):
            self.impostors += 1
            log.warning("refused another process that claims to be container %d, submission %d", *who)
            raise InvalidRpcError(f"container {who[0]}, submission {who[1]}, was already claimed by another process")

    def _check_ready(self) -> None:
        if self.permit is None:
            raise RetryableRpcError("the scheduler is starting; try again")

    def _check_release(self, hello: endpoint_pb2.Hello) -> None:
        release, where = self._terms.launch.release, f"on host {hello.host[:255]}"
        if hello.heronpy != release:
            raise InvalidRpcError(
                f"heronpy {where} has release {hello.heronpy[:80]}, but the topology was submitted with {release};"
                " install that release there, or set heron.engine.python to a Python that has it"
            )
        if hello.python != PYTHON:
            raise InvalidRpcError(
                f"Python {where} is {hello.python[:80]}, but the topology was submitted with {PYTHON}; set"
                " heron.engine.python to a Python of that release"
            )

    async def renew(self, who: Who, renew: endpoint_pb2.Renew) -> endpoint_pb2.Renewed:
        """Grant, activate or fence a submission; a standby's request waits until there is a verdict for it."""
        self._check_ready()
        if max(renew.epoch, renew.stopped) > EPOCH_MAX:
            raise InvalidRpcError(f"container {who[0]} claims an epoch that it never received")
        answer = self._renewals.open(who, renew.number, self._now())
        number, host = self._hosts.get(who[0], (0, ""))
        if who not in self._sent:
            self._silent.setdefault(who, "")  # an earlier scheduler has admitted the submission
        self._handle(Heard(*who, renew.epoch, renew.stopped, host if number == who[1] else ""))
        # A standby that is silent for two renewal intervals is not activated, so no request waits longer than one.
        waits = not renew.epoch and renew.wait_s > 0.0
        wait_s = min(renew.wait_s, self._terms.times.renew_s) if waits else 0.0
        if not answer.done():
            await asyncio.wait([answer], timeout=wait_s)
        if not answer.done():
            self._renewals.say(who, endpoint_pb2.VERDICT_NONE)
        return await answer

    def leave(self, who: Who, why: str) -> None:
        """Record that the engine will end the submission soon."""
        self._check_ready()
        self._handle(Leaving(*who, why))

    async def read_package(self, package: str, offset: int) -> bytes:
        return await self.packages.get(package, self._package).read(package, offset)

    async def log_end(self, who: Who, end: endpoint_pb2.LogEnd) -> None:
        if self._log_ends >= LOGS_MAX:
            self.busy += 1
            raise RetryableRpcError("too many logs are arriving; send the log again")
        number, host = self._hosts.get(who[0], (0, ""))
        host = host if number == who[1] else ""
        self._log_ends += 1
        try:
            async with self._writing:
                await asyncio.to_thread(self._logs.keep, end.process, *who, host, end.data, end.cut)
        except OSError as error:
            raise HeronError(f"the log of {end.process[:80]} cannot be stored: {error.strerror}") from None
        finally:
            self._log_ends -= 1
        self._silent.pop(who, None)
        self._sent.add(who)
        name = bootstrap_id(who[0])
        if end.process == name and (said := last_line_of(end.data[-_TAIL_BYTES:]).removeprefix(f"{name} ends: ")):
            self._final_message[who[0]] = who[1], said[:1024]

    async def tell_lost(self, all_left: bool = False) -> None:
        """Note missing logs of vanished submissions or, with `all_left`, of all submissions that have sent none."""
        gone = [who for who in self._silent if all_left or who[1] not in self.known(who[0])]
        self._sent = {who for who in self._sent if who[1] in self.known(who[0])}
        # All are removed before the first write, because another call may report the same loss during the write.
        for who, host in [(who, self._silent.pop(who)) for who in gone]:
            try:
                async with self._writing:
                    await asyncio.to_thread(self._logs.lost, *who, host)
            except (OSError, InvalidRpcError) as error:
                log.warning("container %d, submission %d, has sent no logs (%s)", *who, error)

    def start_spans(self, who: Who, spans: Sequence[endpoint_pb2.StartSpan]) -> None:
        """Record the duration of each step of a container's start."""
        container, submission = who
        if submission < self._starts.get(container, (0, []))[0]:
            return
        kept = list(spans[:SPANS_MAX])
        for span in kept:
            span.name = span.name[:_SPAN_NAME_MAX]
        self._starts[container] = submission, kept
        steps = ", ".join(f"{span.name} {span.took_s:.2f} s" for span in kept)
        log.info("container %d, submission %d, has started: %s", container, submission, steps)

    def start_of(self, container: int, submission: int) -> Sequence[endpoint_pb2.StartSpan]:
        """The duration of each step of a submission's start; empty until the submission has reported them."""
        number, spans = self._starts.get(container, (0, []))
        return spans if number == submission else []

    def final_message_of(self, container: int) -> str:
        """The termination report of a container's newest submission; "" unless it is known to have ended."""
        return self._final_message.get(container, (0, ""))[1]

    def holder_of(self, container: int) -> int:
        """The container's last activated submission; 0 if there is none."""
        entry = self.entry_of(container)
        return entry.holder if entry is not None else 0

    def has_stopped(self, who: Who) -> bool:
        """Whether a submission has reported that all of its processes have ended."""
        return self.stopped(*who)


def _pair(pair: Pair) -> endpoint_pb2.KeyPair:
    return endpoint_pb2.KeyPair(public=pair.public, secret=pair.secret)
