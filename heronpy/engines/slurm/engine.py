"""Slurm as an implementation of the engine contract."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace

from heronpy.common.errors import ConfigError
from heronpy.common.folders import check_root
from heronpy.engines.contract import (
    EngineAwayError,
    EngineError,
    EngineFatalError,
    EngineFullError,
    Explained,
    Found,
    NodeSize,
    Request,
    Seen,
    alike,
)
from heronpy.engines.shared import address_towards, end_of, polling
from heronpy.engines.slurm.batch import SlurmOptions, batch_script, look_command, sbatch_arguments, spread
from heronpy.engines.slurm.texts import (
    ENDED_BY_NODE,
    JOBS,
    NODES,
    PARTITIONS,
    PLACES,
    ROOMS,
    START,
    Job,
    Partition,
    closed_nodes,
    count_topologies,
    is_unconfirmed,
    newest,
    parse_boots,
    parse_config,
    parse_jobs,
    parse_nodes,
    parse_partitions,
    parse_release,
    parse_rooms,
    parse_start,
    parse_submitted,
    ready_nodes,
    seen_of,
    unchecked_names,
    was_rebooted,
)

log = logging.getLogger("heronpy.engines.slurm")

#: The oldest tested release.
RELEASE_MIN = (22, 5)
POLL_S = 2.0
#: Number of remembered ends whose node was checked; older ones are forgotten and checked again.
_JUDGED_MAX = 4096
#: sbatch's message when no node can run a job, because all are too small or closed.
_NO_NODE = "node configuration is not available"
_NEEDED = ("sbatch", "squeue", "scancel", "sinfo", "scontrol")
DEADLINE_S = 10.0
#: Larger output is refused; a line of squeue has some hundred bytes.
OUTPUT_MAX = 64 << 20
#: Variables that change what commands print or submit are removed; only the location of the configuration is kept.
_FOREIGN = re.compile(r"(SLURM|SBATCH|SQUEUE|SCANCEL|SINFO|SRUN|SALLOC|SACCTMGR)_")
_KEPT = {"SLURM_CONF"}
#: Refusals for which a later attempt may succeed.
_AWAY = re.compile(
    r"timed out|unable to contact|connection refused|connection reset|zero bytes|temporarily un|try again"
    r"|transport endpoint|communication|in standby mode|being reconfigured"
    r"|protocol authentication|munge encode|slurm_load_\w+ error",
    re.IGNORECASE,
)
#: Limits that apply until jobs of the user, the account or the quality of service have ended.
_FULL = re.compile(r"submit limit|maxsubmit", re.IGNORECASE)
_GONE = re.compile(r"invalid job id", re.IGNORECASE)


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment for Slurm commands, without the user's variables that change what a command does."""
    kept = {name: value for name, value in variables.items() if name in _KEPT or not _FOREIGN.match(name)}
    return {**kept, "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}


def is_gone(error: EngineFatalError | EngineAwayError) -> bool:
    """Whether an error means that Slurm no longer has a record of a job."""
    return _GONE.search(str(error)) is not None


class Commands:
    """Runs Slurm commands with a deadline, and raises the errors that the engine contract defines.

    `variables` is the base environment of the commands.
    """

    def __init__(self, variables: Mapping[str, str] | None = None, deadline_s: float = DEADLINE_S) -> None:
        self._env = environment(os.environ if variables is None else variables)
        self._deadline_s = deadline_s

    def run(self, argv: Sequence[str], script: str = "") -> str:
        """The output of a command. Raises EngineAwayError if it is too slow, killed or temporarily refused."""
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
        raise kind(f"{name} refuses the request: {words[:500]}")


class SlurmEngine:
    """The jobs of one topology. Each container runs `command` with the join token as standard input.

    A cancelled job always gets the cluster's KillWait as its grace period; `grace_s` is ignored.
    """

    def __init__(
        self,
        topology_id: str,
        options: SlurmOptions,
        command: Sequence[str],
        variables: Mapping[str, str] | None = None,
        poll_s: float = POLL_S,
    ) -> None:
        self._topology_id = topology_id
        self._options = options
        self._command = tuple(command)
        self._commands = Commands(variables)
        self._path = (os.environ if variables is None else variables).get("PATH")
        self._poll_s = poll_s
        #: Whether the end of a job was confirmed, as decided when the end was first listed.
        self._confirmed: dict[str, bool] = {}
        #: Jobs whose node was booted after they began.
        self._rebooted: set[str] = set()
        #: Containers by host, according to the last list and the choices since.
        self._held: Counter[str] = Counter()
        self._disk: bool | None = None

    # ---- commands -------------------------------------------------------------------------------
    def submit(self, requests: Sequence[Request]) -> dict[tuple[int, int], str]:
        """Submit one job array for each group of equal requests and chosen node. See `Engine.submit`."""
        ids: dict[tuple[int, int], str] = {}
        if any(one.disk_bytes for one in requests) and not self._counts_disk():
            requests = [replace(one, disk_bytes=0) for one in requests]
        for batch in alike(requests):
            for chosen, part in self._spread(batch).items():
                try:
                    job = parse_submitted(self._submit(part, chosen))
                except ValueError as error:
                    raise EngineAwayError(str(error)) from None
                except EngineFatalError:
                    with suppress(EngineError):
                        self.cancel(list(ids.values()), 0.0)
                    raise
                ids |= {(one.container, one.submission): f"{job}_{one.container}" for one in part}
        return ids

    def _spread(self, batch: Sequence[Request]) -> dict[str, list[Request]]:
        """Group equal requests by the node chosen for each; "" means any node."""
        if batch[0].anywhere:
            return {"": [*batch]}
        text = self._commands.run(["sinfo", "--all", "--Node", "--noheader", f"--Format={ROOMS}"])
        rooms = parse_rooms(text, self._options.partition)
        return spread(batch, rooms, self._held) if len(rooms) > 1 else {"": [*batch]}

    def _submit(self, batch: Sequence[Request], chosen: str) -> str:
        """Submit equal requests as one array; returns the output of sbatch."""
        first = batch[0]
        script = batch_script(first, self._options, self._command)
        if chosen:
            # The operator's options may exclude that node.
            with suppress(EngineFatalError):
                return self._commands.run(sbatch_arguments(batch, self._options, first.avoid, chosen), script)
        try:
            return self._commands.run(sbatch_arguments(batch, self._options, first.avoid), script)
        except EngineFatalError as error:
            # No other node is large enough, or one of the avoided nodes was removed from Slurm. An avoided node is
            # better than none, and a node with another container is better than a drained or lost node. Removed nodes
            # need no exclusion.
            names, refused = self._node_names(), error
        avoided = [host for host in first.avoid if host in names and host not in first.beside]
        barred = [host for host in first.barred if host in names]
        for hosts in (avoided, barred):
            if hosts == list(first.avoid):
                continue
            try:
                text = self._commands.run(sbatch_arguments(batch, self._options, hosts), script)
            except EngineFatalError as error:
                refused = error
                continue
            if spared := sorted({*avoided} - {*hosts}):
                log.warning(
                    "container %s may run on the avoided hosts %s, because no other node has room for it",
                    ", ".join(str(one.container) for one in batch), ", ".join(spared),
                )  # fmt: skip
            return text
        raise refused

    def _node_names(self) -> set[str]:
        text = self._commands.run(["sinfo", "--all", "--Node", "--noheader", "--format=%N"])
        return set(text.split())

    def cancel(self, engine_ids: Sequence[str], grace_s: float) -> None:
        """See `Engine.cancel`; the grace period is the cluster's KillWait."""
        if not engine_ids:
            return
        try:
            self._commands.run(["scancel", *engine_ids])
        except EngineError as error:
            if not isinstance(error, EngineFatalError | EngineAwayError) or not is_gone(error):
                raise

    # ---- lists ------------------------------------------------------------------------------------
    def _jobs(self) -> Sequence[Job]:
        argv = ["squeue", "--all", "--noheader", "--array", "--states=all", "--me", f"--Format={JOBS}"]
        try:
            return parse_jobs(self._commands.run(argv))
        except ValueError as error:
            raise EngineAwayError(str(error)) from None

    def list(self) -> Sequence[Seen]:
        """List the jobs with squeue; also runs sinfo if a newly ended job may still have processes on its node."""
        jobs = newest([job for job in self._jobs() if job.topology_id == self._topology_id])
        new = [job for job in jobs if job.state in ENDED_BY_NODE and job.host and job.engine_id not in self._confirmed]
        if new:
            hosts = ",".join(sorted({job.host for job in new}))
            lost = parse_nodes(
                self._commands.run(["sinfo", "--Node", "--noheader", f"--nodes={hosts}", f"--format={NODES}"])
            )
            for job in new:
                self._confirmed[job.engine_id] = job.host not in lost
            for oldest in [*self._confirmed][:-_JUDGED_MAX]:
                del self._confirmed[oldest]
        given_up = {job.engine_id: {job.host} for job in jobs if not self._confirmed.get(job.engine_id, True)}
        self._held = Counter(job.host for job in jobs if job.host and not job.ended)
        self._find_rebooted([job for job in jobs if is_unconfirmed(job, given_up.get(job.engine_id, ()))])
        return [seen_of(job, given_up.get(job.engine_id, ()), job.engine_id in self._rebooted) for job in jobs]

    def _find_rebooted(self, jobs: Sequence[Job]) -> None:
        """Record which of these jobs ran on a node that has been rebooted since."""
        left = [job for job in jobs if job.engine_id not in self._rebooted]
        self._rebooted &= {job.engine_id for job in jobs}
        if not left:
            return
        hosts = ",".join(sorted({job.host for job in left}))
        with suppress(EngineFatalError):  # one of them no longer exists
            boots = parse_boots(self._commands.run(["scontrol", "show", "nodes", hosts, "--oneliner"]))
            self._rebooted |= {job.engine_id for job in left if was_rebooted(job, boots)}

    def ready(self, hosts: Collection[str]) -> set[str]:
        return ready_nodes(self._commands.run(["sinfo", "--all", "--Node", "--noheader", f"--format={NODES}"]), hosts)

    def explain(self, engine_id: str) -> Explained:
        """Slurm's reason why a job is waiting, and the time at which Slurm expects it to start."""
        argv = ["squeue", "--all", "--noheader", "--array", f"--jobs={engine_id}", f"--Format={START}"]
        try:
            return parse_start(self._commands.run(argv))
        except (EngineFatalError, EngineAwayError) as error:
            if is_gone(error):
                return parse_start("")
            raise

    def termination_report(self, engine_id: str) -> str:
        """The last output of a job, if the operator has set a folder for output files."""
        if not self._options.output_dir or not re.fullmatch(r"\d+_\d+", engine_id):
            return ""
        return end_of(os.path.join(self._options.output_dir, f"{engine_id}.out"))

    def look_command(self) -> str:
        return look_command(self._topology_id)

    def topologies(self) -> dict[str, int]:
        return count_topologies(self._jobs())

    def watch(self, changed: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `changed` every `poll_s`, because Slurm does not report changes."""
        return polling(self._poll_s, changed)

    def reach(self) -> tuple[str, ...]:
        """This host's address on the route to the controller."""
        config = parse_config(self._commands.run(["scontrol", "show", "config"]))
        controller = config.get("SlurmctldHost[0]", "")
        host = controller.partition("(")[2].rstrip(")") or controller
        return (address_towards(f"{host}:9"),)

    def check(self) -> Sequence[Found]:
        """Check Slurm's commands, release, controller, partition and limits. See `Engine.check`."""
        lacking = [name for name in _NEEDED if shutil.which(name, path=self._path) is None]
        if lacking:
            what = f"{', '.join(lacking)} not found in PATH"
            return [
                Found("Slurm's commands", False, what, "install these commands, or submit from a host that has them")
            ]
        found = [Found("Slurm's commands", True, ", ".join(_NEEDED))]
        try:
            text = self._commands.run(["squeue", "--version"]).strip()
            release, least = parse_release(text), ".".join(f"{part:02}" for part in RELEASE_MIN)
            found.append(Found("release", (release or (0, 0)) >= RELEASE_MIN, text, f"{least} or newer is needed"))
            config = parse_config(self._commands.run(["scontrol", "show", "config"]))
            found.append(Found("controller", True, config.get("SlurmctldHost[0]", "")))
            grace, arrays = config.get("KillWait", "?"), config.get("MaxArraySize", "?")
            found.append(Found("limits", True, f"a cancelled container has {grace} to end; MaxArraySize is {arrays}"))
            if self._options.output_dir:
                found.append(check_output(self._options.output_dir))
            partition = self._check_partition()
            found.append(partition)
            if partition.ok:
                found.append(self._check_submission())
            unchecked = unchecked_names(config, self._options.account, self._options.qos)
            if unchecked:
                fix = "ask the cluster's operator to check the value, because this Slurm also accepts wrong values"
                found.append(Found.skipped("accounting", unchecked, fix))
        except EngineError as error:
            found.append(
                Found("controller", False, str(error), "check that slurmctld is running and SLURM_CONF is correct")
            )
        return found

    def node_sizes(self) -> Sequence[NodeSize]:
        """The distinct sizes of the nodes in partitions that are up."""
        return [
            NodeSize(one.cpus, one.memory_mib << 20, (one.disk_mib << 20) or None, f"partition {one.name}")
            for one in self._partitions()
            if one.up
        ]

    def _counts_disk(self) -> bool:
        """Whether a job may request disk space. Slurm refuses such a request if its configuration lacks TmpDisk."""
        if self._disk is None:
            self._disk = any(one.disk_mib for one in self._partitions())
        return self._disk

    def partitions(self) -> Sequence[Partition]:
        """All partitions of the cluster, regardless of the options; one entry for each kind of node in a partition."""
        return self._partitions("")

    def _partitions(self, name: str | None = None) -> Sequence[Partition]:
        """The partitions with this name; None means the configured partitions, and "" means all partitions."""
        name = self._options.partition if name is None else name
        flag = f"--partition={name}" if name else "--all"
        argv = ["sinfo", flag, "--exact", "--noheader", f"--format={PARTITIONS}"]
        return parse_partitions(self._commands.run(argv))

    def _check_submission(self) -> Found:
        """Check whether Slurm would accept a job with the configured account, quality of service and options."""
        size = Request(self._topology_id, 0, 1, cpu=1.0, ram_bytes=1 << 20)
        argv = [*sbatch_arguments([size], self._options, ()), "--test-only"]
        try:
            self._commands.run(argv, batch_script(size, self._options, ["true"]))
        except EngineFullError as error:
            return Found.waits("submission", str(error), "check again when some of your jobs have ended")
        except EngineFatalError as error:
            if _NO_NODE in str(error).lower() and (closed := self._closed_nodes()):
                what = f"no node of the partition accepts jobs now ({closed}), so {error}"
                return Found("submission", False, what, "resume a node, choose another partition, or ask the operator")
            fix = "correct slurm.partition, account, qos, time_limit_s or options"
            return Found("submission", False, str(error), fix)
        return Found("submission", True, "Slurm would accept a job with these settings")

    def _closed_nodes(self) -> str:
        """The partition's nodes and their states, if no node accepts jobs; see `closed_nodes`."""
        text = self._commands.run(["sinfo", "--all", "--Node", "--noheader", f"--format={PLACES}"])
        return closed_nodes(text, self._options.partition)

    def _check_partition(self) -> Found:
        name = self._options.partition
        partitions = self._partitions()
        if not partitions:
            return Found("partition", False, f"there is no partition {name!r}", "run sinfo to see the partitions")
        down = [one.name for one in partitions if not one.up]
        if len(down) == len(partitions):
            return Found(
                "partition", False, f"{', '.join(down)} is down", "choose another partition, or ask the operator"
            )
        return Found("partition", True, "; ".join(f"{one.name}: {one.words}" for one in partitions))


def check_output(folder: str) -> Found:
    """Check whether jobs can write output to a folder: Slurm ends a job whose output file cannot be created."""
    fix = "create it on a file system that all hosts share, writable only by you, or leave slurm.output_dir empty"
    try:
        check_root(folder, "slurm.output_dir")
    except ConfigError as error:
        return Found("output folder", False, str(error), fix)
    ok = os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)
    return Found("output folder", ok, folder if ok else f"{folder} is not a folder on this host, or not writable", fix)
