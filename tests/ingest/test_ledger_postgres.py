"""A ledger in PostgreSQL: who makes it first, whose server it is, and what nobody else may have changed in it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from heronpy.common.errors import LedgerAwayError, LedgerError
from heronpy.ingest.ledger.postgres import checked
from heronpy.ingest.ledger.reaching import Reached, open_store
from heronpy.ingest.ledger.requests import Open, Who
from heronpy.ingest.ledger.types import Config, Kind
from heronpy.verify.units.server import ADMIN
from tests.support.postgres import PostgresServer

CONFIG = Config(pattern="/logs/*.log")


@pytest.fixture
def fresh(postgres: PostgresServer, request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Makes an empty database; its URL."""

    def make(name: str) -> str:
        postgres.make_database(name)
        return postgres.url_of(name)

    return make


def test_many_tasks_that_first_meet_an_empty_server(fresh: Callable[[str], str]) -> None:
    wrong: list[str] = []
    for number in range(3):
        url, many = fresh(f"race{number}"), 8
        together = threading.Barrier(many)

        def begin(task: int, url: str = url, together: threading.Barrier = together) -> None:
            with closing(Reached(url, "p", Who(f"t/w-{task}", "1", Kind.WORKER))) as ledger:
                together.wait(60)
                try:
                    ledger.ask(Open(CONFIG, ledger=f"l{task}"))
                except LedgerError as error:
                    wrong.append(str(error))

        tasks = [threading.Thread(target=begin, args=(task,)) for task in range(many)]
        for one in tasks:
            one.start()
        for one in tasks:
            one.join(120)
    assert wrong == []


def test_what_others_may_change_is_refused(postgres: PostgresServer, fresh: Callable[[str], str]) -> None:
    url = fresh("owned")
    with pytest.raises(LedgerError, match=f"the role {ADMIN} is a superuser; give the ledger its own role"):
        open_store(postgres.url_of("owned", ADMIN)).pipelines()
    open_store(url).pipelines()

    def refused(why: str, *statements: str) -> None:
        with psycopg.connect(postgres.url_of("owned", ADMIN), autocommit=True) as server:
            for statement in statements:
                server.execute(statement)
        with closing(open_store(url)) as store, pytest.raises(LedgerError, match=why):
            store.pipelines()

    function = "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
    trigger = "CREATE TRIGGER t BEFORE UPDATE ON heron_units.units FOR EACH ROW EXECUTE FUNCTION f()"
    refused("table units of schema heron_units has triggers or rules; remove them", function, trigger)
    drop = "DROP TRIGGER t ON heron_units.units"
    rule = "CREATE RULE r AS ON DELETE TO heron_units.spans DO INSTEAD NOTHING"
    refused("table spans of schema heron_units has triggers or rules", drop, rule)
    drop = "DROP RULE r ON heron_units.spans"
    refused(f"files in schema heron_units belongs to {ADMIN}", drop, f"ALTER TABLE heron_units.files OWNER TO {ADMIN}")
    restore = "ALTER TABLE heron_units.files OWNER TO ledger"
    view = "CREATE VIEW heron_units.mine AS SELECT 1; ALTER VIEW heron_units.mine OWNER TO ledger"
    refused("mine in schema heron_units (is not a table of a ledger|belongs to)", restore, view)
    refused(
        f"the schema heron_units belongs to {ADMIN}; use another database",
        "DROP VIEW heron_units.mine",
        f"ALTER SCHEMA heron_units OWNER TO {ADMIN}",
    )
    with psycopg.connect(postgres.url_of("owned", ADMIN), autocommit=True) as server:
        server.execute("ALTER SCHEMA heron_units OWNER TO ledger")
    with closing(open_store(url)) as store:
        assert store.pipelines() == ()


def test_a_server_of_another_user_gets_nothing(postgres: PostgresServer, fresh: Callable[[str], str]) -> None:
    """A socket is trusted if its server is of the user who alone may make one there."""
    url = fresh("peers")
    open_store(url).pipelines()
    stranger = "daemon" if os.geteuid() == 0 else "root"
    with closing(open_store(f"{url}&requirepeer={stranger}")) as store:
        with pytest.raises(LedgerAwayError, match="requirepeer"):
            store.pipelines()


def test_a_password_goes_to_no_server_that_asks_for_it_in_clear(
    postgres: PostgresServer, fresh: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = fresh("clear")
    with psycopg.connect(postgres.url_of("clear", ADMIN), autocommit=True) as server:
        server.execute("CREATE ROLE other LOGIN PASSWORD 'secret'")
        server.execute("GRANT CREATE ON DATABASE clear TO other")
    rules = postgres.folder / "data" / "pg_hba.conf"
    before = rules.read_text()
    monkeypatch.setenv("PGPASSWORD", "secret")
    with psycopg.connect(postgres.url_of("clear", ADMIN), autocommit=True) as server:
        for method, works in (("password", False), ("scram-sha-256", True)):
            rules.write_text(f"local clear other {method}\n{before}")
            server.execute("SELECT pg_reload_conf()")
            server.execute("SELECT pg_sleep(0.2)")
            with closing(open_store(url.replace("user=ledger", "user=other"))) as store:
                if works:
                    assert store.pipelines() == ()
                else:
                    with pytest.raises(LedgerAwayError, match="cleartext password"):
                        store.pipelines()
        rules.write_text(before)
        server.execute("SELECT pg_reload_conf()")


def test_the_user_behind_a_socket_is_known_or_named(tmp_path: Path) -> None:
    folder = tmp_path / "sockets"
    folder.mkdir(mode=0o755)
    mine = checked(f"postgresql:///x?host={folder}")
    assert mine["requirepeer"] == folder.owner() and mine["require_auth"] == "!password,!md5"
    folder.chmod(0o1777)
    with pytest.raises(LedgerError, match=r"all users may create a socket in .*requirepeer=postgres"):
        checked(f"postgresql:///x?host={folder}")
    assert checked(f"postgresql:///x?host={folder}&requirepeer=someone")["requirepeer"] == "someone"
    assert "requirepeer" not in checked("postgresql://127.0.0.1/x")
