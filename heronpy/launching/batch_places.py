"""The files that a batch run reads and the folders that it writes, checked before the run begins."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from heronpy.batch.record import RunState
from heronpy.batch.run import BatchRunError, Runs
from heronpy.batch.stages import BatchRefusedError, Stage, divide
from heronpy.common.redaction import redacted
from heronpy.connectors.files.options import FOLDER
from heronpy.connectors.textfiles.line_share import absolute_patterns
from heronpy.connectors.textfiles.textfilespout import TextFileSpout
from heronpy.growing.patterns import parse
from heronpy.growing.scan import Scanner
from heronpy.plan.component_config import SerializedValue, component_config, config_of
from heronpy.proto import components_of, topology_pb2

#: Number of characters of the input of a spout that an error shows.
SHOWN_MAX: Final = 500


def check_input(topology: topology_pb2.Topology, stages: Sequence[Stage]) -> None:
    """Raise BatchRefusedError if no file matches the patterns of a spout that reads lines."""
    for stage in stages:
        if stage.source != "lines":
            continue
        patterns = _patterns(topology, stage.spout)
        try:
            scan = Scanner([parse(one) for one in patterns], files_max=1, no_match="").look()
        except ValueError as error:
            raise BatchRefusedError(f"spout '{stage.spout}' cannot run as a batch: {error}") from None
        if scan.files:
            continue
        named = patterns[0] if len(patterns) == 1 else f"any of {', '.join(patterns)}"
        refused = [f"{path} {why}" for path, why in scan.refused.items() if why]
        why = refused[0] if refused else "check the path, and quote a pattern in the shell"
        raise BatchRefusedError(f"no file matches {named}, which spout '{stage.spout}' reads; {why}")


def refuse_other_input(
    run: str,
    before: topology_pb2.Topology,
    topology: topology_pb2.Topology,
    stages: Sequence[Stage],
    resume: bool,
) -> None:
    """Raise BatchRefusedError if a command that would continue an unfinished run gives a spout different input.

    `before` is the topology of the run. If `resume` is true, the run keeps the work units of an earlier version of the
    program, and therefore also the input splits that version listed.
    """
    known = {(stage.spout, stage.source) for stage in divide(before)}
    for stage in stages:
        name = stage.spout
        if not name or (name, stage.source) not in known:
            continue
        if stage.source == "lines":
            old, new = (" and ".join(_patterns(one, name)) for one in (before, topology))
            verb, fix = "reads", "repeat the command with the input of the run, or give"
        elif not resume:
            old, new = _differences(*(_plain(components_of(one)[name]) for one in (before, topology)))
            verb, fix = "has", "repeat the command with the same values, or give --resume to keep the input of the run,"
        else:
            continue
        if old != new:
            raise BatchRefusedError(
                f"run {run} has not finished, and its spout '{name}' {verb} {_short(old)}, but this command"
                f" gives {_short(new)}; {fix} --fresh or another name to start a new run"
            )


def refuse_other_paths(
    like: str, before: topology_pb2.Topology, topology: topology_pb2.Topology, stages: Sequence[Stage]
) -> None:
    """Raise BatchRefusedError if a spout names files other than those of the run `like`, whose input this run uses.

    Otherwise this run would look for the files of `like` at other paths. `before` is the topology of `like`.
    """
    for stage in stages:
        if stage.source != "lines":
            continue
        old, new = (" and ".join(_patterns(one, stage.spout)) for one in (before, topology))
        if old != new:
            raise BatchRefusedError(
                f"with --as, the run reads the input of {like}, in which spout '{stage.spout}' reads {_short(old)}, but"
                f" this command gives {_short(new)}; give the command the input of {like}, or leave out --as"
            )


def refuse_again(runs: Runs, topology: topology_pb2.Topology, argv: tuple[str, ...]) -> None:
    """Raise BatchRefusedError if a finished run has published rows from the same input to a sink of this topology."""
    for run in map(runs.of, reversed(runs.numbers())):
        with suppress(BatchRunError):
            record = run.record
            if record.state is not RunState.FINISHED:
                continue
            if not publishes_again(run.topology, topology, record.argv == argv):
                continue
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.ended_at))
            published = " and has published its output" if record.sinks else ""
            live = ", or --restore latest instead of --mode batch to continue it as a stream"
            raise BatchRefusedError(
                f"run {record.run} has finished{published} at {at}; give --fresh to run it again"
                f"{live if record.savepoint else ''}"
            )


def publishes_again(before: topology_pb2.Topology, topology: topology_pb2.Topology, same_words: bool) -> bool:
    """Whether two topologies read the same input and have a sink in common, or no sinks (pure).

    The bolts in between do not matter. `same_words` says whether the programs have the same arguments, because an input
    other than files of lines may depend on the arguments.
    """
    inputs, sinks = [], []
    for one in (before, topology):
        stages, parts = divide(one), components_of(one)
        inputs.append({stage.spout: _input(one, stage) for stage in stages if stage.spout})
        sinks.append([_sink(parts[name]) for stage in stages for name in stage.sinks])
    if inputs[0] != inputs[1] or not (same_words or all(source == "lines" for source, _ in inputs[0].values())):
        return False
    return any(one in sinks[1] for one in sinks[0]) or not any(sinks)


def _input(topology: topology_pb2.Topology, stage: Stage) -> tuple[str, object]:
    if stage.source == "lines":
        return stage.source, _patterns(topology, stage.spout)
    config = config_of(components_of(topology)[stage.spout])
    return stage.source, {key: value for key, value in config.items() if not key.startswith(("topology.", "heron."))}


def _sink(part: topology_pb2.Spout | topology_pb2.Bolt) -> object:
    """Return the folder of a FileSink, or the plain configuration of any other sink."""
    config = _plain(part)
    return config.get(FOLDER, config)


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def _patterns(topology: topology_pb2.Topology, spout: str) -> list[str]:
    paths = component_config(topology, spout)[TextFileSpout.PATHS]
    return absolute_patterns(paths.load() if isinstance(paths, SerializedValue) else paths)


def _plain(part: topology_pb2.Spout | topology_pb2.Bolt) -> dict[str, Any]:
    """Return the configuration of a component, with None for each object that is not plain data."""
    return {
        key: value.plain() if isinstance(value, SerializedValue) else value for key, value in config_of(part).items()
    }


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, str]:
    """Return the parts in which two configurations differ, as texts."""
    keys = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
    both = (", ".join(f"{key}={redacted(one.get(key), key)!r}" for key in keys) for one in (old, new))
    return next(both), next(both)


def check_output(topology: topology_pb2.Topology) -> None:
    """Raise BatchRefusedError if this user cannot write to the folder of a FileSink."""
    for name, part in components_of(topology).items():
        folder = config_of(part).get(FOLDER)
        if not isinstance(folder, str):
            continue
        path = Path(folder)
        there = next((one for one in (path, *path.parents) if os.path.lexists(one)), path)
        if not there.is_dir():
            why = f"{there} is not a folder"
        elif not os.access(there, os.W_OK | os.X_OK):
            why = f"you may not write to {there}"
        else:
            try:
                # Some file systems, such as /proc, refuse new files even where the permissions allow them.
                with TemporaryDirectory(prefix=".heron-check-", dir=there):
                    continue
            except OSError as error:
                why = f"{there} cannot be written ({error.strerror})"
        raise BatchRefusedError(f"sink '{name}' writes to {folder}, but {why}; choose another folder")
