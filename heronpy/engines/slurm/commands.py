"""Runs Slurm's commands: with a deadline, in an environment of their own, and with errors of the contract."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence

from heronpy.engines.contract import EngineAwayError, EngineFatalError, EngineFullError

DEADLINE_S = 10.0
#: More output than this is not ours; a line of squeue has some hundred bytes.
OUTPUT_MAX = 64 << 20
#: These change what commands print or submit; only where the configuration lies is taken over.
_FOREIGN = re.compile(r"(SLURM|SBATCH|SQUEUE|SCANCEL|SINFO|SRUN|SALLOC|SACCTMGR)_")
_KEPT = {"SLURM_CONF"}
#: Refusals that a later attempt may cure.
_AWAY = re.compile(
    r"timed out|unable to contact|connection refused|connection reset|zero bytes|temporarily un|try again"
    r"|transport endpoint|communication|in standby mode|being reconfigured"
    r"|protocol authentication|munge encode|slurm_load_\w+ error",
    re.IGNORECASE,
)
#: Until jobs of the user, the account or the quality of service have ended.
_FULL = re.compile(r"submit limit|maxsubmit", re.IGNORECASE)
_GONE = re.compile(r"invalid job id", re.IGNORECASE)


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command: nothing of the user's changes its meaning."""
    kept = {name: value for name, value in variables.items() if name in _KEPT or not _FOREIGN.match(name)}
    return {**kept, "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}


def is_gone(error: EngineFatalError | EngineAwayError) -> bool:
    """Whether a job is not known any more."""
    return _GONE.search(str(error)) is not None


class Commands:
    """Runs commands; `variables` is the environment that they start from."""

    def __init__(self, variables: Mapping[str, str] | None = None, deadline_s: float = DEADLINE_S) -> None:
        self._env = environment(os.environ if variables is None else variables)
        self._deadline_s = deadline_s

    def run(self, argv: Sequence[str], script: str = "") -> str:
        """What the command prints. EngineAwayError after the deadline, when it is killed, and for refusals for now."""
        name = argv[0]
        try:
            done = subprocess.run(
                argv,
                input=script.encode(),
                env=self._env,
                cwd="/",
                capture_output=True,
                timeout=self._deadline_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise EngineAwayError(f"{name} has not answered within {self._deadline_s:g} s") from None
        except FileNotFoundError:
            raise EngineFatalError(
                f"the command {name} is not installed, or not in PATH; install Slurm's commands"
            ) from None
        except OSError as error:
            raise EngineAwayError(f"{name} cannot be started: {error.strerror}") from None
        if done.returncode == 0:
            if len(done.stdout) > OUTPUT_MAX:
                raise EngineAwayError(f"{name} printed more than {OUTPUT_MAX >> 20} MB")
            return done.stdout.decode(errors="replace")
        said = done.stderr.decode(errors="replace").strip().splitlines()
        words = said[-1].partition("error: ")[2] or said[-1] if said else f"exit code {done.returncode}"
        text = "\n".join(said)
        kind = EngineFullError if _FULL.search(text) else EngineAwayError if _AWAY.search(text) else EngineFatalError
        raise kind(f"{name} refuses: {words[:500]}")
