"""The files that a batch run reads and the folders that it writes, checked before the run begins."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from heronpy.batch.stages import BatchRefusedError, Stage
from heronpy.connectors.files.options import FOLDER
from heronpy.connectors.textfiles.line_share import absolute_patterns
from heronpy.connectors.textfiles.textfilespout import TextFileSpout
from heronpy.growing.patterns import parse
from heronpy.growing.scan import Scanner
from heronpy.plan.component_config import component_config, config_of
from heronpy.proto import components_of, topology_pb2


def check_input(topology: topology_pb2.Topology, stages: Sequence[Stage]) -> None:
    """Raise BatchRefusedError if no file matches the patterns of a spout that reads lines."""
    for stage in stages:
        if stage.source != "lines":
            continue
        patterns = absolute_patterns(component_config(topology, stage.spout, load=True)[TextFileSpout.PATHS])
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


def check_output(topology: topology_pb2.Topology) -> None:
    """Raise BatchRefusedError if this user cannot write to the folder of a FileSink."""
    for name, part in components_of(topology).items():
        folder = config_of(part).get(FOLDER)
        if not isinstance(folder, str):
            continue
        path = Path(folder)
        there = next((one for one in (path, *path.parents) if os.path.lexists(one)), path)
        if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
            continue
        why = f"you may not write to {there}" if there.is_dir() else f"{there} is not a folder"
        raise BatchRefusedError(f"sink '{name}' writes to {folder}, but {why}; choose another folder")
