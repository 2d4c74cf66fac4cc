"""`heron job` and `heron manager`, except verbs that need a program: change a layer and wait for the effect."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from heronpy.cli import exits
from heronpy.cli.output import moment, print_json, print_table, say, warn, warning
from heronpy.clusters.errors import ClusterError, RequestError
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target, caller
from heronpy.common.errors import ConfigError, DeadlineError, HeronError
from heronpy.common.folders import absolute, heron_home
from heronpy.common.host import Host, this_host
from heronpy.common.units import counted, format_bytes, format_duration
from heronpy.jobs.allotting import store_of
from heronpy.jobs.base import command_problem, read_base, read_command
from heronpy.jobs.documents import LAYERS, Path, check_by_hand, name_of, nested
from heronpy.jobs.driver import is_alive
from heronpy.jobs.manager import (
    PARTS,
    SYNCER,
    Acting,
    acting_of,
    desired_of,
    folder_of,
    guardians_of,
    minutes_of,
    part_command,
    start_part,
)
from heronpy.jobs.plans import PROVED_S, Prove, pairs_of
from heronpy.jobs.report import blamed, plan_text, row, runs_text, shown, state_of, why_less
from heronpy.jobs.store import Store, View
from heronpy.jobs.syncer import Running, waits
from heronpy.launching.environment import child_environment
from heronpy.plan.component_config import auto_typed
from heronpy.scaling.decisions import lag_text, rate_text
from heronpy.scaling.history import remove_history

DECISIONS_SHOWN: Final = 5
#: First part of a key -> number of dots before the last part of the key, which may contain further dots.
_DEPTH: Final = {"parallelism": 1, "concurrency": 1, "config": 1, "settings": 1, "component_config": 2}
#: Environment variables that contain the paths of folders; the systemd unit passes them to the manager.
UNIT_VARIABLES: Final = ("HERON_CONF", "HERON_CONFIG_HOME")
START_S: Final = 20.0
LOOK_S: Final = 0.2
WATCH_S: Final = 2.0
CHANGES_SHOWN: Final = 5
#: Maximum number of keys in a suggested command that undoes a change.
UNSET_MAX: Final = 3
DEAD: Final = "its topology is not running; the manager starts it again"
KEYS_SHOWN: Final = 4
VALUE_CHARS_MAX: Final = 60


def opened(target: Target, common: Common) -> tuple[Session, Store]:
    """Return a session for the cluster, and the store of the cluster's jobs."""
    session = Session(target, common)
    try:
        read_base(session.conf_dirs(), target.cluster)
    except ConfigError as error:
        warning(f"{error}; until this is corrected, changes to this part of the file have no effect")
    return session, store_of(session, warning)


def writer() -> str:
    """Return the user who is recorded as the author of a change."""
    return caller()[:100]


def set_keys(words: tuple[str, ...], layer: str, for_s: float | None, why: str, **flags: Any) -> None:
    leaves: dict[Path, Any] = {}
    for path, value in map(_parsed, words):
        if path in leaves:
            raise RequestError(f"the key {name_of(path)} is given twice; give it once")
        leaves[path] = value
    changes = nested(leaves)
    check_by_hand(layer, changes)

    _change(lambda store, job, seen: store.set(job, layer, changes, seen, writer(), why, for_s), layer, **flags)


def unset_keys(keys: tuple[str, ...], layer: str, why: str, **flags: Any) -> None:
    _change(lambda store, job, seen: store.unset(job, layer, keys, seen, writer(), why), layer, **flags)


def revert(layer: str, to: int | None, why: str, **flags: Any) -> None:
    """Restore an earlier version of a layer."""

    def reverted(store: Store, job: str, seen: int) -> View:
        running, _ = store.running(job)
        ran = running.versions.get(layer, 0) if running is not None and running.failure else 0
        back = to or (ran if 0 < ran < seen else seen - 1)
        if back not in (to, seen - 1):
            say(f"job {job}: {layer} v{back} was the last version that ran, and is restored")
        return store.revert(job, layer, back, seen, writer(), why)

    _change(reverted, layer, **flags)


def set_run(stop: bool, why: str, **flags: Any) -> None:
    """Stop a job's topology and keep its state, or start the topology again."""

    def run(store: Store, job: str, seen: int) -> View:
        view = store.get(job)
        own = view.found.get(("run",))
        if not stop and view.document.run == "running":
            return view
        if not stop and own is not None and own.layer == "oncall":
            view = store.unset(job, "oncall", ["run"], seen, writer(), why)
        wanted = "stopped" if stop else "running"
        if view.document.run == wanted:
            return view
        return store.set(job, "oncall", {"run": wanted}, view.versions["oncall"], writer(), why)

    _change(run, "oncall", proved=False, **flags)


def _change(
    edit: Callable[[Store, str, int], View],
    layer: str,
    target: Target,
    job: str,
    detach: bool,
    timeout_s: float,
    common: Common,
    proved: bool = True,
) -> None:
    """Change a layer with `edit`, which gets the store, the job and the current version; then wait for the effect."""
    check_by_hand(layer)
    session, store = opened(target, common)
    before = store.get(job)
    after = edit(store, job, before.versions[layer])
    changed = after.versions != before.versions
    version = f"{layer} v{after.versions[layer]}"
    say(f"job {job}: {version if changed else 'nothing to change'}")
    for text in _afterwards(store, job, layer, after) if changed else ():
        say(f"  {text}")
    ensure_manager(session)
    if not detach:
        say_outcome(session, store, job, timeout_s, proved)


def _afterwards(store: Store, job: str, layer: str, view: View) -> list[str]:
    """Return when each temporary value of the layer's newest version ends, and what applies afterwards."""
    texts = []
    for path, one in sorted(view.found.items()):
        until = one.entry.stamp.until
        if until is not None and (one.layer, one.entry.version) == (layer, view.versions[layer]):
            then = store.get(job, until).found.get(path)
            text = f"then {_text(path, then.value)} of layer {then.layer}" if then else "then no layer sets the key"
            texts.append(f"{name_of(path)}: {_text(path, one.value)} until {moment(until)}, {text}")
    return texts


def delete(target: Target, job: str, common: Common) -> None:
    """Remove a job whose topology is stopped."""
    _, store = opened(target, common)
    store.delete(job, f": heron job stop {target} {job}")
    remove_history(minutes_of(target.cluster, job))  # an active scaler removes its own history
    say(f"job {job} is deleted; its checkpoints and logs are kept")


def release(target: Target, job: str, detach: bool, timeout_s: float, common: Common) -> None:
    """Retry changes that the manager has abandoned or postponed."""
    session, store = opened(target, common)
    if not store.release(job):
        running = store.running(job)[0]
        room = why_less(running) if running is not None else ""
        say(f"job {job} is {f'waiting for capacity: {room}' if room else 'not waiting for anything'}; nothing changed")
        return
    say(f"job {job} will be retried")
    ensure_manager(session)
    if not detach:
        say_outcome(session, store, job, timeout_s)


def _parsed(word: str) -> tuple[Path, Any]:
    """Return the path and the value of a text such as `parallelism.work=6`."""
    name, found, text = word.partition("=")
    if not found or not name:
        raise RequestError(f"'{word}' is not KEY=VALUE; for example parallelism.work=6")
    head = name.partition(".")[0]
    return tuple(name.split(".", _DEPTH.get(head, -1))), text if head == "settings" else auto_typed(text)


# ---- waiting --------------------------------------------------------------------------------


def say_outcome(session: Session, store: Store, job: str, timeout_s: float, proved: bool = True) -> None:
    """Wait until the topology matches its job, and say so. Raises ClusterError if the change is abandoned or undone.

    With `proved`, the wait ends when the job is IN_SYNC; without it, when the topology has started.
    """
    begun, told = time.monotonic(), ""
    while True:
        running, _ = store.running(job)
        done, text = _outcome(store, job, running, proved, session.target)
        if running is not None and running.plan is not None and (said := plan_text(running.plan)) != told:
            told = said
            say(f"job {job}: {said}")
        if done:
            proof = running is not None and running.plan is not None and isinstance(running.plan.step, Prove)
            then = f"; the job is IN_SYNC after it has run for {PROVED_S:g} s without problems" if proof else ""
            say(f"job {job}: {text} after {format_duration(time.monotonic() - begun)}{then}")
            return
        if time.monotonic() - begun > timeout_s:
            raise DeadlineError(
                f"job '{job}' is not in sync after {timeout_s:g} s: {text}; the manager continues, see heron job show"
                f" {session.target} {job}"
            )
        time.sleep(LOOK_S)


def _outcome(store: Store, job: str, running: Running | None, proved: bool, target: Target) -> tuple[bool, str]:
    if running is None:
        return False, "the manager has not read the job yet"
    mine = running.tried == pairs_of(desired_of(store, job, running)[0])
    if not mine or running.state == "UNDOING":
        return False, plan_text(running.plan) if running.plan else "the manager has not seen the change yet"
    # A WAITING job that a user has released is retried immediately.
    if running.state == "QUARANTINED" or (running.state == "WAITING" and waits(running, time.time())):
        again = "; try it again: heron job release" + f" {target} {job}"
        if running.state == "WAITING":
            again = f"; the manager tries again in {format_duration(round(running.retry_at - time.time()))}"
        runs, undo = runs_text(running), unset_text(blamed(store.get(job), running), target, job)
        after = "".join(f"; {text}" for text in (runs, undo) if text) + again
        raise ClusterError(f"job '{job}' is {running.state}: {running.failure}{after}")
    if running.plan is None:
        state, less, allotted = state_of(running), why_less(running), running.allotted
        if running.state == "WAITING" and (allotted is None or allotted.runs):
            return False, "the manager has not retried yet"
        if allotted is None or allotted.runs:
            return True, f"{state} ({less})" if less else state
        if store.get(job).document.run == "stopped":
            return False, "the manager has not seen the change yet"
        if allotted.fits_since is None:
            raise ClusterError(f"job '{job}' is {state}: {less}; the job starts when there is capacity")
        return False, less
    if not proved and isinstance(running.plan.step, Prove):
        return True, "started"
    return False, plan_text(running.plan)


# ---- looking --------------------------------------------------------------------------------


def list_jobs(target: Target, as_json: bool, common: Common) -> None:
    """Print the jobs of a cluster, and whether each topology matches its job."""
    session, store = opened(target, common)
    rows = [row(store, name) for name in store.names()]
    if as_json:
        print_json(rows)
        return
    if not rows:
        say(f"there are no jobs in cluster {target.cluster}; create one with heron job create {target} PROGRAM")
        return
    columns = ("job", "state", "plan", "drift_s", "why")
    print_table(columns, [[row[name] for name in columns] for row in rows], right=("drift_s",))
    _warn_without_manager(session)


def _as_it_lives(session: Session, found: dict[str, Any]) -> dict[str, Any]:
    """Return the job, without figures if its topology has died and the manager has not noticed this yet."""
    if not found["started"] or found["state"] != "IN_SYNC":
        return found
    with suppress(HeronError):  # unknown
        record = session.record(found["job"])
        if record is not None and not is_alive(session, record):
            scaler = found["scaler"] | {"at": None, "components": {}, "lag_s": None}
            return found | {"started": {}, "failure": found["failure"] or DEAD, "scaler": scaler}
    return found


def _warn_without_manager(session: Session) -> None:
    if acting_of(session.state) is None:
        start = f"heron manager start {session.target}"
        warn(f"no manager runs, so changes to jobs have no effect; start a manager: {start}")


def show(target: Target, job: str, watch: bool, origin: bool, as_json: bool, common: Common) -> None:
    """Print the intended and actual state of a job; with `watch`, also print changes until Ctrl-C."""
    session, store = opened(target, common)
    before: Any = None
    while True:
        found = _as_it_lives(session, shown(store, job))
        now: Any = msgspec.json.encode(found) if as_json else lines_of(found, target, origin)
        if as_json and now != before:
            print_json(found)
        elif not as_json:
            at = "" if before is None else f"{time.strftime('%H:%M:%S')} "
            for line in now if before is None else (one for one in now if one not in before):
                say(at + line)
        if before is None and not as_json:
            _warn_without_manager(session)
        if not watch:
            return
        before = now
        time.sleep(WATCH_S)


def unset_text(keys: Collection[str], target: Target, job: str) -> str:
    """Return the command that unsets the keys that are not in effect; "" if there are none or too many."""
    return f"undo the change: heron job unset {target} {job} {' '.join(keys)}" if 0 < len(keys) <= UNSET_MAX else ""


def lines_of(found: Mapping[str, Any], target: Target, origin: bool = False) -> list[str]:
    """Return the lines of `heron job show` for a job."""
    plan = f", {found['plan']}" if found["plan"] else ""
    plan += f", {found['waits']}" if found["waits"] else ""
    layers = ", ".join(f"{name} v{found['versions'][name]}" for name in LAYERS if found["versions"][name])
    lines = [f"job {found['job']} is {found['state']}{plan}; {layers}"]
    if found["failure"]:
        lines.append(f"  {found['failure']}")
    texts = found["runs"], unset_text(found["blamed"], target, found["job"])
    lines += [f"  {text}" for text in texts if text]
    if found["capacity"]:
        lines.append(f"  {found['capacity']}")
    origins: Mapping[str, Any] = found["origin"]
    scaler, running = found["scaler"], found["started"]
    for component, count in found["document"].get("parallelism", {}).items():
        figures = figures_text(scaler["components"].get(component, {}))
        by, runs = _by(origins.get(f"parallelism.{component}")), running.get(component, 0)
        fewer = f"{runs} of " if runs < count else ""
        more = f" ({runs} run)" if runs > count else ""
        lines.append(f"  {component}  {fewer}{counted(count, 'task')}{more}{by}{figures}")
    if scaler["at"] is not None and scaler["is_old"]:
        age_s = time.time() - scaler["at"]
        lines.append(f"  these figures are {format_duration(age_s // 60 * 60 or age_s // 5 * 5)} old")
    for text in promise_texts(scaler):
        lines.append(f"  {text}")
    for name, one in origins.items():
        if origin or not name.startswith(("parallelism.", "definition")):
            value = format_bytes(one["value"]) if name.endswith(".ram") else one["value"]
            lines.append(f"  {name} = {value}{_by(one)}" + (f", by {one['who']}: {one['why']}" if origin else ""))
    earlier = len(found["changes"]) - CHANGES_SHOWN
    if earlier > 0:
        lines.append(f"  {counted(earlier, 'earlier change')}, with their versions: heron job show --json")
    return lines + [f"  {moment(at)}  {text}" for at, text in history_of(found, time.time())]


def history_of(found: Mapping[str, Any], now: float) -> list[tuple[float, str]]:
    """Return the latest changes, expiries of temporary changes, and decisions, in order of time.

    A decision that is the reason for a change is left out, and a repeated decision is printed once.
    """
    changes = found["changes"]
    lines = [(one["stamp"]["at"], _change_text(one)) for one in changes[-CHANGES_SHOWN:]]
    first = min((at for at, _ in lines), default=0.0)
    lines += [(at, text) for at, text in _ends(changes, now) if at >= first]
    why = [one["stamp"]["why"] for one in changes if one["layer"] == "scaler"]
    said: list[tuple[float, str, int]] = []
    for one in sorted(found["decisions"], key=lambda one: float(one["at"])):
        text = f"{one['who']}: {one['text']}"
        if any(one["text"] in reason for reason in why):
            continue
        times = said.pop()[2] + 1 if said and said[-1][1] == text else 1
        said.append((one["at"], text, times))
    lines += [(at, text + (f" ({times} times)" if times > 1 else "")) for at, text, times in said[-DECISIONS_SHOWN:]]
    return sorted(lines, key=lambda line: line[0])


def _change_text(change: Mapping[str, Any]) -> str:
    """Return a change as one line, such as `oncall v2, ann: parallelism.work: 3 -> 4 until 21:30  backfill`."""
    stamp = change["stamp"]
    old = {tuple(one["path"]): one for one in change["before"]}
    new = {tuple(one["path"]): one for one in change["after"]}
    keys = [
        f"{'.'.join(path)}: {_shown(old.get(path))} -> {_shown(new.get(path))}"
        for path in sorted(old.keys() | new.keys())
    ]
    more = f" and {len(keys) - KEYS_SHOWN} more" if len(keys) > KEYS_SHOWN else ""
    why = f"  {stamp['why']}" if stamp["why"] else ""
    return f"{change['layer']} v{change['version']}, {stamp['who']}: {', '.join(keys[:KEYS_SHOWN])}{more}{why}"


def _ends(changes: Iterable[Mapping[str, Any]], now: float) -> list[tuple[float, str]]:
    """Return when temporary values expired, except values that a change replaced before they expired."""
    open_ends: dict[tuple[str, ...], tuple[float, str]] = {}
    ends = []
    for change in changes:
        now = max(now, change["stamp"]["at"])  # the clock of the change's host may be ahead
        for one in (*change["before"], *change["after"]):
            end = open_ends.pop((change["layer"], *one["path"]), None)
            ends += [end] if end is not None and end[0] <= change["stamp"]["at"] else []
        for one in change["after"]:
            if one["stamp"]["until"] is not None:
                text = f"{change['layer']}: {'.'.join(one['path'])}: {_value(one)} -> {_shown(one['under'])}  (expired)"
                open_ends[change["layer"], *one["path"]] = one["stamp"]["until"], text
    return [*ends, *(end for end in open_ends.values() if end[0] <= now)]


def _value(entry: Mapping[str, Any]) -> str:
    return _text(tuple(entry["path"]), entry["value"])


def _text(path: Path, value: Any) -> str:
    text = format_bytes(value) if path[-1] == "ram" and isinstance(value, int) else str(value)
    if path == ("definition",):
        text = text[:12]
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}..."


def _shown(entry: Mapping[str, Any] | None) -> str:
    if entry is None:
        return "not set"
    until = entry["stamp"]["until"]
    return _value(entry) + (f" until {moment(until)}" if until is not None else "")


def figures_text(one: Mapping[str, Any]) -> str:
    """Return the known figures, such as `, input 2,310/s, one task 902/s, busy 0.85`."""
    rates = [("input", one.get("arrives_per_s")), ("one task", one.get("each_per_s"))]
    texts = [f"{what} {rate_text(rate)}" for what, rate in rates if rate is not None]
    texts += [f"busy {one['busy']:.2f}"] if one.get("busy") is not None else []
    return "".join(f", {text}" for text in texts)


def promise_texts(scaler: Mapping[str, Any]) -> list[str]:
    """Return sentences about the lag, the promise and the open alerts."""
    lag, kept = scaler["lag_s"], scaler["slo_kept"]
    texts = [lag_text(lag)] if lag is not None else []
    texts += [f"SLO kept {kept * 100:.1f} % of the time"] if kept is not None else []
    return [*([", ".join(texts)] if texts else []), *(f"alert: {text}" for text in scaler["alerts"])]


def _by(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return ", from the program"
    then = f", then {one['then']}" if one["then"] is not None else ""
    return f", {one['layer']}" + (f" until {moment(one['until'])}{then}" if one["until"] else "")


# ---- the manager ----------------------------------------------------------------------------


def start_manager(target: Target, unit: bool, common: Common) -> None:
    """Start the inactive processes of a cluster's manager, or print a systemd unit that starts them."""
    session, _ = opened(target, common)
    session.check_cluster()
    if unit:
        say(_unit(session, common.config_property))
        return
    if not ensure_manager(session, common.config_property):
        acting = acting_of(session.state)
        raise exits.Failure(f"a manager is already running{where_of(acting) if acting else ''}", exits.EXISTS)


def ensure_manager(session: Session, properties: Iterable[str] = ()) -> bool:
    """Start the syncer unless a syncer is active; return whether it was started.

    The syncer starts a scaler when a job needs one.
    """
    if acting_of(session.state) is not None:
        return False
    cluster, deadline = session.target.cluster, time.monotonic() + START_S
    process, folder = start_part(session, SYNCER, properties), folder_of(cluster)
    while acting_of(session.state) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            raise ClusterError(f"the {SYNCER} has not started; see {folder / f'{SYNCER}.log'}")
        time.sleep(0.05)
    say(f"The manager of {cluster} is running; its logs are in {folder}")
    return True


def _unit(session: Session, properties: Iterable[str]) -> str:
    """Return the systemd template for units that run the manager's processes in the foreground."""
    name = f"heron-manager-{session.target.cluster}"
    given = {key: str(absolute(os.environ[key])) for key in UNIT_VARIABLES if os.environ.get(key)}
    given = {"HERON_HOME": str(heron_home()), "PYTHONPATH": child_environment({}).get("PYTHONPATH", ""), **given}
    # systemd quotes words like JSON, except '%' and '$'; %i is the part of a unit's name after the @.
    words = [json.dumps(text).replace("%", "%%") for text in part_command(session, "", properties)]
    words[words.index('""')] = "%i"
    variables = [json.dumps(f"{key}={value}").replace("%", "%%") for key, value in given.items() if value]
    return f"""\
# Save this unit as ~/.config/systemd/user/{name}@.service, then: systemctl --user enable --now {name}@{SYNCER}
# To keep the manager running while you are not logged in: loginctl enable-linger
[Unit]
Description=Manager of the jobs of heron cluster {session.target.cluster}, %i

[Service]
Environment={" ".join(variables)}
ExecStart={" ".join(words).replace("$", "$$")}
Restart=on-failure
RestartSec=5
# Topologies keep running when the manager ends; the manager keeps running when a task exceeds its memory.
KillMode=process
OOMPolicy=continue

[Install]
WantedBy=default.target"""


def stop_manager(target: Target, timeout_s: float, common: Common) -> None:
    """Stop all processes of the manager on this host, including standbys; topologies keep running."""
    session, _ = opened(target, common)
    acting = {part: one for part in PARTS if (one := acting_of(session.state, part)) is not None}
    if not acting and not guardians_of(session):
        raise exits.Failure(f"no manager is running in cluster {target.cluster}", exits.NOT_FOUND)
    for part, one in acting.items():
        if not _is_here(one):
            raise ClusterError(f"the {part} is running{where_of(one)}; stop it there")
    deadline, asked = time.monotonic() + timeout_s, set[int]()
    first = [one.guardian if one.guardian > 1 else one.pid for one in acting.values()]
    while True:
        others = guardians_of(session)
        for pid in {*first, *(one.pid for one in others)} - asked:
            asked.add(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        now = {part: acting_of(session.state, part) for part in PARTS}
        left = [part for part, one in acting.items() if (new := now[part]) is not None and new.id == one.id]
        left += [one.part for one in others]
        if not left:
            break
        if time.monotonic() > deadline:
            raise DeadlineError(f"the {left[0]} is still completing a step after {timeout_s:g} s; try again")
        time.sleep(0.1)
    if (one := now[SYNCER]) is not None:
        say(f"The manager on this host has ended; another manager is active{where_of(one)}")
        return
    say("The manager has ended; topologies keep running, but changes to jobs have no effect")


def manager_status(target: Target, as_json: bool, common: Common) -> None:
    """Print which processes of a manager are active."""
    session, store = opened(target, common)
    acting = {part: acting_of(session.state, part) for part in PARTS}
    if as_json:
        print_json({"acting": msgspec.to_builtins(acting), "jobs": len(store.names())})
        return
    for part, one in acting.items():
        if one is None and part == SYNCER:
            say(f"no {part} is active in cluster {target.cluster}; start the manager: heron manager start {target}")
        elif one is None:
            say(f"no {part} is active; the syncer starts one when a job has scale.max or slo.lag_s")
        else:
            say(f"The {part} has been active{where_of(one)} since {moment(one.since)}")
            if part == SYNCER and _is_here(one) and (problem := _command_problem(session)):
                warn(problem)
    say(f"{counted(len(store.names()), 'job')} in cluster {target.cluster}")


def _command_problem(session: Session) -> str:
    with suppress(ConfigError):  # a warning was printed
        return command_problem(read_command(session.conf_dirs(), session.target.cluster))
    return ""


def _is_here(acting: Acting) -> bool:
    return (host := Host.from_text(acting.host)) is not None and host.is_same(this_host())


def where_of(acting: Acting) -> str:
    """Return where a process of a manager runs, such as ` as process 5` or ` as process 5 on host n1`."""
    host = Host.from_text(acting.host)
    elsewhere = f" on host {host.name}" if host is not None else " on another host"
    return f" as process {acting.pid}" + ("" if _is_here(acting) else elsewhere)
