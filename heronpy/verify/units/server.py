"""A PostgreSQL server for the ledger of one run; it listens only on a socket in a private folder."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from heronpy.loadtest.errors import LabError
from heronpy.procs.linux import die_with_parent

START_S, POLL_S = 60.0, 0.05
#: The superuser.
ADMIN = "admin"
_OPTIONS = ("listen_addresses=", "max_connections=40", "shared_buffers=16MB", "fsync=on", "autovacuum=off")


def why_not() -> str:
    """Return why no server can be started on this machine; "" if a server can be started."""
    if find_spec("psycopg") is None:
        return "psycopg is not installed; run pip install 'heronpy[postgres]'"
    return "" if _programs() else "PostgreSQL is not installed; run apt-get install postgresql"


def _programs() -> str:
    found = shutil.which("initdb")
    folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
    folders += [os.path.dirname(os.path.realpath(found))] if found else []
    return next((one for one in reversed(folders) if os.path.exists(f"{one}/postgres")), "")


class PostgresServer:
    """One server with the database and the user `ledger`; it can be stopped and started again."""

    def __init__(self) -> None:
        reason = why_not()
        if reason:
            raise LabError(f"a ledger in PostgreSQL cannot be tested here: {reason}")
        self.folder = Path(tempfile.mkdtemp(prefix="hp-pg-", dir="/tmp"))
        self._parent = os.getpid()
        #: The server refuses to run as root.
        users = {user.pw_name: user for user in pwd.getpwall()}
        self._user = users.get("postgres", users.get("nobody")) if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
            self.folder.chmod(0o755)
        self._process: subprocess.Popen[bytes] | None = None
        self.run("initdb", "-D", f"{self.folder}/data", "-U", ADMIN, "-A", "trust", "-E", "UTF8", "--no-sync")
        self.start()
        # A ledger refuses the role of a superuser.
        self.run("createuser", "-h", str(self.folder), "-U", ADMIN, "ledger")
        self.make_database("ledger")

    @property
    def url(self) -> str:
        return self.url_of("ledger")

    def url_of(self, database: str, user: str = "ledger") -> str:
        return f"postgresql:///{database}?host={self.folder}&user={user}"

    def make_database(self, name: str) -> None:
        """Create an empty database that belongs to the user `ledger`."""
        self.run("createdb", "-h", str(self.folder), "-U", ADMIN, "-O", "ledger", name)

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = [part for option in _OPTIONS for part in ("-c", option)]
        self._process = subprocess.Popen(
            [f"{_programs()}/postgres", "-D", f"{self.folder}/data", "-k", str(self.folder), *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=self._become,
        )
        deadline = time.monotonic() + START_S
        while not self._answers():
            if time.monotonic() > deadline:
                raise LabError(f"PostgreSQL did not answer within {START_S:g} s")
            time.sleep(POLL_S)

    def stop(self) -> None:
        """Stop the server immediately, as in a crash."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(START_S)
            self._process = None

    def close(self) -> None:
        """Stop the server and remove its folder; may be called twice."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _become(self) -> None:
        if self._user is not None:
            os.setgroups([])
            os.setgid(self._user.pw_gid)
            os.setuid(self._user.pw_uid)
        die_with_parent(signal.SIGQUIT, self._parent)

    def _answers(self) -> bool:
        command = [f"{_programs()}/pg_isready", "-q", "-h", str(self.folder)]
        return subprocess.run(command, check=False).returncode == 0

    def run(self, program: str, *arguments: str) -> None:
        """Run a PostgreSQL program as the server's user."""
        command = [f"{_programs()}/{program}", *arguments]
        done = subprocess.run(command, capture_output=True, cwd="/", preexec_fn=self._become, check=False)
        if done.returncode:
            raise LabError(f"{program} failed: {done.stderr.decode(errors='replace').strip()}")
