"""Checks in a child process whether the classes of a stored program can be imported, as its tasks will import them.

`python -m heronpy.launching.importing FOLDER` is the child process. FOLDER contains the launch file and the topology.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from heronpy.common.errors import PackageError
from heronpy.launching.environment import child_environment
from heronpy.plan.launch import LaunchSpec, Submitted, make_here
from heronpy.proto import components_of, topology_pb2

LIMIT_S = 120.0
LAUNCH_FILE, TOPOLOGY_FILE, SENTENCE_FILE = "launch.json", "topology", "sentence"


def check(submitted: Submitted, topology: topology_pb2.Topology) -> None:
    """Raise PackageError with the program's error if a class cannot be imported. The check leaves no files behind."""
    with tempfile.TemporaryDirectory(prefix="heron-check-") as folder:
        launch_file = Path(folder) / LAUNCH_FILE
        LaunchSpec(submitted, make_here(submitted, launch_file)).save(launch_file)
        (Path(folder) / TOPOLOGY_FILE).write_bytes(topology.SerializeToString())
        argv = [sys.executable, "-P", "-m", "heronpy.launching.importing", folder]
        try:
            done = subprocess.run(
                argv, env=child_environment({}), cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                timeout=LIMIT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise PackageError(
                f"the program was not imported within {LIMIT_S:g} s; its modules should only define classes and"
                " functions at import"
            ) from None
        if done.returncode:
            said = Path(folder) / SENTENCE_FILE
            why = said.read_text() if said.exists() else f"the import ended with code {done.returncode}"
            raise PackageError(f"the program cannot be imported: {why}")


def main() -> int:
    """Run the child process. If a class cannot be imported, write the reason to a file and return exit code 1."""
    from heronpy.api.user_code import UserCodeError, UserPackageError, load_class

    folder = Path(sys.argv[1])
    launch = LaunchSpec.load(folder / LAUNCH_FILE)
    topology = topology_pb2.Topology.FromString((folder / TOPOLOGY_FILE).read_bytes())
    try:
        for part in components_of(topology).values():
            load_class(part.comp.class_name, launch)
    except (UserCodeError, UserPackageError) as error:
        (folder / SENTENCE_FILE).write_text(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
