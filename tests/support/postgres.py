"""Runs a PostgreSQL server for tests; see `heronpy.verify.units.server`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from heronpy.verify.units.server import ADMIN, PostgresServer, why_not
from tests.support.waiting import wait_for

__all__ = ["ADMIN", "Pair", "PostgresServer", "served", "why_not"]


def served() -> Iterator[PostgresServer]:
    """Yield a server for a fixture; skip the test if no server can be started."""
    if reason := why_not():
        pytest.skip(reason)
    server = PostgresServer()
    yield server
    server.close()


class Pair:
    """A primary with a synchronous standby, which stores each commit before the client gets its answer."""

    def __init__(self) -> None:
        self.primary, self.standby = PostgresServer(), PostgresServer()
        self.standby.stop()
        data = self.standby.folder / "data"
        one = f"host={self.primary.folder} user={ADMIN}"
        shutil.rmtree(data)
        self.standby.run("pg_basebackup", "-D", str(data), "-R", "-d", f"{one} application_name=standby")
        self.standby.start()
        self._sql("ALTER SYSTEM SET synchronous_standby_names = 'standby'", "SELECT pg_reload_conf()")
        wait_for(lambda: self._sql("SELECT sync_state FROM pg_stat_replication") == "sync", 30.0, "the standby in step")

    @property
    def url(self) -> str:
        """The URL of the server that accepts writes."""
        hosts = f"host={self.primary.folder},{self.standby.folder}&port=5432,5432"
        return f"postgresql:///ledger?{hosts}&user=ledger&target_session_attrs=read-write"

    def fail_over(self) -> None:
        """Kill the primary and promote the standby."""
        self.primary.stop()
        self.standby.run("pg_ctl", "promote", "-D", str(self.standby.folder / "data"), "-w")

    def close(self) -> None:
        self.primary.close()
        self.standby.close()

    def _sql(self, *statements: str) -> str:
        import psycopg

        with psycopg.connect(self.primary.url_of("ledger", ADMIN), autocommit=True) as server:
            for statement in statements:
                found = server.execute(statement)
            row = found.fetchone() if found.description is not None else None
        return str(row[0]) if row else ""
