"""`GET /api/v1/.../logs`, `/letters` and `/config`: data from files, read through the executors' file services."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from heronpy.clusters.file_services import MasterFileService, listed, logs_of
from heronpy.clusters.letters import LETTERS, when
from heronpy.clusters.log_folders import container_of
from heronpy.clusters.searching import LIMIT_MAX, Search, Wanted
from heronpy.common.errors import HeronError, InvalidRpcError
from heronpy.common.log_format import CONTINUATION, DIVIDER_LOGGER, RAW, escape, parse_line
from heronpy.common.log_search import CONTEXT_MAX, TEXT_MAX_BYTES
from heronpy.common.nearest import nearest
from heronpy.common.redaction import redacted
from heronpy.proto import components_of, control_pb2
from heronpy.storage.dead_letters import letter_of
from heronpy.tracker.calls import TIME_MAX, Call, Param, Table
from heronpy.tracker.guard import Problem, Scope
from heronpy.tracker.reading import TOPOLOGY
from heronpy.tracker.sources import Watched
from heronpy.views.files import Config, Letter, Letters, LogFile, LogFiles, LogHits, LogLine, Logs, Setting
from heronpy.views.heron_plans import config_as_json

PIECE_BYTES = 64 * 1024
PIECE_MAX_BYTES = 256 * 1024
LETTERS_MAX = 200
#: Maximum number of simultaneous log searches by all clients; each search keeps file services of executors busy.
SEARCHES_MAX = 2

table = Table()


async def _services(watched: Watched) -> dict[int, MasterFileService]:
    """Return the file services of the topology's containers."""
    numbers = [0, *(one.container for one in (await watched.plan()).containers)]
    return {number: MasterFileService(watched.master, number) for number in sorted(numbers)}


def _named(unreachable: Mapping[int, str]) -> dict[str, str]:
    return {str(container): why for container, why in unreachable.items()}


@table.route("GET", TOPOLOGY + "/logs", Scope.ALL, returns=LogFiles)
async def logs(call: Call) -> LogFiles:
    """The processes that have a log."""
    unreachable: dict[int, str] = {}
    files = [
        LogFile(process=one.process, container=one.container, bytes=one.entry.bytes, changed_at=one.entry.changed_at)
        for one in await logs_of(await _services(call.watched), unreachable)
        if not one.back
    ]
    return LogFiles(files=files, unreachable=_named(unreachable))


@table.route(
    "GET", TOPOLOGY + "/logs/search", Scope.ALL,
    Param("text", "the literal text that a line contains", required=True),
    Param("what", "only this process or component; may be repeated", list),
    Param("context", "lines before and after each hit", int, 0, low=0, high=CONTEXT_MAX),
    Param("since", "only records from this time on, seconds since 1970", float, low=0, high=TIME_MAX),
    Param("level", "only this level and above", choices=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")),
    Param("limit", "at most this many hits", int, LIMIT_MAX, low=1, high=LIMIT_MAX),
    Param("ignore_case", "true: ignore the case of A to Z", default="false", choices=("true", "false")),
    returns=LogHits,
)  # fmt: skip
async def search(call: Call) -> LogHits:
    """Find text in all logs, newest first, for at most 10 s."""
    watched, query, tracker = call.watched, call.query, call.tracker
    if "\n" in query["text"] or not 0 < len(query["text"].encode()) <= TEXT_MAX_BYTES:
        raise Problem(400, "bad-request", f"text must be one line of 1 to {TEXT_MAX_BYTES} bytes")
    if tracker.searches >= SEARCHES_MAX:
        raise Problem(429, "busy", f"{SEARCHES_MAX} log searches are in progress", "try again in a few seconds")
    wanted = Wanted(
        query["text"],
        tuple(query["what"]),
        query["context"],
        query["since"],
        query["level"],
        query["limit"],
        ignore_case=query["ignore_case"] == "true",
    )
    found = Search(wanted)
    tracker.searches += 1
    try:
        hits = [match.hit async for match in found.run(await _services(watched))]
    finally:
        tracker.searches -= 1
    return LogHits(
        hits=hits, searched_bytes=found.searched_bytes, stopped=found.stopped,
        unreachable=_named(found.unreachable),
    )  # fmt: skip


@table.route(
    "GET", TOPOLOGY + "/logs/{process}", Scope.ALL,
    Param("offset", "read from this offset on", int, low=0, high=(1 << 63) - 1),
    Param("until", "read the piece that ends at this offset", int, low=0, high=(1 << 63) - 1),
    Param("bytes", "at most this many bytes", int, PIECE_BYTES, low=1024, high=PIECE_MAX_BYTES),
    Param("file", "the file to which the offset belongs"),
    Param("back", "the rotated file with this number; 0 is the newest", int, 0, low=0, high=9999),
    returns=Logs,
)  # fmt: skip
async def log(call: Call) -> Logs:
    """A piece of one log; without an offset, the tail of the log, limited to the last submitted topology."""
    process, wanted = call.path["process"], call.query
    name = f"log-files/{process}.log" + (f".{wanted['back']}" if wanted["back"] else "")
    begin, count = wanted["offset"], wanted["bytes"]
    if begin is None and wanted["until"] is not None:
        begin = max(0, wanted["until"] - count)
        count = wanted["until"] - begin
    reply = await _read(call, process, name, begin, count)
    rotated = wanted["file"] is not None and wanted["file"] != str(reply.file)
    if rotated and begin is not None:
        reply = await _read(call, process, name, None, wanted["bytes"])
    known_begin = wanted["offset"] is not None and not rotated
    data, first, last = cut(reply.data, reply.offset, reply.size, known_begin)
    if begin is None or rotated:
        earlier = of_last_run(data)
        data, first = data[earlier:], first + earlier
    return Logs(
        process=process, lines=lines_of(data), begin=first, end=last, size=reply.size, file=str(reply.file),
        rotated=rotated,
    )  # fmt: skip


async def _read(call: Call, process: str, name: str, offset: int | None, count: int) -> control_pb2.ReadFileReply:
    request = control_pb2.ReadFile(name=name, offset=offset or 0, bytes=count, from_end=offset is None)
    if count == 0:
        request.bytes, request.offset = 1, (1 << 63) - 1  # only the size is needed
    container = container_of(process)
    try:
        return await call.watched.master.ask_executor(container, request)
    except InvalidRpcError:
        known = (await logs(call)).files
        # The name of a standby topology master does not have the number of its container.
        other = next((one.container for one in known if one.process == process and one.container != container), None)
        if other is not None:
            with suppress(InvalidRpcError):
                return await call.watched.master.ask_executor(other, request)
        raise Problem(
            404, "not-found", f"topology '{call.watched.name}' has no log of {process[:200]!r}",
            "GET .../logs lists all logs", nearest(process, [one.process for one in known]),
        ) from None  # fmt: skip


def cut(data: bytes, offset: int, size: int, begins_line: bool) -> tuple[bytes, int, int]:
    """Return the complete lines of a piece, with their start and end offsets in the file.

    A partial first line is omitted, unless `begins_line` states that the piece begins with a line. A partial last line
    is omitted, unless the piece contains nothing else.
    """
    begin = 0
    if not begins_line and offset:
        newline = data.find(b"\n")
        begin = newline + 1 if 0 <= newline < len(data) - 1 else 0
    end = len(data)
    if offset + len(data) < size or not data.endswith(b"\n"):
        newline = data.rfind(b"\n")
        end = newline + 1 if newline >= begin else len(data)
    return data[begin:end], offset + begin, offset + end


def of_last_run(data: bytes) -> int:
    """Return the offset after the last divider; earlier lines belong to earlier topologies with this name."""
    place = data.rfind(b"---- ")
    while place >= 0:
        begin, end = data.rfind(b"\n", 0, place) + 1, data.find(b"\n", place)
        record = parse_line(data[begin : end if end >= 0 else len(data)].decode("utf-8", "backslashreplace"))
        if record is not None and record.logger == DIVIDER_LOGGER:
            return end + 1 if end >= 0 else len(data)
        place = data.rfind(b"---- ", 0, place)
    return 0


def lines_of(data: bytes) -> list[LogLine]:
    """Return the log records, oldest first, each with its continuation lines."""
    found: list[LogLine] = []
    if not data:
        return found
    for text in data.decode("utf-8", "backslashreplace").split("\n")[: None if not data.endswith(b"\n") else -1]:
        if text.startswith(CONTINUATION) and found:
            found[-1].text += "\n" + escape(text.removeprefix(CONTINUATION))
            continue
        record = parse_line(text)
        if record is not None:
            found.append(LogLine(at=record.when, level=record.level, logger=record.logger, text=record.message))
        else:
            shown = text.removeprefix(CONTINUATION).removeprefix(RAW)
            found.append(LogLine(at=None, level=None, logger="", text=escape(shown)))
    return found


@table.route(
    "GET", TOPOLOGY + "/letters", Scope.ALL, Param("component", "only this component"),
    Param("limit", "at most this many letters, the newest ones", int, 50, low=1, high=LETTERS_MAX), returns=Letters,
)  # fmt: skip
async def letters(call: Call) -> Letters:
    """The dead letters, newest first."""
    services, unreachable = await _services(call.watched), dict[int, str]()
    names = [
        (file.changed_at, container, file.name)
        for container, files in (await listed(services, unreachable)).items()
        for file in files
        if LETTERS.fullmatch(file.name)
    ]
    limit, component = call.query["limit"], call.query["component"]
    found: list[Letter] = []
    for changed_at, container, name in sorted(names, reverse=True):
        if len(found) >= limit and min(letter.at for letter in found) > changed_at:
            break  # the remaining files have no newer letter
        request = control_pb2.ReadFile(name=name, bytes=PIECE_MAX_BYTES, from_end=True)
        try:
            reply = await services[container].ask(request)
        except HeronError as error:
            unreachable[container] = str(error)
            continue
        data, _, _ = cut(reply.data, reply.offset, reply.size, False)
        found += [one for one in _parsed(data, call.watched.record.topology_id) if component in (None, one.component)]
        found = sorted(found, key=lambda letter: -letter.at)[:limit]
    return Letters(letters=found, unreachable=_named(unreachable))


def _parsed(data: bytes, topology_id: str) -> list[Letter]:
    """Return the dead letters of this run; invalid lines are ignored."""
    letters = (letter for line in data.splitlines() if (letter := letter_of(line)) is not None)
    return [_letter(one) for one in letters if one.get("topology_id") in (None, topology_id)]


def _letter(letter: dict[str, Any]) -> Letter:
    tries = letter.get("tries")
    return Letter(
        at=when(letter),
        component=str(letter.get("component", "")),
        instance=str(letter.get("instance", "")),
        source=str(letter.get("source_component", "")),
        stream=str(letter.get("source_stream", "")),
        tries=tries if isinstance(tries, int) else 0,
        payload=letter.get("payload"),
        traceback=str(letter.get("traceback", "")),
    )


@table.route("GET", TOPOLOGY + "/config", Scope.ALL, returns=Config)
async def config(call: Call) -> Config:
    """Every setting with its origin; values that may be secrets are hidden."""
    watched = call.watched
    launch = await watched.master.launch()
    found = [
        _setting(f"heron.{room}.{field}", "", value, launch.origins.get(f"{room}.{field}", "default"))
        for room, fields in launch.settings.items()
        for field, value in fields.items()
    ]
    for component, fields in launch.component_settings.items():
        found += [_setting(f"heron.instance.{key}", component, value, "component") for key, value in fields.items()]
    definition = watched.definition
    if definition is None:
        await watched.read_plan()
        definition = watched.definition
    if definition is not None:
        found += [
            _setting(key, "", value, "topology") for key, value in config_as_json(definition.topology_config).items()
        ]
        for name, part in components_of(definition).items():
            own = config_as_json(part.comp.config)
            found += [_setting(key, name, value, "component") for key, value in own.items()]
    return Config(
        settings=sorted(found, key=lambda one: (one.component, one.key)),
        package=launch.source,
        python=launch.python,
        release=launch.release,
    )


def _setting(key: str, component: str, value: Any, origin: str) -> Setting:
    text = value if isinstance(value, str) else json.dumps(value)
    shown = str(redacted(text, key))
    return Setting(key=key, component=component, value=shown, origin=origin, redacted=shown != text)
