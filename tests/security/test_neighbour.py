"""Another user of the machine tries every port, socket and file of a default topology: nothing opens.

Where the tests run as root the attacker is the user nobody. Elsewhere nobody can become another user: then the
attacker has the rights of the tests, but no key, and what keeps others from ipc sockets is read from their modes.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from heronpy.executor.metrics_page import CONNECTIONS_MAX
from heronpy.net.rpc import seal, wrap
from heronpy.proto import control_pb2
from heronpy.wire import codec
from heronpy.wire.frames import DATA, LINK_HEADER, LINK_OPEN, Frame, message_of
from tests.security.messages import Bomb
from tests.security.test_run import LOOPBACK, open_ports, sockets_of, start, words_of, words_received
from tests.support.command import REPO, Heron

NOBODY = 65534
IS_ROOT = os.getuid() == 0
#: What a metrics page and ZeroMQ's greeting begin with; a connection that is reset says as much as one that is closed.
HTTP = ("answered b'HTTP/1.1", "Connection")


@pytest.fixture
def mark(home: Path) -> Path:
    """What a pickle makes that is loaded; the folder is one that everybody may write to."""
    folder = home.parent / "open"
    folder.mkdir()
    folder.chmod(0o777)
    return folder / "it went off"


@pytest.fixture
def default(heron: Heron) -> Heron:
    """A topology with nothing set; the folders above its own are open to everybody, as /tmp and /home are."""
    start(heron)
    for folder in (heron.home.parent, heron.home, Path(os.environ["TMPDIR"])):
        folder.chmod(0o755)
    return heron


def identities(heron: Heron) -> list[bytes]:
    """Names of links that the topology knows."""
    tasks = [f"t:{task['task_id']}:{task['epoch']}".encode() for task in heron.status("wc")["tasks"]]
    return [*tasks[:2], b"s:stmgr-1:65537", b"s:stmgr-2:65537", b"cli"]


def messages(mark: Path) -> list[list[bytes]]:
    """Tuples that carry a bomb, and orders."""
    bomb = codec.encode([codec.Ext(codec.PICKLE_EXTENSION, pickle.dumps(Bomb(mark)))])
    opening = Frame(kind=LINK_OPEN).SerializeToString()
    found = [message_of(LINK_HEADER.pack(65537 << 24 | 1, 1, opening), opening)]
    for number, task in enumerate(range(1, 5), 2):
        data = Frame(kind=DATA, source_task=1, dest_task=task, count=1, payload=bomb).SerializeToString()
        found.append(message_of(LINK_HEADER.pack(65537 << 24 | 1, number, data), data))
    orders = [
        control_pb2.GetStatus(),
        control_pb2.SetState(active=False),
        control_pb2.KillTopology(),
        control_pb2.RuntimeConfig(settings=["words:x:1"]),
        control_pb2.StopTask(reason="go"),
    ]
    return found + [[seal(wrap(order, number))] for number, order in enumerate(orders, 1)]


def attack(
    places: list[str], who: list[bytes], what: list[list[bytes]], paths: list[Path], uid: int
) -> list[list[str]]:
    asked = {
        "uid": uid,
        "places": places,
        "identities": [one.hex() for one in who],
        "messages": [[part.hex() for part in parts] for parts in what],
        "paths": [str(path) for path in paths],
    }
    program = str(REPO / "tests" / "security" / "neighbour.py")
    done = subprocess.run(
        [sys.executable, program], input=json.dumps(asked), capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    found: list[list[str]] = json.loads(done.stdout)
    return found


def listeners(heron: Heron) -> Iterator[tuple[str, str, int]]:
    """(kind, place, pid) of everything that a process of the topology may be reached at."""
    for process in heron.processes():
        with contextlib.suppress(psutil.Error):
            for conn in process.net_connections(kind="all"):
                if conn.family.name == "AF_UNIX":
                    if conn.laddr:
                        yield "unix", str(conn.laddr), process.pid
                elif conn.status == psutil.CONN_LISTEN or not conn.raddr:
                    yield conn.type.name, f"{conn.laddr.ip}:{conn.laddr.port}", process.pid


def guarded(path: Path) -> bool:
    """Whether a folder on the way to it lets nobody but its owner in."""
    return any(not stat.S_IMODE(folder.stat().st_mode) & 0o077 for folder in path.parents)


def test_nothing_of_a_default_topology_opens_to_another_user(default: Heron, mark: Path) -> None:
    pages = {f"{LOOPBACK}:{port}" for port in open_ports(default)}
    sockets = sockets_of(default)
    known = {str(path) for path in sockets}
    found = list(listeners(default))
    # Three metrics pages, and what lies in the folder of sockets; nothing else, abstract sockets included.
    assert {place for kind, place, _ in found if kind != "unix"} == pages and len(pages) == 3, found
    assert {place for kind, place, _ in found if kind == "unix" and place not in known} == set(), found
    assert len(sockets) == 16 and all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in sockets), sockets
    assert all(guarded(path) for path in sockets), sockets

    files = [path for path in default.home.rglob("*") if path.is_file() and not path.is_symlink()]
    loose = [path for path in files if not guarded(path) and stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert files and not loose, loose
    who, what, before = identities(default), messages(mark), words_received(default)
    places = [f"tcp://{place}" for place in sorted(pages)]
    if IS_ROOT:
        places += [f"ipc://{path}" for path in sockets]
    outcomes = attack(places, who, what, files, NOBODY) if IS_ROOT else attack(places, who, what, [], 0)
    for place, how, outcome in outcomes:
        if place.startswith("tcp:"):
            # A metrics page speaks HTTP to everybody, and nothing else.
            assert outcome in ("refused", "silent", "closed") or outcome.startswith(HTTP), (place, how, outcome)
            assert how.startswith("raw") or outcome == "refused", (place, how, outcome)
        else:
            assert outcome == "refused", (place, how, outcome)
    assert not mark.exists(), "a stranger's pickle was loaded"
    default.when("wc", lambda status: words_of(status) > before, "words that still flow")
    assert default.status("wc")["lifecycle"] == "RUNNING"


def test_the_attack_itself_works_on_who_lets_it_in(default: Heron, mark: Path) -> None:
    """From the same user, whom the sockets are for: the topology master answers, so the refusals above mean something."""
    master = next(path for path in sockets_of(default) if path.name.startswith("tmaster"))
    question = [[seal(wrap(control_pb2.GetStatus(), 1))]]
    found = attack([f"ipc://{master}"], [b"cli"], question, [master.parent], 0)
    outcomes = {how: outcome for _, how, outcome in found}
    assert outcomes["link as " + b"cli".hex()].startswith("answered"), found
    assert outcomes["open"] == "opened"


#: Connects to each place as often as it is told, says what it is told, does not read, and waits for its end.
IDLE = """
import json, os, resource, socket, sys
asked = json.loads(sys.argv[1])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
if asked["uid"]:
    os.setgroups([]); os.setgid(asked["uid"]); os.setuid(asked["uid"])
kept = []
for place in asked["places"]:
    for _ in range(asked["count"]):
        family, where = (socket.AF_UNIX, place) if isinstance(place, str) else (socket.AF_INET, ("127.0.0.1", place))
        kept.append(socket.socket(family))
        kept[-1].connect(where)
        kept[-1].settimeout(10)
        try:
            kept[-1].sendall(asked["says"].encode())
        except ConnectionError:
            pass  # it was closed for somebody else
print("open", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def idle_connections(places: list[str] | list[int], count: int, uid: int, says: str = "") -> Iterator[None]:
    """A process of this user that holds `count` connections to each place."""
    asked = json.dumps({"places": places, "count": count, "uid": uid, "says": says})
    command = [sys.executable, "-c", IDLE, asked]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as idle:
        assert idle.stdout is not None and idle.stdout.readline() == b"open\n"
        yield
        assert idle.poll() is None


@pytest.mark.parametrize(
    "says",
    ["", "GET /metrics HT", pytest.param("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", marks=pytest.mark.heavy)],
)
@pytest.mark.heavy
def test_a_flood_of_another_user_takes_the_metrics_page_from_nobody(default: Heron, says: str) -> None:
    """Three times what a page serves at once: some say nothing, some never end their request, some do not read."""
    ports = [int(one["metrics_port"]) for one in default.status("wc")["containers"]]
    pids = {process.pid for process in default.processes()}
    with idle_connections(ports, 3 * CONNECTIONS_MAX, NOBODY * IS_ROOT, says):
        for port in ports:
            with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=30) as answer:
                assert b"heron_" in answer.read()
        before = words_received(default)
        default.when("wc", lambda status: words_of(status) > before, "words that still flow")
    assert {process.pid for process in default.processes()} == pids
