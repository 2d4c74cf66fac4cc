"""Finds text in all logs of a topology, newest first; the executors' file services search their own files.

The result shows whether the search stopped at `limit` hits or after `seconds`. Only matching lines leave a machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from heronpy.clusters.errors import NotThereError
from heronpy.clusters.file_services import FileService, logs_of
from heronpy.clusters.log_folders import component_of, is_meant
from heronpy.common.errors import HeronError, RetryableRpcError
from heronpy.common.log_files import level_filter
from heronpy.common.log_format import CONTINUATION, RAW, RAW_LOGGER, escape, parse_line
from heronpy.common.nearest import suggestion
from heronpy.proto import control_pb2
from heronpy.views.files import LogHit

LIMIT_MAX, SECONDS_MAX = 1000, 10.0
#: Maximum number of hits in an answer, and pause before a busy service gets the next request.
PAGE, BUSY_S = 50, 0.05
#: Maximum number of concurrent searches that an executor's file service accepts.
AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Wanted:
    """The search request."""

    #: The literal text that a line must contain.
    text: str
    #: Processes and components; empty for all.
    what: tuple[str, ...] = ()
    #: Lines before and after a hit.
    context: int = 0
    #: Seconds since 1970; older records end the search of a process.
    since: float | None = None
    level: str | None = None
    limit: int = LIMIT_MAX
    seconds: float = SECONDS_MAX
    #: Whether the case of the letters A to Z is ignored.
    ignore_case: bool = False


class Match(NamedTuple):
    """A line that contains the text."""

    hit: LogHit
    #: The line in the file, and whether a record begins with it.
    line: str
    begins: bool


@dataclass(slots=True)
class Search:
    """One search, with its progress and result."""

    wanted: Wanted
    #: Processes that have a log, whether searched or not; known from the first hit on.
    known: list[str] = field(default_factory=list)
    searched_bytes: int = 0
    #: Why the search ended early; empty if it is complete.
    stopped: str = ""
    #: Containers whose logs could not be searched, or not to the end.
    unreachable: dict[int, str] = field(default_factory=dict)

    async def run(self, services: Mapping[int, FileService]) -> AsyncIterator[Match]:
        """Yields the matches by time, newest first, each as soon as no newer match can follow."""
        files = await self._listed(services)
        self._check_words()
        turns = {container: asyncio.Semaphore(AT_ONCE) for container in services}
        sources = [
            _Source(self, services[container], container, process, names, turns[container])
            for (container, process), names in sorted(files.items())
            if not self.wanted.what or any(is_meant(process, word) for word in self.wanted.what)
        ]
        found = 0
        deadline = asyncio.get_running_loop().time() + self.wanted.seconds
        async for match in _merged(sources, deadline):
            if found == self.wanted.limit:
                self.stopped = f"after {found:,} {'hit' if found == 1 else 'hits'}"
                return
            found += 1
            yield match
        if any(not source.ended for source in sources):
            self.stopped = f"after {self.wanted.seconds:g} s"

    def _check_words(self) -> None:
        """Raise NotThereError for a word that is neither a process with a log nor a component."""
        for word in self.wanted.what:
            if not self.unreachable and not any(is_meant(process, word) for process in self.known):
                words = {*self.known, *filter(None, map(component_of, self.known))}
                hint = suggestion(word, words, f"; there are {', '.join(sorted(words)) or 'no logs yet'}")
                raise NotThereError(f"there is no log of '{word}'{hint}")

    async def _listed(self, services: Mapping[int, FileService]) -> dict[tuple[int, str], list[control_pb2.FileEntry]]:
        """The log files by container and process, newest first."""
        files = await logs_of(services, self.unreachable)
        self.known = sorted({one.process for one in files})
        found: dict[tuple[int, str], list[control_pb2.FileEntry]] = {}
        for one in sorted(files, key=lambda file: file.back):
            if self.wanted.since is None or one.entry.changed_at >= self.wanted.since:
                found.setdefault((one.container, one.process), []).append(one.entry)
        return found


class _Source:
    """The matches of one process, newest first."""

    def __init__(
        self,
        search: Search,
        service: FileService,
        container: int,
        process: str,
        files: Sequence[control_pb2.FileEntry],
        turns: asyncio.Semaphore,
    ) -> None:
        self._search, self._service, self._turns = search, service, turns
        self.container, self.process = container, process
        self._files = list(files)
        self._until: int | None = None
        self._shown: Callable[[str], bool] = level_filter(search.wanted.level)
        #: The time of the last match, which is used for a match without a time.
        self._last = float("inf")
        #: Matches that are found but not yielded yet, with their times for sorting.
        self.ready: list[tuple[float, Match]] = []
        self.ended = False

    async def fill(self) -> None:
        """Search until a match is found or all files have been searched."""
        while not self.ready and not self.ended:
            if not self._files:
                self.ended = True
                return
            try:
                await self._step(self._files[0])
            except RetryableRpcError:
                await asyncio.sleep(BUSY_S)
            except HeronError as error:
                self._search.unreachable[self.container] = str(error)
                self.ended = True

    async def _step(self, file: control_pb2.FileEntry) -> None:
        wanted = self._search.wanted
        until = file.bytes if self._until is None else self._until
        request = control_pb2.SearchFile(
            name=file.name,
            file=file.file,
            text=wanted.text,
            until=until,
            hits=PAGE,
            context=wanted.context,
            ignore_case=wanted.ignore_case,
        )
        async with self._turns:
            reply = await self._service.ask(request)
        self._search.searched_bytes += reply.searched
        self._until = reply.until
        if not reply.until:
            del self._files[0]
            self._until = None
        for hit in reply.hits:
            match = _match(self, hit)
            at = min(self._last, match.hit.at if match.hit.at is not None else self._last)
            if wanted.since is not None and at < wanted.since:
                self._files.clear()
                return
            self._last = at
            if self._shown(match.hit.level or ""):
                self.ready.append((at, match))


async def _merged(sources: Sequence[_Source], deadline: float) -> AsyncIterator[Match]:
    """The matches of all sources by time, newest first; at the deadline, the matches found so far."""
    in_time = await _by(deadline, asyncio.gather(*(source.fill() for source in sources)))
    while in_time:
        newest = max((one for one in sources if one.ready), key=lambda one: one.ready[0][0], default=None)
        if newest is None:
            return
        yield newest.ready.pop(0)[1]
        if not newest.ready:
            in_time = await _by(deadline, newest.fill())
    left = [pair for source in sources for pair in source.ready]
    for _, match in sorted(left, key=lambda pair: -pair[0]):
        yield match


async def _by(deadline: float, work: Awaitable[object]) -> bool:
    """Run `work` until the deadline; return whether it finished."""
    try:
        async with asyncio.timeout_at(deadline):
            await work
    except TimeoutError:
        return False
    return True


def _match(source: _Source, hit: control_pb2.LogHit) -> Match:
    line = _text(hit.line)
    own = parse_line(line)
    record = own or (parse_line(_text(hit.head)) if hit.head else None)
    raw = line.startswith(RAW)
    if own is not None:
        text = own.message
    else:
        text = escape(line.removeprefix(RAW).removeprefix(CONTINUATION))
    found = LogHit(
        process=source.process,
        container=source.container,
        at=record.when if record is not None else None,
        # Output that bypassed logging has no level.
        level=record.level if record is not None and not raw else None,
        logger=RAW_LOGGER if raw else record.logger if record is not None else "",
        text=text,
        before=[escape(_text(one)) for one in hit.before],
        after=[escape(_text(one)) for one in hit.after],
    )
    return Match(found, escape(line), own is not None)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
