"""Sinks of metrics: what they write, and that nobody waits for one that is slow, broken or gone."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.setting_types import MetricsSettings
from heronpy.executor import sinks
from heronpy.executor.sink_formats import graphite_lines, json_lines
from heronpy.executor.sinks import JsonFile, Sinks
from heronpy.proto import control_pb2
from tests.support.waiting import wait_for

COUNTER, HISTOGRAM = control_pb2.Sample.COUNTER, control_pb2.Sample.HISTOGRAM


def report(*samples: control_pb2.Sample, process: str = "container_1_count_2") -> control_pb2.MetricsReport:
    made = control_pb2.MetricsReport(process=process, task_id=2, component="count", container=1)
    made.samples.extend(samples)
    return made


def counter(name: str = "__emit-count", label: str = "default", value: float = 5.0) -> control_pb2.Sample:
    return control_pb2.Sample(name=name, label=label, type=COUNTER, value=value)


def test_a_line_of_json_has_the_place_and_all_metrics_of_a_process() -> None:
    latency = control_pb2.Sample(name="__execute-latency", label="word/default", type=HISTOGRAM, sum=3e9, count=3)
    [line] = json_lines("t", 1e9, [report(counter(), latency, counter("nan", "", float("nan")))]).splitlines()
    assert json.loads(line) == {
        "at": 1e9, "topology": "t", "container": 1, "process": "container_1_count_2", "component": "count", "task": 2,
        "metrics": {
            "__emit-count/default": 5.0, "__execute-latency/word/default": {"count": 3, "sum": 3e9}, "nan": None,
        },
    }  # fmt: skip


def test_graphite_gets_a_path_a_value_and_a_time() -> None:
    latency = control_pb2.Sample(name="__execute-latency", label="word/default", type=HISTOGRAM, sum=3e9, count=3)
    text = graphite_lines("my.heron", "t", 1e9, [report(counter(), latency, counter("nan", "", float("nan")))])
    assert text.decode().splitlines() == [
        "my.heron.t.container_1_count_2.__emit-count.default 5.0 1000000000",
        "my.heron.t.container_1_count_2.__execute-latency.word_default.count 3 1000000000",
        "my.heron.t.container_1_count_2.__execute-latency.word_default.sum 3000000000.0 1000000000",
    ]


@given(st.text(max_size=20), st.text(max_size=20), st.floats())
def test_no_name_of_a_user_can_forge_a_line(name: str, label: str, value: float) -> None:
    reports = [report(counter(name, label, value))]
    for line in graphite_lines("heron", "t", 1e9, reports).decode().splitlines():
        path, number, at = line.split(" ")
        assert path.startswith("heron.t.container_1_count_2.") and len(path.split(".")) in (4, 5)
        assert float(number) == value and at == "1000000000"
    [text] = json_lines("t", 1e9, reports).split(b"\n")[:-1]
    assert len(json.loads(text)["metrics"]) == 1


def test_files_are_rotated_between_lines_and_bounded(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "metrics" / "executor-1.jsonl", "t", max_bytes=1000, files_max=3)
    for number in range(40):
        file.write(float(number), [report(counter(value=number))])
    files = sorted((tmp_path / "metrics").iterdir())
    assert [path.name for path in files] == ["executor-1.jsonl", "executor-1.jsonl.1", "executor-1.jsonl.2"]
    times = [json.loads(line)["at"] for path in reversed(files) for line in path.read_text().splitlines()]
    assert times == list(range(int(times[0]), 40)) and all(path.stat().st_size <= 1000 for path in files)


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        JsonFile(tmp_path / "x.jsonl", "t", 1000, 3).write(0.0, [report(counter())])
    assert not (tmp_path / "elsewhere").exists()


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        yield server


def to_graphite(server: socket.socket) -> MetricsSettings:
    return MetricsSettings(graphite_host="127.0.0.1", graphite_port=server.getsockname()[1])


def test_graphite_is_sent_each_snapshot_and_again_after_it_was_restarted(
    listening: socket.socket, tmp_path: Path
) -> None:
    made = Sinks("t", "executor-1", tmp_path, to_graphite(listening))
    for number in (1, 2):
        made.offer(1e9, [report(counter(value=number))])
        client, _ = listening.accept()
        with client:
            assert (
                client.makefile().readline()
                == f"heron.t.container_1_count_2.__emit-count.default {number}.0 1000000000\n"
            )
    wait_for(lambda: made.written == {"graphite": 2})
    made.close()
    assert made.discarded == {"graphite": 0}


def test_a_broken_sink_is_one_warning_and_the_other_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    settings = MetricsSettings(graphite_host="127.0.0.1", graphite_port=port, file_sink=True)
    made = Sinks("t", "executor-1", tmp_path, settings)
    with caplog.at_level(logging.WARNING):
        for number in range(1, 6):
            made.offer(float(number), [report(counter(), counter("other"))])
            wait_for(lambda n=number: made.discarded["graphite"] == made.written["file"] == 2 * n)
        made.close()
    [record] = caplog.records
    assert "graphite" in record.getMessage() and "Connection refused" in record.getMessage()
    assert made.written == {"file": 10, "graphite": 0} and made.discarded == {"file": 0, "graphite": 10}
    assert len((tmp_path / "metrics" / "executor-1.jsonl").read_text().splitlines()) == 5


def test_nobody_waits_for_a_sink_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go, took = threading.Event(), []

    def hang(self: JsonFile, at: float, reports: list[control_pb2.MetricsReport]) -> None:
        took.append(at)
        go.wait(30)

    monkeypatch.setattr(JsonFile, "write", hang)
    monkeypatch.setattr(sinks, "CLOSE_S", 0.05)
    made = Sinks("t", "executor-1", tmp_path, MetricsSettings(file_sink=True))
    made.offer(0.0, [report(counter())])
    wait_for(lambda: took)
    for number in range(1, 11):
        made.offer(float(number), [report(counter())])
    assert made.discarded == {"file": 10 - sinks.QUEUE_MAX} and len(caplog.records) == 1
    made.close()  # gives up waiting, too
    go.set()
    wait_for(lambda: made.written == {"file": 1 + sinks.QUEUE_MAX})
    assert took == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_snapshot_is_bounded_and_the_rest_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "SAMPLES_MAX", 3)
    made = Sinks("t", "executor-1", tmp_path, MetricsSettings(file_sink=True))
    made.offer(0.0, [report(counter(), counter("b")), report(counter(), counter("b"), process="c")])
    wait_for(lambda: made.written == {"file": 2})
    made.close()
    assert made.discarded == {"file": 2}


def test_without_settings_there_is_no_sink(tmp_path: Path) -> None:
    made = Sinks("t", "executor-1", tmp_path, MetricsSettings())
    made.offer(0.0, [report(counter())])
    made.close()
    assert (made.names, made.written, list(tmp_path.iterdir())) == ([], {}, [])
