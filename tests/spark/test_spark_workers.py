"""What Spark's workers get of a package; where a driver and its sinks find each other. No Spark runs here."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import zmq

from heronpy.common.setting_types import SparkSettings
from heronpy.connectors.spark import link
from heronpy.connectors.spark.link import Finished, GatewayLink, Ready, decode, encode
from heronpy.net import curve
from heronpy.net.transport import bind
from heronpy.net.zsock import configure
from heronpy.spark import workers
from heronpy.spark.gateway import AuthenticatorThread
from heronpy.spark.session import SparkDriver
from tests.support.waiting import wait_for


def test_a_package_becomes_one_file_from_which_python_imports(tmp_path: Path) -> None:
    package = tmp_path / "package"
    for name, text in {
        "main.py": "import lib.part",
        "lib/__init__.py": "",
        "lib/part.py": "WORD = 'here'",
        "lib/__pycache__/part.pyc": "",
        "data/table.csv": "1",
        ".deps/one-1.0/one.py": "import main",
        ".hidden": "",
        "__main__.py": "",
        "not-a-module.py": "",
    }.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    workers.pack(str(package), tmp_path / "p.zip")
    names = zipfile.ZipFile(tmp_path / "p.zip").namelist()
    assert sorted(names) == ["__main__.py", "data/table.csv", "lib/__init__.py", "lib/part.py", "main.py", "not-a-module.py", "one.py"]  # fmt: skip
    assert workers.modules_in(str(package)) == ["lib", "main"]
    code = "import one, lib.part; print(lib.part.WORD)"
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(tmp_path / "p.zip")}, capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout == "here\n"


def test_the_telling_line_of_an_error() -> None:
    pages = 'An error occurred while calling o1.\n: Job aborted\nCaused by: java.io.IOException: Cannot run program "/x"\n\tat'
    assert workers.telling(RuntimeError(pages)) == 'Cannot run program "/x"'
    assert workers.telling(RuntimeError("")) == "RuntimeError"


def test_the_driver_of_a_cluster_is_at_the_address_and_ports_of_its_host(tmp_path: Path) -> None:
    def properties(master: str, address: str, ports: range | None) -> dict[str, str]:
        driver = SparkDriver(SparkSettings(master=master), tmp_path, "x", sys.executable, None, None, address, ports)
        return driver._properties()

    found = properties("spark://h:7077", "10.1.2.3", range(20000, 20100))
    assert (found["spark.driver.host"], found["spark.driver.bindAddress"]) == ("10.1.2.3", "10.1.2.3")
    assert (found["spark.driver.port"], found["spark.port.maxRetries"]) == ("20000", "99")
    assert "spark.driver.host" not in properties("spark://h:7077", "", None)
    assert properties("local[2]", "10.1.2.3", range(20000, 20100))["spark.driver.host"] == "127.0.0.1"


def test_a_sink_follows_the_gateway_to_its_new_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "LOOK_S", 0.05)
    monkeypatch.setattr(link, "FIRST_LOOK_S", 0.05)
    context = zmq.Context.instance()
    (tmp_path / "s").mkdir(mode=0o700)
    routers = [configure(context.socket(zmq.ROUTER), message_max_bytes=link.MESSAGE_MAX_BYTES) for _ in range(2)]
    places = [bind(router, f"ipc://{tmp_path}/s/g{number}") for number, router in enumerate(routers)]
    known: list[str] = []
    sink = GatewayLink(lambda: known[-1] if known else None, "store", 3, 1)
    try:
        sink.ready(["3-0000000001-1"])  # no gateway listens yet
        for number, router in enumerate(routers):
            known.append(places[number])

            def heard(router: zmq.Socket[bytes] = router) -> list[bytes]:
                sink.ready(["3-0000000001-1"])
                return router.recv_multipart() if router.poll(20) else []

            identity, message = wait_for(heard, 20, "the hint at the gateway")
            assert decode(message) == Ready("store", "3-0000000001-1")
            answer = Finished("store", "3-0000000001-1", True)
            router.send_multipart([identity, encode(answer)])
            assert answer in wait_for(lambda: sink.finished(0.1), 20, "the outcome at the sink")
    finally:
        sink.close()
        for router in routers:
            router.close(linger=0)


def test_over_tcp_the_gateway_answers_holders_of_the_key_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "FIRST_LOOK_S", 0.05)
    curve.generate(str(tmp_path / "ours"))
    curve.generate(str(tmp_path / "theirs"))
    keys, others = curve.load(str(tmp_path / "ours"), "T-1"), curve.load(str(tmp_path / "theirs"), "T-1")
    router = configure(zmq.Context.instance().socket(zmq.ROUTER), message_max_bytes=link.MESSAGE_MAX_BYTES)
    authenticator = AuthenticatorThread(keys, router)
    place = bind(router, "tcp://127.0.0.1:*", keys)
    # A stranger that knows the public key of the server, as anybody may.
    stranger_keys = curve.Keys("T-1", keys.server, others.client)
    stranger = GatewayLink(lambda: place, "store", 4, 1, stranger_keys)
    sink = GatewayLink(lambda: place, "store", 3, 1, keys)
    heard: list[bytes] = []
    try:

        def turn() -> bool:
            stranger.ready(["4-0000000001-1"])
            sink.ready(["3-0000000001-1"])
            while router.poll(20):
                heard.append(router.recv_multipart()[1])
            return len(heard) >= 3

        wait_for(turn, 30, "hints of the sink")
        assert all(decode(one) == Ready("store", "3-0000000001-1") for one in heard)
        wait_for(authenticator.take_refused, 20, "the refusal of the stranger")
    finally:
        for one in (stranger, sink):
            one.close()
        authenticator.close()
        authenticator.close()
        router.close(linger=0)
