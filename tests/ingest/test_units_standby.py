"""A ledger in PostgreSQL with a synchronous standby, which takes over while units are processed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from heronpy.ingest.checking import check
from tests.ingest.test_units_inside import Running, numbers, options, run, settle, shown, write
from tests.support.postgres import Pair, PostgresServer
from tests.support.waiting import wait_for

__all__ = ["options", "run"]
PATIENCE_S = 120.0


@pytest.fixture
def pair(postgres: PostgresServer) -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


@pytest.mark.heavy
def test_a_standby_that_is_promoted_under_load_knows_every_unit(
    tmp_path: Path, pair: Pair, run: Callable[..., Running], options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    settings = options | {"ledger": pair.url}
    sites = [run(name, **settings) for name in ("east", "west")]
    for number in range(10):
        write(tmp_path, number * 50, 50, "east", "west")
        for site in sites:
            site.drive()
    wait_for(
        lambda: [site.drive() for site in sites] and shown(pair.url).published_units >= 5,
        PATIENCE_S,
        "units in the table",
    )
    pair.fail_over()
    write(tmp_path, 500, 100, "east", "west")
    size = sum(path.stat().st_size for path in (tmp_path / "logs" / "east").glob("*.log"))
    wait_for(
        lambda: [site.drive() for site in sites] and sum(numbers(tmp_path / "table").values()) >= 600, PATIENCE_S, "all"
    )
    settle(sites[0], pair.url, size)
    assert numbers(tmp_path / "table") == Counter(range(600))
    for site in sites:
        site.end()
    assert not check(pair.url, "lines", str(tmp_path / "table")).problems
    caplog.clear()  # the errors in its records keep connections open
