"""`heron job explain`, `slo` and `replay`: the scaler's decisions with reasons, and how well a job kept its promise."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from heronpy.cli.change.jobs import figures_text, opened, promise_texts, where_of
from heronpy.cli.output import moment, print_json, say
from heronpy.clusters.errors import RequestError
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.folders import open_private
from heronpy.common.units import counted, format_duration
from heronpy.jobs import report
from heronpy.jobs.manager import SCALER, acting_of, minutes_of
from heronpy.scaling.history import recorded_since
from heronpy.scaling.replaying import Minute, replayed

LINE_BYTES_MAX: Final = 1 << 20


def explain(target: Target, job: str, record: Path | None, as_json: bool, common: Common) -> None:
    """Print the newest evidence and decision for each component; with `record`, also write the scaler's
    inputs from the last day to a file.
    """
    session, store = opened(target, common)
    if record is not None:
        with report.minutes(store, target.cluster, job, _scaler_at(session)):
            count = _write(record, recorded_since(minutes_of(target.cluster, job), 0.0))
        say(f"{counted(count, 'measurement')} of job {job} written to {record}; see heron job replay {record}")
        return
    found, log = report.evidence(store, job), store.log(job)
    for name, one in found["components"].items():
        one["decided"] = [msgspec.to_builtins(last) for last in log.decisions if last.component == name][-1:]
    if as_json:
        print_json({"job": job, **found})
        return
    if found["at"] is None:
        say(
            f"the scaler has not evaluated job {job} yet; the scaler evaluates only jobs with scale.max or"
            " slo.lag_s that are IN_SYNC"
        )
        return
    ago = format_duration(max(0.0, time.time() - found["at"]))
    say(f"job {job}: evaluated {moment(found['at'])}, {ago} ago")
    for text in promise_texts(found):
        say(f"  {text}")
    if not found["components"]:
        say("  the topology did not answer, so nothing is scaled")
    for name, one in found["components"].items():
        limits = "" if one["high"] is None else f" (limits: {one['low']} to {one['high']})"
        waits = "" if one["waits"] is None else f", {one['waits']:,.0f} waiting"
        needed = one["needed"] or 0
        needs = f"; {counted(needed, 'task')} {'is' if needed == 1 else 'are'} needed" if needed else ""
        say(f"{name}  {counted(one['tasks'], 'task')}{limits}{figures_text(one)}{waits}{needs}")
        times = [f"{what} {moment(one[what])}" for what in ("since", "until") if one[what] is not None]
        if one["until"] is not None and one["until"] <= time.time():
            times = times[:-1]
        say(f"  now: {one['verdict']}" + (f" ({', '.join(times)})" if times else ""))
        for last in one["decided"]:
            say(f"  {moment(last['at'])}  {last['text']}")


def slo(target: Target, job: str, as_json: bool, common: Common) -> None:
    """Print for what share of the time a job kept its promise, and when it broke the promise."""
    session, store = opened(target, common)
    found = report.promise(store, target.cluster, job, time.time())
    if as_json:
        print_json(found)
        return
    if not found["lag_s"]:
        say(f"job {job} has no promise; to set one: heron job set {target} {job} slo.lag_s=5")
        return
    say(f"job {job} promises a lag of at most {format_duration(found['lag_s'])}")
    if not found["all"]["measured_s"]:
        say("  nothing has been measured yet")
        return
    for one in [found["all"], *found["windows"]]:
        what = f"last {format_duration(one['window_s'])}" if one["window_s"] else "since the promise was made"
        kept = "nothing was measured" if one["kept"] is None else f"kept {one['kept'] * 100:.2f} % of the time"
        say(f"  {what}: {kept}, measured for {format_duration(one['measured_s'])}")
    if not found["windows"]:
        say(
            f"  the scaler{_scaler_at(session)} has the measurements from the last hour, day and two weeks;"
            " run this command there"
        )
    for begin, end in found["broken"]:
        for_s = format_duration((time.time() if end is None else end) - begin)
        say(f"  broken from {moment(begin)} {'on' if end is None else f'to {moment(end)}'}, for {for_s}")


def _scaler_at(session: Session) -> str:
    acting = acting_of(session.state, SCALER)
    return f", which runs{where_of(acting)}," if acting is not None else " on another host"


def replay(file: BinaryIO, as_json: bool) -> None:
    """Print the scaler's decisions on recorded inputs."""
    found = [{"at": at, **msgspec.to_builtins(decision)} for at, decision in replayed(_read(file))]
    if as_json:
        print_json(found)
        return
    for one in found:
        say(f"{moment(one['at'])}  {one['type'].lower()}: {one['text']}")
    say(f"{counted(len(found), 'decision')}")


def _write(path: Path, minutes: Iterator[bytes]) -> int:
    """Write the measurements of each minute to a new file, one minute per line; return the number of minutes."""
    try:
        with open(open_private(path, os.O_WRONLY | os.O_EXCL), "wb") as file:
            count = 0
            for count, line in enumerate(minutes, 1):
                minute = msgspec.json.decode(line, type=Minute)
                # The state of the first minute determines all later minutes.
                file.write(msgspec.json.encode(minute if count == 1 else msgspec.structs.replace(minute, state=None)))
                file.write(b"\n")
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}; name a file that does not exist yet") from None
    return count


def _read(file: BinaryIO) -> Iterator[Minute]:
    number = 0
    while line := file.readline(LINE_BYTES_MAX + 1):
        number += 1
        try:
            yield msgspec.json.decode(line, type=Minute)
        except msgspec.MsgspecError as error:
            raise RequestError(
                f"line {number} of {file.name} is not part of a recording ({error}); record a file with heron job"
                " explain CLUSTER JOB --record FILE"
            ) from None
    if not number:
        raise RequestError(f"{file.name} is empty; record a file with heron job explain CLUSTER JOB --record FILE")
