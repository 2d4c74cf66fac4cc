from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from heronpy.common.errors import ConfigError
from heronpy.connectors.durable_files import run_token, safe_name
from heronpy.connectors.spark.handover import Manifest, parse_stem
from heronpy.connectors.spark.tables import publish
from heronpy.spark.batch import Batch

RUN = run_token("T-1")
ROWS = pa.table({"n": [1, 2, 3]})


@pytest.mark.parametrize("name", ["store", "a.b-c_1"])
def test_plain_component_names_are_kept(name):
    assert safe_name(name) == name


def test_other_component_names_are_made_plain_and_stay_apart():
    names = {safe_name(n) for n in ("a b", "a/b", "../x", ".", "_s", "ä", "")}
    assert len(names) == 7 and all("/" not in n and not n.startswith((".", "_")) for n in names)


def test_names_of_files():
    assert parse_stem("3-0000000012-1") == (3, 12, 1)
    for name in ("", "x", "3-1", "../3-1-1", "3-1-1/x", "3-1-1\n"):
        assert parse_stem(name) is None


# -- publication ------------------------------------------------------------------------------


def batch(attempt=1, number=1):
    manifest = Manifest("store-3-1-x", RUN, "store", 3, 1, number, 3, False, started=attempt)
    return Batch(manifest, {"output": "o"})


def test_an_attempt_is_invisible_until_published_and_published_once(tmp_path):
    import pyarrow.parquet as pq

    table = tmp_path / "table"
    first, second = batch(1), batch(2)
    first.write_parquet(ROWS, table)
    second.write_parquet(ROWS, table)
    second.write_parquet(ROWS.to_pandas(), table)
    assert pq.read_table(table).num_rows == 0 if any(table.glob("batch=*")) else True
    tables = second.staged_tables()
    publish(tables)
    publish(tables)
    assert pq.read_table(table).num_rows == 6
    assert [path.name for path in table.iterdir()] == ["batch=store-3-1-x"]


def test_publishing_what_somebody_removed_is_an_error(tmp_path):
    attempt = batch()
    attempt.write_parquet(ROWS, tmp_path / "t")
    tables = attempt.staged_tables()
    attempt.drop_staged()
    with pytest.raises(ConfigError, match="are missing"):
        publish(tables)


def test_paths_must_be_absolute():
    with pytest.raises(ConfigError, match="must be absolute"):
        batch().write_parquet(ROWS, "table")


def test_a_path_of_the_batch_is_the_same_in_every_attempt(tmp_path):
    assert batch(1).path(tmp_path / "x", ".csv") == batch(2).path(tmp_path / "x", ".csv")


def test_what_is_no_frame_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="not list"):
        batch().write_parquet([1], tmp_path)


def test_batches_staged_and_published_at_once_do_not_disturb_each_other(tmp_path):
    """Whoever publishes removes the staging folder when it is empty, maybe just when another is about to use it."""
    table, failures = tmp_path / "t", []

    def work(task):
        try:
            for number in range(1, 41):
                attempt = Batch(Manifest(f"b-{task}-{number}", RUN, "store", task, 1, number, 3, False), {})
                attempt.write_parquet(ROWS, table)
                publish(attempt.staged_tables())
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(task,)) for task in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(list(table.glob("batch=*/*.parquet"))) == 160 and not (table / "_staging").exists()
