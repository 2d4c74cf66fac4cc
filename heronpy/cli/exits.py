"""Exit codes of `heron`, and the exception that carries an exit code.

The codes are part of the command's contract (scripts test them), so they are never renumbered. A
Failure's text is one sentence that names the cause and the fix. Its `report`, such as a user's traceback, is printed in
full before the sentence.
"""

from __future__ import annotations

OK = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
EXISTS = 4
TIMED_OUT = 5
PARTIAL = 6
LOSSES = 7
INTERRUPTED = 130

MEANINGS = {
    OK: "done",
    FAILED: "failed; the reason is on stderr",
    USAGE: "wrong usage, or bad input such as a topology or setting that cannot work",
    NOT_FOUND: "the topology, job, checkpoint or pipeline, or the named part of it, does not exist",
    EXISTS: "a topology with that name already exists",
    TIMED_OUT: "not completed before the deadline",
    PARTIAL: "partly done; stderr lists the remaining parts",
    LOSSES: "'submit --wait': the topology has finished, but tuples, Spark batches or work units are missing from its"
    " result; stdout and stderr show how many",
    INTERRUPTED: "interrupted by Ctrl-C",
}


class Failure(Exception):
    """Ends the command with one sentence on stderr and an exit code."""

    def __init__(self, text: str, code: int = FAILED, report: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.report = report


def exit_code_of(error: BaseException) -> int:
    """Return the exit code for an error, according to its type."""
    from heronpy.clusters.errors import NotThereError, PartlyDoneError, RequestError
    from heronpy.common import errors

    if isinstance(error, Failure):
        return error.code
    if isinstance(error, RequestError):
        return USAGE
    if isinstance(error, (NotThereError, errors.NoPipelineError, errors.NoNodeError)):
        return NOT_FOUND
    if isinstance(error, PartlyDoneError):
        return PARTIAL
    if isinstance(error, (errors.ConfigError, errors.TopologyError, errors.PackageError)):
        return USAGE
    if isinstance(error, errors.NodeExistsError):
        return EXISTS
    if isinstance(error, (errors.DeadlineError, errors.LateRpcError)):
        return TIMED_OUT
    return FAILED
