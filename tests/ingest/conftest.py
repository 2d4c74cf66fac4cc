"""The stores that the tests of the ledger run over."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from heronpy.ingest.ledger.reaching import open_store
from heronpy.ingest.ledger.sqlite import SqliteStore
from heronpy.ingest.ledger.store import Store
from tests.support.memory_ledger import MemoryStore
from tests.support.postgres import PostgresServer, why_not


@pytest.fixture(scope="session", autouse=True)
def shared_postgres() -> Iterator[PostgresServer | str]:
    """One server for all tests here, or why it cannot run. It starts before the first test, so no test pays for it."""
    reason = why_not()
    if reason:
        yield reason
        return
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def postgres(shared_postgres: PostgresServer | str) -> PostgresServer:
    if isinstance(shared_postgres, str):
        if os.environ.get("HERON_TEST_POSTGRES") == "required":
            pytest.fail(shared_postgres, pytrace=False)
        pytest.skip(shared_postgres)
    return shared_postgres


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path, shared_postgres: object) -> Iterator[Store]:
    """PostgreSQL is of the whole run, so it starts before a test is watched for what it leaves."""
    opened: Store
    if request.param == "memory":
        opened = MemoryStore()
    elif request.param == "sqlite":
        opened = SqliteStore(tmp_path / "ledger" / "ledger.db")
    else:
        opened = open_store(request.getfixturevalue("postgres").url)
    yield opened
    opened.close()


@pytest.fixture
def logs(home: Path) -> Path:
    folder = home.parent / "logs"
    folder.mkdir()
    return folder


@pytest.fixture
def table(home: Path) -> Path:
    return home.parent / "table"
