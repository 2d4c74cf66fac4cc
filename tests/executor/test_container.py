"""A container on another host: real processes at the control endpoint of a scheduler that does as the test says."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from heronpy.common import exit_codes
from heronpy.common.errors import ConfigError, InvalidRpcError
from heronpy.common.ids import short_hash
from heronpy.executor.container_state import SILENT_S
from heronpy.executor.host_folder import home_of
from heronpy.net.join_token import JoinToken
from heronpy.proto import endpoint_pb2
from heronpy.storage.package_pieces import PackagePieces
from heronpy.storage.wheelhouse import digest_of
from tests.support.containers import at_endpoint, left_in, processes_in, submitted, tmp
from tests.support.hosts import needs_hosts
from tests.support.waiting import alive, eventually
from tests.support.wheels import house, make_wheel

__all__ = ["tmp"]

DIGEST = "a1" * 32


async def test_it_is_admitted_starts_and_leaves_nothing(tmp: Path) -> None:
    async with at_endpoint(tmp, log_kept_bytes=512) as (endpoint, host):
        process = host.start(SLURMD_NODENAME="n17")
        await eventually(lambda: endpoint.all("renew"), 15, "a renewal")
        (hello,) = endpoint.all("hello")
        assert (hello.topology_id, hello.container, hello.submission) == ("wc-1", 1, 1)
        assert (hello.host, hello.address, hello.pid) == ("n17", "127.0.0.1", process.pid)
        assert hello.cpu >= 1 and hello.ram_bytes > 1 << 20 and not list(tmp.glob("started-*"))
        endpoint.activate(1, 1, 7)
        started = await host.acting(epoch=7)
        await eventually(lambda: any(renew.epoch == 7 for renew in endpoint.all("renew")), 5)
        folder = Path(started["folder"])
        assert folder.parent == tmp / f"heron-{os.getuid()}" / "containers" and folder.name.startswith("wc-1.1.1@")
        for path in (folder, folder / "keys", folder.parent, folder.parent.parent):
            assert path.stat().st_mode & 0o777 == 0o700
        for name in (
            "join_token.json",
            "credential.json",
            "launch.json",
            "here.json",
            "keys/client.key",
            "keys/server.key",
        ):
            assert (folder / name).stat().st_mode & 0o777 == 0o600, name
        here = json.loads((folder / "here.json").read_text())
        assert here["address"] == "127.0.0.1" and here["token"] == str(folder / "join_token.json")
        assert here["sockets_dir"] == str(tmp / f"heron-{os.getuid()}" / short_hash("wc-1.1.1"))
        secrets = [
            endpoint.token.client.secret.decode(),
            endpoint.links[0].secret.decode(),
            endpoint.links[1].secret.decode(),
        ]
        secrets.append(endpoint.secret(1, 1).hex())
        told = json.dumps([started["argv"], started["environ"]])
        log = (folder / "log-files" / "bootstrap-1.log").read_text()
        assert not [secret for secret in secrets if secret in told or secret in log]
        assert started["stdin"] == os.devnull and started["session"] == started["pid"] != process.pid
        await eventually(lambda: endpoint.all("start_spans"), 5)
        assert [span.name for span in endpoint.all("start_spans")[0].spans] == ["admit", "fetch", "build", "start"]
        asked = [kind for kind, _ in endpoint.heard if kind != "renew"]
        assert len(asked) <= 10, f"its start is no burden to the control endpoint of many: {asked}"
        process.terminate()
        assert await host.ended(process) == exit_codes.TERMINATED
        assert {leave.why for leave in endpoint.all("leave")} == {"its engine is ending it"}
        ends = {end.process: end for end in endpoint.all("log_end")}
        assert set(ends) == {"bootstrap-1", "container_1_word_1"} and b"ends:" in ends["bootstrap-1"].data
        assert b"the small executor runs" in ends["bootstrap-1"].data
        assert ends["container_1_word_1"].cut and len(ends["container_1_word_1"].data) == 512
        await eventually(lambda: not processes_in(tmp), 5, "the end of all processes")
        assert left_in(tmp) == []


async def test_its_logs_go_to_the_archive_whole_and_the_endpoint_hears_why_it_ends(tmp: Path, tmp_path: Path) -> None:
    async with at_endpoint(
        tmp, submitted=submitted(settings={"logging": {"archive": str(tmp_path)}}), log_kept_bytes=512
    ) as (endpoint, host):
        process, _ = await host.run(SLURMD_NODENAME="n17")
        process.terminate()
        assert await host.ended(process) == exit_codes.TERMINATED
        folder = tmp_path / "wc-1" / "1.1@n17" / "log-files"
        assert sorted(os.listdir(folder)) == ["bootstrap-1.log", "container_1_word_1.log"]
        assert (folder / "container_1_word_1.log").read_text() == "a line\n" * 1000
        [end] = endpoint.all("log_end")
        assert (end.process, end.cut) == ("bootstrap-1", True)
        assert end.data.startswith(b"\n") and b"bootstrap-1 ends: its engine is ending it" in end.data
        assert left_in(tmp) == []


async def test_what_the_archive_does_not_take_goes_to_the_endpoint(tmp: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = {"logging": {"archive": str(tmp_path / "file")}}
    async with at_endpoint(tmp, submitted=submitted(settings=place), log_kept_bytes=512) as (endpoint, host):
        process, _ = await host.run()
        process.terminate()
        assert await host.ended(process) == exit_codes.TERMINATED
        ends = {end.process: end for end in endpoint.all("log_end")}
        assert len(ends["container_1_word_1"].data) == 512
        assert b"some logs are missing from the archive" in ends["bootstrap-1"].data


@pytest.mark.parametrize(("act", "code"), [("exit 4", 4), ("exit 0", 0), ("signal 9", -9), ("signal 11", -11)])
async def test_it_ends_as_its_executor_ended(tmp: Path, act: str, code: int) -> None:
    async with at_endpoint(tmp) as (endpoint, host):
        process, _ = await host.run()
        (tmp / "act").write_text(act)
        assert await host.ended(process) == code
        assert endpoint.all("log_end") and left_in(tmp) == []
        assert not processes_in(tmp), "what had left its session was killed, too"


async def test_everything_dies_with_the_first_process_and_a_successor_cleans_up(tmp: Path) -> None:
    async with at_endpoint(tmp) as (_, host):
        process, started = await host.run()
        process.kill()
        await eventually(lambda: not alive(started["pid"]), 5, "the end of the executor")
        assert Path(started["folder"]).exists()
        # What has left the session is ended by the fork server of a real executor; here the test does it.
        for pid in processes_in(tmp):
            os.kill(pid, signal.SIGKILL)
        other, _ = await host.run(submission=2, epoch=2)
        assert not Path(started["folder"]).exists()
        assert list((tmp / f"heron-{os.getuid()}/containers").glob("wc-1.1.2@*"))
        other.terminate()
        await host.ended(other)
        assert left_in(tmp) == []


async def test_two_containers_of_a_host_leave_each_other_alone(tmp: Path) -> None:
    async with at_endpoint(tmp) as (_, host):
        first, _ = await host.run(container=1)
        second, _ = await host.run(container=2)
        first.terminate()
        await host.ended(first)
        third, started = await host.run(container=1, submission=2, epoch=5)
        assert second.poll() is None and Path(started["folder"]).exists()
        for process in (second, third):
            process.terminate()
        assert await host.ended(second) == await host.ended(third) == exit_codes.TERMINATED
        assert left_in(tmp) == []


async def test_fenced_it_ends_even_if_its_executor_will_not(tmp: Path) -> None:
    async with at_endpoint(tmp) as (endpoint, host):
        (tmp / "stubborn").touch()
        process, _ = await host.run()
        endpoint.say(1, 1, endpoint_pb2.VERDICT_FENCED)
        assert await host.ended(process) == exit_codes.FENCED
        assert left_in(tmp) == [] and not processes_in(tmp)


async def test_without_grants_it_stops_and_starts_again_in_a_new_epoch(tmp: Path) -> None:
    async with at_endpoint(tmp, fencing="lease") as (endpoint, host):
        process, first = await host.run()
        endpoint.refuses = InvalidRpcError("the control endpoint knows nobody")
        await eventually(lambda: not alive(first["pid"]), 10, "the end of the lease")
        endpoint.refuses = None
        await eventually(lambda: endpoint.all("renew")[-1].stopped == 1, 5, "word of it")
        endpoint.activate(1, 1, 2)
        second = await host.acting(epoch=2)
        assert process.poll() is None and second["pid"] != first["pid"]
        process.terminate()
        await host.ended(process)


async def test_the_endpoint_of_another_scheduler_hears_of_it_before_its_next_renewal(tmp: Path) -> None:
    """Renewals an hour apart: what comes is said because the connection is back."""
    async with at_endpoint(tmp, renew_s=3600.0, fence_s=10_000.0) as (endpoint, host):
        process, _ = await host.run()
        await eventually(lambda: any(renew.epoch for renew in endpoint.all("renew")), 20, "a renewal in its epoch")
        endpoint.shut()
        endpoint.heard.clear()
        await eventually(endpoint.reopen, 20, "the address being free")
        await eventually(lambda: endpoint.all("renew"), 60, "a renewal at the new control endpoint")
        assert endpoint.all("renew")[0].epoch == 1
        process.terminate()
        await host.ended(process)


@pytest.mark.heavy
async def test_a_stopped_executor_is_noticed_and_killed(tmp: Path) -> None:
    async with at_endpoint(tmp) as (endpoint, host):
        process, started = await host.run()
        await eventually(lambda: endpoint.all("start_spans"), 10, "its first sign of life")
        os.kill(started["pid"], signal.SIGSTOP)
        assert await host.ended(process, SILENT_S + 15) == exit_codes.FAILURE
        ends = {end.process: end.data for end in endpoint.all("log_end")}
        assert b"sent no heartbeat" in ends["bootstrap-1"]
        assert left_in(tmp) == [] and not processes_in(tmp)


async def test_it_ends_with_the_process_that_started_it(tmp: Path) -> None:
    async with at_endpoint(tmp) as (endpoint, host):
        engine, _ = await host.run(through=("sh", "-c", 'exec 3<&0; "$@" <&3 3<&- & wait', "sh"))
        (hello,) = endpoint.all("hello")
        os.kill(hello.pid, signal.SIGHUP)  # as when only a thread of it ends
        renewals = len(endpoint.all("renew"))
        await eventually(lambda: len(endpoint.all("renew")) > renewals + 2, 5, "more renewals")
        engine.kill()
        await eventually(lambda: not processes_in(tmp), 10, "the end of all processes")
        assert {"that started this container has ended" in leave.why for leave in endpoint.all("leave")} == {True}
        assert left_in(tmp) == []
        last = endpoint.all("renew")[-1]
        assert (last.epoch, last.stopped) == (0, max(one.epoch for one in endpoint.all("renew"))), "its last word"


@needs_hosts
@pytest.mark.parametrize(("act", "code"), [("exit 4", 4), ("signal 9", 137), ("signal 15", 143)])
async def test_as_process_1_it_ends_in_the_same_way(tmp: Path, act: str, code: int) -> None:
    """There no signal of its own ends it, and what is orphaned is its to reap."""
    async with at_endpoint(tmp) as (endpoint, host):
        process, started = await host.run(through=("unshare", "-mpf", "--kill-child", "--mount-proc"))
        assert endpoint.all("hello")[0].pid == 1 and started["session"] == started["pid"]
        (tmp / "act").write_text(act)
        assert await host.ended(process) == code
        assert left_in(tmp) == []


async def test_it_is_told_that_it_has_to_leave_and_goes_on(tmp: Path) -> None:
    async with at_endpoint(tmp) as (endpoint, host):
        process, started = await host.run()
        process.send_signal(signal.SIGUSR1)
        await eventually(lambda: endpoint.all("leave"), 5, "word of it")
        renewals = len(endpoint.all("renew"))
        await eventually(lambda: len(endpoint.all("renew")) > renewals + 2, 5, "more renewals")
        assert alive(started["pid"]) and process.poll() is None and len(endpoint.all("leave")) == 1
        endpoint.say(1, 1, endpoint_pb2.VERDICT_FENCED)
        assert await host.ended(process) == exit_codes.FENCED


def _archive(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o600
            archive.addfile(info, io.BytesIO(content))
    return made.getvalue()


async def test_a_package_is_fetched_once_per_host(tmp: Path) -> None:
    files = {"word.py": b"print('word')", "data": os.urandom(200_000), "__pycache__/word.cpython-311.pyc": b"x"}
    async with at_endpoint(tmp, submitted=submitted(package=DIGEST), package=DIGEST, archive=_archive(files)) as (
        endpoint,
        host,
    ):
        for container in range(1, 4):
            endpoint.activate(container, 1, 1)
            host.start(container)
        for container in range(1, 4):
            await host.acting(container)
        assert endpoint.reads == len(endpoint.archive) // (1 << 16) + 2, "one transfer, to its end"
        entry = tmp / f"heron-{os.getuid()}" / "packages" / DIGEST
        assert sorted(path.name for path in entry.iterdir()) == ["data", "word.py"]
        for process in host.processes:
            process.terminate()
        for process in host.processes:
            await host.ended(process)
        assert left_in(tmp) == []


@pytest.mark.parametrize("place", ["whole", "damaged", "missing", "unknown"])
async def test_a_package_comes_from_where_all_hosts_reach_it_or_from_the_endpoint(
    tmp: Path, tmp_path: Path, place: str
) -> None:
    archive = _archive({"word.py": b"print('word')", "data": os.urandom(200_000)})
    given = str(tmp_path / "packages") if place != "unknown" else "ftp://nowhere"
    if place in ("whole", "damaged"):
        (tmp_path / "made.tar").write_bytes(archive if place == "whole" else archive[:-100] + b"?" * 100)
        pieces = PackagePieces(given, "wc-1")
        pieces.put(tmp_path / "made.tar", hashlib.sha256(archive).digest())
    fields = {"package": DIGEST, "archive": archive, "package_place": given}
    async with at_endpoint(tmp, submitted=submitted(package=DIGEST), **fields) as (endpoint, host):
        process, _ = await host.run()
        assert (endpoint.reads == 0) is (place == "whole")
        entry = tmp / f"heron-{os.getuid()}" / "packages" / DIGEST
        assert (entry / "word.py").read_text() == "print('word')"
        process.terminate()
        await host.ended(process)


async def test_tasks_run_with_the_dependencies_of_the_topology(tmp: Path) -> None:
    house_file = house(tmp / "env.zip", make_wheel(tmp, "alpha"))
    engine = {"environment": str(house_file)}
    fields = {"environment": digest_of(house_file), "settings": {"engine": engine}}
    async with at_endpoint(tmp, submitted=submitted(**fields)) as (endpoint, host):
        process, started = await host.run()
        entry = tmp / f"heron-{os.getuid()}" / "environments" / endpoint.submitted.environment
        assert started["argv"][0] == str(entry / "bin" / "python")
        process.terminate()
        assert await host.ended(process) == exit_codes.TERMINATED


async def test_an_end_while_it_prepares_leaves_no_half_environment(tmp: Path) -> None:
    """A program that prepares something is killed; that it has not done its work must not be mistaken for success."""
    house_file = house(tmp / "env.zip", make_wheel(tmp, "alpha"))
    fields = {"environment": digest_of(house_file), "settings": {"engine": {"environment": str(house_file)}}}
    async with at_endpoint(tmp, submitted=submitted(**fields)) as (endpoint, host):
        process = host.start()
        environments = tmp / f"heron-{os.getuid()}" / "environments"
        await eventually(lambda: list(environments.glob(".tmp/*/made")), 20, "the making of the environment")
        process.terminate()
        assert await host.ended(process) == exit_codes.TERMINATED
        made = environments / endpoint.submitted.environment
        assert not made.exists() or (made / "bin" / "python").exists(), "it is whole, or not there"
        await eventually(lambda: not processes_in(tmp), 5, "the end of all processes")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"archive": _archive({"../out": b"x"}), "package": DIGEST}, "leads out of the package"),
        ({"archive": b"no archive at all" * 100, "package": DIGEST}, "damaged"),
        ({"package": "b2" * 32}, "is not the submitted one"),
        (
            {"shared": (endpoint_pb2.SharedFolder(path="/tmp", name="no-such", content=b"x"),)},
            "not the folder of that name",
        ),
        ({"fencing": "prayer"}, "fencing 'prayer'"),
        (
            {"submitted": submitted(settings={"engine": {"home": "/proc/nohome"}})},
            "host folder /proc/nohome cannot be created: No such file or directory; set heron.engine.home",
        ),
        ({"refuses": InvalidRpcError("heronpy 9 does not fit")}, "heronpy 9 does not fit"),
    ],
)
async def test_what_does_not_fit_is_refused_in_one_sentence(tmp: Path, fields: dict[str, Any], words: str) -> None:
    async with at_endpoint(
        tmp, **{"submitted": submitted(package=DIGEST if "package" in fields else None), **fields}
    ) as (endpoint, host):
        process = host.start()
        assert await host.ended(process) == exit_codes.STARTUP_FAILURE
        assert process.stderr is not None
        said = process.stderr.read().decode()
        assert words in said.splitlines()[-1] and "Traceback" not in said
        assert "refuses" in fields or words in endpoint.all("log_end")[0].data.decode()
        assert left_in(tmp) == []


async def test_an_error_that_nobody_foresaw_is_named(tmp: Path) -> None:
    async with at_endpoint(tmp, submitted=submitted(settings={"engine": {"home": "/tmp/a\0b"}})) as (endpoint, host):
        assert await host.ended(host.start()) == exit_codes.FAILURE
        assert b"an internal error: ValueError: " in endpoint.all("log_end")[0].data
        assert left_in(tmp) == []


async def test_an_endpoint_that_does_not_answer_is_named(tmp: Path) -> None:
    async with at_endpoint(tmp) as (endpoint, host):
        token = JoinToken(
            "wc-1", ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2"), endpoint.token.server, endpoint.token.client
        )
        process = host.start(token=token, start_s=1.5)
        assert await host.ended(process) == exit_codes.UNAVAILABLE
        assert process.stderr is not None
        said = process.stderr.read().decode()
        assert "tcp://127.0.0.1:1, tcp://127.0.0.1:2" in said and "within 1.5 s" in said


async def test_the_addresses_of_the_endpoint_are_tried_in_turn(tmp: Path) -> None:
    async with at_endpoint(tmp) as (endpoint, host):
        addresses = ("tcp://nowhere.invalid:5", endpoint.endpoint)
        token = JoinToken("wc-1", addresses, endpoint.token.server, endpoint.token.client)
        process = host.start(token=token)
        await eventually(lambda: endpoint.all("renew"), 20, "a renewal")
        process.terminate()
        assert await host.ended(process) == exit_codes.TERMINATED and left_in(tmp) == []


@pytest.mark.parametrize("text", ["", "{}", "x" * 10_000])
def test_what_is_no_token_is_refused(tmp: Path, text: str) -> None:
    environ = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp), "PYTHONPATH": os.getcwd()}
    ids = {"HERON_TOPOLOGY_ID": "wc-1", "HERON_CONTAINER": "1", "HERON_SUBMISSION": "1"}
    command = [sys.executable, "-Pm", "heronpy.executor.bootstrap"]
    run = subprocess.run(command, input=text.encode(), env=environ | ids, capture_output=True, timeout=30, check=False)
    assert run.returncode == exit_codes.USAGE and b"standard input contains no join token" in run.stderr
    run = subprocess.run(command, input=b"", env=environ, capture_output=True, timeout=30, check=False)
    assert run.returncode == exit_codes.USAGE and b"not by hand" in run.stderr


def test_a_token_that_others_could_have_put_there_is_refused(tmp: Path) -> None:
    """A folder that is not mounted read-only is no secret of an orchestrator."""
    (tmp / "join_token").write_text("{}")
    environ = {
        "PATH": os.environ["PATH"],
        "TMPDIR": str(tmp),
        "PYTHONPATH": os.getcwd(),
        "HERON_JOIN_TOKEN_FOLDER": str(tmp),
    }
    ids = {"HERON_TOPOLOGY_ID": "wc-1", "HERON_CONTAINER": "1", "HERON_SUBMISSION": "1"}
    command = [sys.executable, "-Pm", "heronpy.executor.bootstrap"]
    run = subprocess.run(command, input=b"", env=environ | ids, capture_output=True, timeout=30, check=False)
    assert run.returncode == exit_codes.USAGE and b"is not a mounted secret" in run.stderr


def test_the_volume_of_a_pod_may_be_open_to_all_in_it(tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = tmp / "volume"
    volume.mkdir()
    volume.chmod(0o777)
    with pytest.raises(ConfigError, match="writable by other users"):
        home_of(str(volume / "home"))
    monkeypatch.setenv("HERON_POD_FOLDERS", f"/other:{volume}")
    assert home_of(str(volume / "home")).stat().st_mode & 0o777 == 0o700
    inner = volume / "open"
    inner.mkdir()
    inner.chmod(0o777)
    with pytest.raises(ConfigError, match="writable by other users"):
        home_of(str(inner / "home"))


async def test_a_folder_that_others_may_enter_is_refused(tmp: Path) -> None:
    async with at_endpoint(tmp) as (_, host):
        (tmp / f"heron-{os.getuid()}").mkdir(mode=0o755)
        process = host.start()
        assert await host.ended(process) == exit_codes.STARTUP_FAILURE
        assert process.stderr is not None and b"does not belong to you alone" in process.stderr.read()
