"""Runs a test container on a cluster: checks whether its host has this Python and heronpy, and can reach this host.

The container is an ordinary job of the engine with its own id, and is removed after the trial. Its report arrives
over plain TCP on one port that is open only during the trial, and is accepted only with the trial's secret, which the
engine passes to the container as standard input or as a mounted file.
"""

from __future__ import annotations

import json
import secrets
import select
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from heronpy.clusters import trial_container
from heronpy.clusters.engines import end_all
from heronpy.common.errors import ConfigError
from heronpy.common.folders import write_private_text
from heronpy.common.units import MB
from heronpy.common.version import VERSION
from heronpy.engines.contract import Ended, Engine, EngineError, EngineFullError, EnginePhase, Found, Request
from heronpy.net.addresses import in_any_order, ports_of

#: Time limit from the submit of the container to its report, in seconds, including the time in a queue.
TRIAL_S = 9.0
#: Time limit from the start of the container to its report, in seconds. A start may pull an image or start a JVM.
STARTING_S = 120.0
END_S = 4.0
LIST_EVERY_S = 0.5
_REPORT_MAX_BYTES = 16 << 10
#: Timeout for reading from one connection, in seconds, because any program may connect.
_READ_S = 2.0
_CPU, _RAM_BYTES = 1.0, 128 * MB
_LATER = "check again when a host is free, or use --no-container"


def trial_id() -> str:
    """The engine's id for the container of one trial."""
    return f"heron-check-{secrets.token_hex(4)}"


def trial_command(python: str) -> list[str]:
    return [python, "-c", Path(trial_container.__file__).read_text(encoding="utf-8")]


def listener(address: str, port_range: str) -> socket.socket:
    """A socket that listens on a port of the range; raises ConfigError if no port is free."""
    ports = ports_of(port_range)
    for port in in_any_order(ports) if ports is not None else (0,):
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            found.bind((address, port))
            found.listen(4)
            return found
        except OSError as error:
            found.close()
            last = error.strerror
    raise ConfigError(f"cannot listen on {address}, ports {port_range or 'any'}: {last}")


class Trial:
    """One test container; `run` returns the findings, and removes the container."""

    def __init__(
        self,
        engine: Engine,
        topology_id: str,
        shared: Sequence[Path],
        home: str,
        port_range: str,
        endpoint_host: str = "",
    ) -> None:
        self._engine = engine
        self._topology_id = topology_id
        self._shared = {str(folder): secrets.token_hex(8) for folder in shared}
        self._home = home
        self._port_range = port_range
        self._endpoint_host = endpoint_host
        self._secret = secrets.token_hex(16)
        self._starting = False

    def run(self, addresses: Sequence[str]) -> list[Found]:
        """Run the test container; return lines for `heron cluster check`."""
        sockets: list[socket.socket] = []
        try:
            sockets += [listener(address, self._port_range) for address in addresses]
            self._put_nonces()
            return self._run(sockets)
        except EngineFullError as error:
            return [Found.waits("container", str(error), _LATER)]
        except (EngineError, ConfigError) as error:
            return [Found("container", False, str(error), "correct this setting")]
        except OSError as error:
            what = f"{error.filename or 'a folder'}: {error.strerror}"
            return [Found("container", False, what, "make the folders of heron.engine.shared writable")]
        finally:
            for one in sockets:
                one.close()
            for folder, nonce in self._shared.items():
                with suppress(OSError):
                    (Path(folder) / f".heron-check-{nonce}").unlink()

    def _put_nonces(self) -> None:
        for folder, nonce in self._shared.items():
            write_private_text(Path(folder) / f".heron-check-{nonce}", nonce)

    def _run(self, sockets: list[socket.socket]) -> list[Found]:
        asked = {
            "addresses": self._told(sockets),
            "secret": self._secret,
            "shared": self._shared,
            "home": self._home,
        }
        began = time.monotonic()
        try:
            self._engine.submit([Request(self._topology_id, 0, 1, _CPU, _RAM_BYTES, token=json.dumps(asked))])
            found = self._wait(sockets, began + TRIAL_S)
        finally:
            # The container is also ended after a submit whose answer was lost, because it may exist.
            with suppress(EngineError):
                end_all(self._engine, END_S)
        tried = ", ".join(f"{address}:{port}" for address, port in self._told(sockets))
        if isinstance(found, dict):
            return [*judge(found, time.monotonic() - began, tried)]
        return [found if found is not None else _too_late(tried)]

    def _told(self, sockets: list[socket.socket]) -> list[tuple[str, int]]:
        return [(self._endpoint_host or address, port) for address, port in (one.getsockname() for one in sockets)]

    def _wait(self, sockets: list[socket.socket], deadline: float) -> dict[str, Any] | Found | None:
        """The report, or the reason why it is missing; None if there is no report and the reason is unknown."""
        look_at, why, starting_until = 0.0, None, time.monotonic() + STARTING_S
        was_starting = False
        while time.monotonic() < (starting_until if self._starting else deadline):
            ready, _, _ = select.select(sockets, [], [], 0.1)
            for one in ready:
                report = self._read(one)
                if report is not None:
                    return report
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + LIST_EVERY_S
                over, why = self._look()
                if was_starting and not self._starting:
                    deadline = max(deadline, time.monotonic() + TRIAL_S)
                was_starting = self._starting
                if over and not select.select(sockets, [], [], 0.2)[0]:
                    return why
        return why

    def _look(self) -> tuple[bool, Found | None]:
        """Whether the container has ended or cannot start, and a finding from the engine's information about it."""
        for one in self._engine.list():
            if one.ended is not Ended.NO:
                return True, ended(one.exit_code, one.words, one.host, self._engine.termination_report(one.engine_id))
            self._starting = one.phase is EnginePhase.STARTING and not one.hopeless
            if one.phase in (EnginePhase.QUEUED, EnginePhase.STARTING):
                why = self._engine.explain(one.engine_id).words or one.words or "the engine gives no reason"
                if one.phase is EnginePhase.QUEUED and not one.hopeless:
                    what = f"it is in the queue ({why}), so no host of the cluster was tested"
                    return False, Found.waits("container", what, _LATER)
                fix = "correct the cause that the engine reports" if one.hopeless else _LATER
                return one.hopeless, Found("container", False, f"it is still {one.phase.name}: {why}", fix)
        return False, None

    def _read(self, at: socket.socket) -> dict[str, Any] | None:
        """The report of the container; None if it lacks the secret or is invalid."""
        with suppress(OSError, ValueError, RecursionError):
            link, _ = at.accept()
            deadline = time.monotonic() + _READ_S
            with link:
                text = b""
                while not text.endswith(b"\n") and len(text) < _REPORT_MAX_BYTES:
                    link.settimeout(max(deadline - time.monotonic(), 0.001))
                    piece = link.recv(4096)
                    if not piece:
                        break
                    text += piece
            report = json.loads(text)
            said = str(report.get("secret")) if isinstance(report, dict) else ""
            if secrets.compare_digest(said.encode(errors="replace"), self._secret.encode()):
                return dict(report)
        return None


def _too_late(tried: str) -> Found:
    return Found(
        "container",
        False,
        f"it is running, but did not report within {TRIAL_S:g} s at {tried}",
        "set heron.security.network to a network that nodes and this host share, or open a port_range in the firewall",
    )


def ended(code: int | None, words: str, host: str, printed: str = "") -> Found:
    """The finding on a container that ended without a report; `printed` is the end of its output, if known."""
    at = f" on {host}" if host else ""
    if code == trial_container.UNREACHED:
        fix = "set heron.security.network to a network that nodes and this host share, or heron.security.port_range"
        return Found("container", False, f"it is running{at}, but cannot reach any address of this host", fix)
    if code in (126, 127):
        return Found("container", False, f"heron.engine.python cannot be run{at}", "set heron.engine.python")
    last = printed.strip().splitlines()[-1:]
    what = f"it ended{at} before it reported ({words})" + "".join(f": {line[:300]}" for line in last)
    fix = (
        "correct the printed error"
        if last
        else "look at the container's output; on Slurm, set heron.slurm.output_dir first"
    )
    return Found("container", False, what, fix)


def judge(report: dict[str, Any], took_s: float, tried: str) -> list[Found]:
    """The findings of a report. The fields come from another host, so each field is checked."""
    host = str(report.get("host", "?"))[:100]
    found = [Found("container", True, f"ran on {host} and reported after {took_s:.1f} s to {tried}")]
    parts = report.get("python")
    there = tuple(part for part in parts if isinstance(part, int)) if isinstance(parts, list) else ()
    here = sys.version_info[:2]
    shown, wanted = ".".join(map(str, there)) or "?", ".".join(map(str, here))
    fix = f"install Python {wanted} there, and set heron.engine.python to it"
    found.append(Found("python there", there[:2] == here, f"Python {shown} on {host}, {wanted} here", fix))
    other = str(report.get("release", ""))[:100]
    detail = f"heronpy {other} on {host}" if other else f"there is no heronpy on {host}"
    fix = f"install heronpy {VERSION} for the Python of heron.engine.python"
    found.append(Found("heronpy there", other == VERSION, f"{detail}, {VERSION} here", fix))
    wrong = report.get("shared")
    for folder, why in wrong.items() if isinstance(wrong, dict) else ():
        text = f"{str(folder)[:200]} {str(why)[:200]} (host {host})"
        found.append(
            Found("shared folders there", False, text, "mount it there, or remove it from heron.engine.shared")
        )
    problem = str(report.get("home", ""))[:200]
    if problem:
        found.append(Found("home there", False, f"heron.engine.home {problem} on {host}", "name another folder"))
    return found
