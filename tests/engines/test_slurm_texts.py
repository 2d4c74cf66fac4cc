"""What Slurm's commands print, and what is submitted to it. The texts are those of Slurm 22.05."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.errors import ConfigError
from heronpy.engines.contract import (
    Ended,
    EngineAwayError,
    EngineFatalError,
    EngineFullError,
    EnginePhase,
    Explained,
    Request,
    Seen,
    alike,
)
from heronpy.engines.slurm.batch import (
    SPREAD_MAX,
    Room,
    SlurmOptions,
    batch_script,
    job_name,
    look_command,
    parse_name,
    sbatch_arguments,
    spread,
)
from heronpy.engines.slurm.engine import Commands, SlurmEngine, check_output, environment
from heronpy.engines.slurm.texts import (
    closed_nodes,
    count_topologies,
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
from heronpy.procs.exit_reason import ExitReason

JOBS = """\
812_2|PENDING||0|Resources|heron.word_count-9f.1|avoids:n1,n2|0|
812_0|RUNNING|n3|0|None|heron.word_count-9f.1|(null)|0|
812_4|CONFIGURING|n4|0|None|heron.word_count-9f.1|(null)|0|
812_5|COMPLETING|n4|0|None|heron.word_count-9f.1|(null)|0|
813_1|FAILED|n1|1024|NonZeroExitCode|heron.word_count-9f.2|(null)|0|
814|FAILED|n1|1792|NonZeroExitCode|somebody|else's comment|with a bar|
815|RUNNING|n1|0|None|heron.no-array.1|(null)|0|
816_1|FAILED||0|BadConstraints|heron.word_count-9f.3|(null)|0|
817_1|RUNNING|n5|0|None|heron.a.b.12|(null)|0|
"""


def seen_in(line: str, *lost: str) -> Seen:
    [job] = parse_jobs(line)
    return seen_of(job, lost)


def test_a_recorded_list() -> None:
    jobs = parse_jobs(JOBS)
    assert [(job.topology_id, job.container, job.submission) for job in jobs] == [
        ("word_count-9f", 2, 1), ("word_count-9f", 0, 1), ("word_count-9f", 4, 1), ("word_count-9f", 5, 1),
        ("word_count-9f", 1, 2), ("a.b", 1, 12),
    ]  # fmt: skip
    assert count_topologies(jobs) == {"word_count-9f": 4, "a.b": 1}
    seen = [seen_of(job, ()) for job in jobs]
    assert [one.phase for one in seen[:5]] == [
        EnginePhase.QUEUED, EnginePhase.RUNNING, EnginePhase.STARTING, EnginePhase.ENDING, EnginePhase.ENDED,
    ]  # fmt: skip
    assert seen[0].words == "PENDING: Resources" and seen[0].avoid == ("n1", "n2") and not seen[0].hopeless
    assert seen[1].engine_id == "812_0" and seen[1].host == "n3" and seen[1].avoid == ()


def test_an_array_that_was_cancelled_before_any_of_it_ran_has_lost_its_indices() -> None:
    """As Slurm 22.05 lists it; what is listed of one container by itself goes before it."""
    jobs = parse_jobs(
        "113|CANCELLED||0|None|heron.t.2|containers:0,3,4 avoids:n1|0|\n113_3|FAILED|n2|9|None|heron.t.2|(null)|0|\n"
        "114|PENDING||0|None|heron.t.3|containers:0|0|\n115|CANCELLED||0|None|heron.t.4|(null)|0|\n"
    )
    assert [(job.engine_id, job.container, job.submission, job.state) for job in jobs] == [
        ("113_3", 3, 2, "FAILED"), ("113_0", 0, 2, "CANCELLED"), ("113_4", 4, 2, "CANCELLED"),
    ]  # fmt: skip
    seen = seen_of(jobs[1], ())
    assert (seen.ended, seen.reason, seen.avoid) == (Ended.CONFIRMED, ExitReason.KILLED, ("n1",))


@pytest.mark.parametrize(
    ("state", "status", "reason", "code"),
    [
        ("COMPLETED", 0, ExitReason.PREEMPTED, 0),  # our daemons end with 0 only when they are asked to
        ("FAILED", 4 << 8, ExitReason.USER_EXCEPTION, 4),
        ("FAILED", 1 << 8, ExitReason.OWN_BUG, 1),
        ("FAILED", 9, ExitReason.KILLED, None),
        ("FAILED", 11, ExitReason.CRASHED, None),
        ("FAILED", 0, ExitReason.SPAWN_FAILED, 0),
        ("OUT_OF_MEMORY", 125 << 8, ExitReason.OOM, None),
        ("TIMEOUT", 15, ExitReason.PREEMPTED, None),
        ("DEADLINE", 15, ExitReason.PREEMPTED, None),
        ("PREEMPTED", 15, ExitReason.PREEMPTED, None),
        ("CANCELLED", 15, ExitReason.KILLED, None),
        ("BOOT_FAIL", 0, ExitReason.LOST_HOST, None),
    ],
)
def test_confirmed_ends(state: str, status: int, reason: ExitReason, code: int | None) -> None:
    seen = seen_in(f"1_1|{state}|n1|{status}|None|heron.t.1|(null)|0|")
    assert (seen.ended, seen.reason, seen.exit_code) == (Ended.CONFIRMED, reason, code)
    assert seen.cancelled == (state == "CANCELLED")


@pytest.mark.parametrize(
    ("kept", "enforced", "words"),
    [
        ("(null)", "none", "account 'lab' and qos 'fast' cannot be checked: this Slurm keeps no accounts"),
        ("accounting_storage/none", "none", "keeps no accounts (AccountingStorageEnforce is none)"),
        ("accounting_storage/slurmdbd", "none", "accepts any name"),
        ("accounting_storage/slurmdbd", "associations,limits", "qos 'fast' cannot be checked: this Slurm accepts any"),
        ("accounting_storage/slurmdbd", "associations,limits,qos,safe", ""),
    ],
)
def test_names_that_slurm_does_not_look_up_are_told(kept: str, enforced: str, words: str) -> None:
    config = parse_config(f"AccountingStorageType   = {kept}\nAccountingStorageEnforce = {enforced}\n")
    told = unchecked_names(config, "lab", "fast")
    assert words in told and bool(words) == bool(told), told
    assert unchecked_names(config, "", "") == ""


@pytest.mark.parametrize("state", ["NODE_FAIL", "CANCELLED", "PREEMPTED", "TIMEOUT"])
def test_on_a_lost_node_nothing_is_confirmed(state: str) -> None:
    seen = seen_in(f"1_1|{state}|n1|15|NodeDown|heron.t.1|(null)|0|", "n1")
    assert (seen.ended, seen.reason, seen.cancelled) == (Ended.UNCONFIRMED, None, False)


def test_what_ended_by_itself_on_a_node_that_is_lost_later_is_confirmed() -> None:
    assert seen_in("1_1|FAILED|n1|1024|NonZeroExitCode|heron.t.1|(null)|0|", "n1").ended is Ended.CONFIRMED


PLACES = "batch*|n1|drained\nbatch*|n2|down*\nbig|n3|{}\n"


@pytest.mark.parametrize(
    ("partition", "state", "words"),
    [
        ("batch", "idle", "n1 is drained, n2 is down*"),
        ("", "idle", "n1 is drained, n2 is down*"),
        ("big", "idle", ""),
        ("big", "idle~", ""),
        ("big", "mixed", ""),
        ("big", "draining", "n3 is draining"),
        ("batch,big", "allocated", ""),
        ("nowhere", "idle", ""),
    ],
)
def test_nodes_that_take_no_job(partition: str, state: str, words: str) -> None:
    assert closed_nodes(PLACES.format(state), partition) == words
    many = "".join(f"batch*|n{number}|down\n" for number in range(9))
    assert closed_nodes(many, "") == "n0 is down, n1 is down, n2 is down, and 6 more"


SLURM = """\
#!/bin/sh
case "$(basename $0) $*" in
"squeue --version") echo slurm-wlm 22.05.8 ;;
sinfo*--exact*) echo "batch*|up|1:00:00|2|1000|0" ;;
sinfo*) echo "batch*|n1|$NODE" ;;
sbatch*) echo "allocation failure: $WORDS" >&2; exit 1 ;;
esac
"""


NO_NODE = "Requested node configuration is not available"


@pytest.mark.parametrize(
    ("state", "says", "words", "fix"),
    [
        ("drained", NO_NODE, "no node of the partition accepts jobs now (n1 is drained), so sbatch", "resume a node, "),
        ("idle", NO_NODE, "sbatch", "correct slurm.partition, "),
        ("drained", "Invalid feature specification", "sbatch", "correct slurm.partition, "),
    ],
)
def test_a_check_tells_drained_nodes_from_wrong_settings(
    tmp_path: Path, state: str, says: str, words: str, fix: str
) -> None:
    for name in ("sbatch", "squeue", "scancel", "sinfo", "scontrol"):
        (tmp_path / name).write_text(SLURM)
        (tmp_path / name).chmod(0o755)
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "NODE": state, "WORDS": says}
    found = SlurmEngine("t", SlurmOptions(), ["true"], variables).check()[-1]
    assert found.what == "submission" and not found.ok
    assert found.detail == f"{words} refuses the request: allocation failure: {says}" and found.fix.startswith(fix)


@pytest.mark.parametrize("state", ["SUSPENDED", "STAGE_OUT", "A_STATE_OF_TOMORROW"])
def test_a_state_that_is_not_known_is_no_end(state: str) -> None:
    assert seen_in(f"1_1|{state}|n1|0|None|heron.t.1|(null)|0|").ended is Ended.NO


@pytest.mark.parametrize("reason", ["PartitionTimeLimit", "QOSMaxWallDurationPerJobLimit", "AssocMaxCpuPerJobLimit"])
def test_some_reasons_are_hopeless(reason: str) -> None:
    assert seen_in(f"1_1|PENDING||0|{reason}|heron.t.1|(null)|0|").hopeless


@pytest.mark.parametrize(
    "reason", ["Resources", "Priority", "JobHeldUser", "ReqNodeNotAvail", "PartitionDown", "BeginTime"]
)
def test_others_pass(reason: str) -> None:
    assert not seen_in(f"1_1|PENDING||0|{reason}|heron.t.1|(null)|0|").hopeless


def test_of_two_jobs_of_a_submission_the_living_one_counts() -> None:
    text = "1_1|FAILED|n1|256|None|heron.t.1|(null)|0|\n2_1|RUNNING|n2|0|None|heron.t.1|(null)|0|"
    assert [job.engine_id for job in newest(parse_jobs(text))] == ["2_1"]


def test_half_a_list_is_none() -> None:
    with pytest.raises(ValueError, match="in an unexpected format"):
        parse_jobs(JOBS + "812_9|RUNN")


def test_a_line_break_in_the_comment_of_another_job_hides_nothing() -> None:
    before = parse_jobs(JOBS)
    assert parse_jobs(JOBS + "77|RUNNING|n3|0|None|mine|two\nlines|\n") == before
    with pytest.raises(ValueError, match="in an unexpected format"):
        parse_jobs("lines\nof something else\n")


@given(st.text(max_size=200))
def test_no_text_is_taken_for_something_else(text: str) -> None:
    try:
        jobs = parse_jobs(text)
    except ValueError:
        return
    assert all(job.submission >= 0 and job.container >= 0 for job in jobs)


def test_other_texts() -> None:
    assert parse_submitted("812\n") == "812" and parse_submitted("812;north\n") == "812"
    with pytest.raises(ValueError, match="instead of a job id"):
        parse_submitted("sbatch: job submitted, thank you")
    assert parse_release("slurm-wlm 22.05.8") == (22, 5) and parse_release("slurm 23.11.1") == (23, 11)
    assert parse_release("?") is None
    assert parse_nodes("n1|idle\nn2|down*\nn3|allocated*\nn4|draining\nn5|unknown\nn6|mixed\n") == {"n2", "n3", "n5"}
    explained = parse_start("Resources|1795424293|")
    assert (explained.words, explained.starts_at) == ("Resources", 1795424293.0)
    assert parse_start("Priority|N/A|").starts_at is None
    for nothing in ("None", "(null)", "N/A", ""):
        assert parse_start(f"{nothing}|1795424293|") == Explained("", 1795424293.0), "not a reason"
        [job] = parse_jobs(f"7_1|PENDING||0|{nothing}|heron.word_count-9f.1|(null)|0|\n")
        assert seen_of(job, set()).words == "PENDING"
    assert "no longer lists the job" in parse_start("").words
    assert parse_config("KillWait                = 30 sec\nx\n") == {"KillWait": "30 sec"}
    [one, other] = parse_partitions("batch*|up|1-00:00:00|2+|1000+|0\ntiny|down|1:00|64|256000|99\nbroken|up\n")
    assert (one.default, one.disk_mib, other.default, other.disk_mib) == (True, 0, False, 99)
    assert (one.name, one.up, one.cpus, one.memory_mib) == ("batch", True, 2, 1000) and not other.up


# ---- what is submitted ----------------------------------------------------------------------
WISH = Request(
    "t-1", 1, 3, cpu=1.5, ram_bytes=(100 << 20) + 1, avoid=("n1",), token="endpoint tcp://10.0.0.1:7\nkey abc"
)


def test_containers_that_differ_only_in_their_number_travel_together() -> None:
    wishes = [
        WISH,
        replace(WISH, container=4),
        replace(WISH, container=0, ram_bytes=1),
        replace(WISH, container=2, submission=4),
    ]
    assert [[one.container for one in batch] for batch in alike(wishes)] == [[1, 4], [0], [2]]


def test_arguments() -> None:
    options = SlurmOptions(
        "batch", "lab", "low", time_limit_s=3601, leave_s=90, extra=("--constraint=ssd",), output_dir="/o"
    )
    arguments = sbatch_arguments([WISH, replace(WISH, container=4)], options, WISH.avoid)
    for expected in (
        "--parsable", "--no-requeue", "--job-name=heron.t-1.3", "--array=1,4", "--cpus-per-task=2", "--mem=101M",
        "--time=61", "--signal=B:USR1@90", "--exclude=n1", "--comment=containers:1,4 avoids:n1", "--partition=batch", "--account=lab",
        "--qos=low", "--constraint=ssd", "--output=/o/%A_%a.out", "--export=HOME,USER,LOGNAME",
    ):  # fmt: skip
        assert expected in arguments, expected
    plain = sbatch_arguments([replace(WISH, disk_bytes=5)], SlurmOptions(), ())
    assert "--tmp=1M" in plain and "--output=/dev/null" in plain
    assert not any(one.startswith(("--exclude", "--partition", "--time")) for one in plain)
    assert not any("abc" in one for one in [*arguments, *plain]), "the join token is never an argument"
    odd = sbatch_arguments([WISH], SlurmOptions(), ("n1", "--wrap=rm", "a b"))
    assert "--exclude=n1" in odd


@pytest.mark.parametrize("folder", ["relative/out", "/o/%j", "/o\\x", "/o\n/p"])
def test_a_folder_for_output_that_slurm_would_not_understand_is_refused(folder: str) -> None:
    with pytest.raises(ConfigError, match=r"slurm.output_dir is .* but must be an absolute path"):
        SlurmOptions(output_dir=folder)


def test_what_a_person_looks_for_is_what_is_submitted() -> None:
    assert job_name("wc-1", 3).startswith(look_command("wc-1").rpartition(" ")[2])


def test_the_script_becomes_the_container() -> None:
    script = batch_script(WISH, SlurmOptions(prologue=("module load python",)), ["/opt/my python", "-m", "x"])
    lines = script.splitlines()
    assert lines[0] == "#!/bin/bash" and lines[1] == "module load python"
    assert "exec '/opt/my python' -m x <<'HERON_JOIN_TOKEN_END'" in lines
    assert lines[-3:] == ["endpoint tcp://10.0.0.1:7", "key abc", "HERON_JOIN_TOKEN_END"]
    with pytest.raises(ValueError):
        batch_script(replace(WISH, token="a\nHERON_JOIN_TOKEN_END\nrm -rf /"), SlurmOptions(), ["x"])


@given(st.from_regex(r"\w[\w.-]{0,30}", fullmatch=True), st.integers(1, 10**9))
def test_names_are_read_as_they_are_written(topology: str, submission: int) -> None:
    assert parse_name(job_name(topology, submission)) == (topology, submission)


@pytest.mark.parametrize("name", ["", "heron.", "heron.x", "heron..1", "heron.x.y", "heron.x.-1", "x.heron.t.1"])
def test_other_names_are_not_ours(name: str) -> None:
    assert parse_name(name) is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"extra": ("--partition=x",)}, "slurm.partition"),
        ({"extra": ("--requeue",)}, "remove it"),
        ({"extra": ("--requeu",)}, "--requeu, short for --requeue, .* remove it"),
        ({"extra": ("--part=x",)}, "slurm.partition"),
        ({"extra": ("--clu=other",)}, "short for --clusters"),
        ({"extra": ("-p x",)}, "--name"),
        ({"extra": ("--",)}, "--name"),
        ({"time_limit_s": 60}, "leave_s"),
        ({"prologue": ("a\nb",)}, "line break"),
    ],
)
def test_options_that_contradict_ours_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SlurmOptions(**options)  # type: ignore[arg-type]


def test_other_options_pass() -> None:
    SlurmOptions(extra=("--constraint=ssd", "--exclusive", "--mem-bind=local", "--time-min=10", "--nice", "--no-kill"))


# ---- commands that fail ---------------------------------------------------------------------
def fake(folder: Path, name: str, body: str) -> dict[str, str]:
    """A command of that name; the environment that finds it."""
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def test_the_environment_changes_no_command() -> None:
    kept = environment(
        {"SBATCH_PARTITION": "x", "SQUEUE_FORMAT": "y", "SLURM_JOB_ID": "1", "SLURM_CONF": "c", "HOME": "h"}
    )
    assert kept == {"SLURM_CONF": "c", "HOME": "h", "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}


def test_a_command_that_hangs_is_killed_after_its_deadline(tmp_path: Path) -> None:
    variables = fake(tmp_path, "squeue", "exec sleep 60")
    began = time.monotonic()
    with pytest.raises(EngineAwayError, match=r"squeue has not answered within 0\.2 s"):
        Commands(variables, deadline_s=0.2).run(["squeue"])
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("slurm_load_jobs error: Socket timed out on send/recv operation", EngineAwayError),
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", EngineAwayError),
        ("sbatch: error: Batch job submission failed: Resource temporarily unavailable", EngineAwayError),
        ("sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates"
         " accounting/QOS policy (job submit limit, user's size and/or time limits)", EngineFullError),
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", EngineFatalError),
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
         EngineFatalError),
        ("sbatch: error: Batch job submission failed: Invalid qos specification", EngineFatalError),
        ("squeue: unrecognized option '--me'", EngineFatalError),
    ],
)  # fmt: skip
def test_refusals_for_now_and_for_good(said: str, kind: type[Exception], tmp_path: Path) -> None:
    variables = fake(tmp_path, "sbatch", f"cat >&2 <<'END'\n{said}\nEND\nexit 1")
    with pytest.raises(kind) as caught:
        Commands(variables).run(["sbatch"])
    assert type(caught.value) is kind and str(caught.value).startswith("sbatch refuses the request: ")


def test_a_list_that_is_cut_off_is_no_list(tmp_path: Path) -> None:
    variables = fake(tmp_path, "squeue", "echo '1_1|RUNNING|n1|0|None|heron.t.1|(null)|0|'; echo '1_2|RUN'")
    with pytest.raises(EngineAwayError, match="in an unexpected format"):
        SlurmEngine("t", SlurmOptions(), ["true"], variables).list()


def test_a_folder_for_output_that_jobs_could_not_write_to_is_told_at_the_check(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir(mode=0o700)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "file").touch()
    found = {name: check_output(str(tmp_path / name)) for name in ("own", "open", "file", "nowhere")}
    assert {name: one.ok for name, one in found.items()} == {
        "own": True,
        "open": False,
        "file": False,
        "nowhere": False,
    }
    assert (
        "is not a folder on this host" in found["nowhere"].detail
        and "leave slurm.output_dir empty" in found["nowhere"].fix
    )


def test_what_waits_for_room_and_what_was_chosen_for_it() -> None:
    line = "1_1|PENDING||0|{}|heron.t.1|containers:1 chosen:n1|1795924890|"
    for reason in ("Resources", "Priority", "ReqNodeNotAvail, UnavailableNodes:n1"):
        seen = seen_in(line.format(reason))
        assert seen.waits and seen.pinned
    assert not seen_in(line.format("None")).waits and not seen_in(line.format("JobHeldUser")).waits
    assert not seen_in("1_1|RUNNING|n1|0|Resources|heron.t.1|containers:1|1|").waits


def test_a_boot_after_the_start_of_a_job_confirms_its_end() -> None:
    boots = parse_boots(
        "NodeName=n1 Arch=x86_64 State=MIXED OS=Linux @0 BootTime=2000 SlurmdStartTime=2001\n"
        "NodeName=n2 State=DOWN* BootTime=2000\nNodeName=n3 State=IDLE BootTime=Unknown\nNode n4 not found\n"
    )
    assert boots == {"n1": 2000.0}
    for state in ("NODE_FAIL", "CANCELLED"):
        [job] = parse_jobs(f"1_1|{state}|n1|0|NodeDown|heron.t.1|(null)|1000|")
        assert seen_of(job, ("n1",)).ended is Ended.UNCONFIRMED and was_rebooted(job, boots)
        seen = seen_of(job, ("n1",), rebooted=True)
        assert seen.ended is Ended.CONFIRMED and seen.words == f"{state}: NodeDown, and n1 was rebooted"
    assert seen_of(replace(job, state="NODE_FAIL"), (), rebooted=True).reason is ExitReason.LOST_HOST
    assert not was_rebooted(replace(job, started_at=1990.0), boots), "clocks differ"
    assert not was_rebooted(replace(job, started_at=0.0), boots)
    assert not was_rebooted(replace(job, host="n2"), boots)


def test_nodes_that_are_ready_and_what_they_have_free() -> None:
    assert ready_nodes("n1|idle\nn2|mixed\nn3|down*\nn4|drained\nn5|idle\n", ("n1", "n2", "n3", "n4")) == {"n1", "n2"}
    text = "".join(
        f"{partition}|{node}|{state}|{weight}|{cpus}|1000|{used}|\n"
        for partition, node, state, weight, cpus, used in (
            ("batch*", "n1", "mixed", 1, "1/3/0/4", 400), ("batch*", "n2", "idle~", 1, "0/4/0/4", 0),
            ("tiny", "n1", "mixed", 1, "1/3/0/4", 400), ("tiny", "n3", "idle", 5, "0/2/0/2", 0),
            ("batch*", "n4", "allocated", 1, "4/0/0/4", 0),
        )
    )  # fmt: skip
    assert parse_rooms(text, "") == parse_rooms(text, "batch") == {"n1": Room(1, 3, 600)}
    assert set(parse_rooms(text, "tiny,batch")) == {"n1", "n3"}
    assert parse_rooms("of another release\n", "") == {}


def of_size(numbers: Sequence[int], cpu: float = 1.0, mib: int = 100, **rest: Any) -> list[Request]:
    return [Request("t", number, 1, cpu, mib << 20, **rest) for number in numbers]


@given(
    st.integers(1, 12), st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(0, 6), st.integers(0, 900)))
)
def test_containers_are_spread_as_evenly_as_room_allows(count: int, sizes: dict[str, tuple[int, int]]) -> None:
    rooms = {name: Room(1, cpus, memory) for name, (cpus, memory) in sizes.items()}
    held: Counter[str] = Counter()
    found = spread(of_size(range(count)), rooms, held)
    assert sorted(one.container for part in found.values() for one in part) == list(range(count))
    fits = {name: min(room.cpus, room.memory_mib // 100) for name, room in rooms.items()}
    placed = {name: len(part) for name, part in found.items() if name}
    assert held == Counter(placed) and all(number <= fits[name] for name, number in placed.items())
    assert sum(placed.values()) == min(count, sum(fits.values()))
    for name, number in placed.items():
        for other, fit in fits.items():
            assert placed.get(other, 0) >= number - 1 or placed.get(other, 0) == fit, (name, other, placed)


def test_containers_go_where_few_are_and_not_where_slurm_would_go_last() -> None:
    rooms = {"a": Room(1, 9, 9000), "b": Room(1, 9, 9000), "gpu": Room(9, 9, 9000)}
    found = spread(of_size((1, 2, 3)), rooms, Counter({"a": 2}))
    assert {name: len(part) for name, part in found.items()} == {"b": 2, "a": 1}
    assert set(spread(of_size((1,), avoid=("a", "b")), rooms, Counter())) == {"gpu"}
    assert set(spread(of_size((1,), cpu=20.0), rooms, Counter())) == {""}
    many = {f"n{number}": Room(1, 1, 1000) for number in range(SPREAD_MAX + 5)}
    found = spread(of_size(range(SPREAD_MAX + 5)), many, Counter())
    assert len(found) == SPREAD_MAX + 1 and len(found[""]) == 5


@pytest.mark.parametrize("refused", ["", "chosen", "all"])
def test_one_array_per_chosen_node_and_none_is_left_if_one_is_refused(tmp_path: Path, refused: str) -> None:
    rooms = "".join(f"batch*|n{number}|idle|1|0/4/0/4|1000|0|\n" for number in (1, 2))
    variables = fake(tmp_path, "sinfo", f"echo '{rooms}'")
    no = {"": "", "chosen": "*--nodelist=n2*) exit 1 ;;", "all": "*--array=1*) exit 1 ;;"}[refused]
    script = f'echo "$*" >> {tmp_path}/asked\ncase "$*" in\n{no}\n*) wc -l < {tmp_path}/asked ;;\nesac'
    fake(tmp_path, "sbatch", script)
    fake(tmp_path, "scancel", f'echo "$*" >> {tmp_path}/cancelled')
    engine = SlurmEngine("t", SlurmOptions(), ["true"], variables)
    if refused == "all":
        with pytest.raises(EngineFatalError):
            engine.submit(of_size((0, 1)))
        assert (tmp_path / "cancelled").read_text() == "1_0\n"
        return
    ids = engine.submit(of_size((0, 1)))
    asked = (tmp_path / "asked").read_text().splitlines()
    assert "--nodelist=n1" in asked[0] and "chosen:n1" in asked[0] and "--nodelist=n2" in asked[1]
    assert ids == {(0, 1): "1_0", (1, 1): "3_1" if refused else "2_1"}
    if refused:
        assert "--nodelist" not in asked[2], "the operator's options rule the node out"
    engine.submit(of_size((2,), anywhere=True))
    assert "--nodelist" not in (tmp_path / "asked").read_text().splitlines()[-1]
