"""The page for Prometheus, read back by Prometheus's own parser."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from heronpy.metrics.names import METRICS, Kind, find
from heronpy.metrics.prometheus import SERIES_MAX, Page, own_name
from heronpy.proto import control_pb2

COUNTER, GAUGE, HISTOGRAM = control_pb2.Sample.COUNTER, control_pb2.Sample.GAUGE, control_pb2.Sample.HISTOGRAM


def exposition(topology: str, reports: list[control_pb2.MetricsReport]) -> str:
    return Page(topology).text(reports)


def report(*samples: control_pb2.Sample, task: int = 3) -> control_pb2.MetricsReport:
    made = control_pb2.MetricsReport(process=f"container_1_word_{task}", task_id=task, component="word", container=1)
    made.samples.extend(samples)
    return made


def test_page_parses_and_places_every_series() -> None:
    histogram = control_pb2.Sample(name="__execute-latency", label="word/default", type=HISTOGRAM, sum=3e9, count=3)
    histogram.buckets.add(le=2000, count=2)
    histogram.buckets.add(le=float("inf"), count=3)
    page = exposition(
        'a"b\\c\n',
        [
            report(control_pb2.Sample(name="__emit-count", label="default", type=COUNTER, value=5), histogram),
            report(control_pb2.Sample(name="__emit-count", label="default", type=COUNTER, value=6), task=4),
            report(control_pb2.Sample(name="my gauge", label="k\n", type=GAUGE, value=1.5)),
            report(control_pb2.Sample(name="__connection_buffer_by_instanceid/x/bytes", type=GAUGE, value=1)),
        ],
    )
    families = {family.name: family for family in text_string_to_metric_families(page)}
    emitted = families["heron_emit_count"]
    assert emitted.type == "counter"
    assert sorted(sample.value for sample in emitted.samples) == [5, 6]
    labels = emitted.samples[0].labels
    assert labels["topology"] == 'a"b\\c\n'
    assert labels["instance_id"] == "container_1_word_3"
    assert labels["task"] == "3"
    assert "instance" not in labels
    latency = families["heron_execute_latency_seconds"]
    assert [s.value for s in latency.samples if s.name.endswith("_sum")] == [3.0]
    assert latency.type == "histogram"
    assert latency.samples[0].labels["source_component"] == "word"
    assert [(s.labels["le"], s.value) for s in latency.samples if "le" in s.labels] == [("2e-06", 2), ("+Inf", 3)]
    assert families["heron_user_my_gauge"].samples[0].labels["key"] == "k\n"
    assert families["heron_connection_buffer_by_instanceid_bytes"].samples[0].labels["peer"] == "x/bytes"


def test_one_name_has_one_type_and_one_head() -> None:
    page = exposition(
        "t",
        [
            report(control_pb2.Sample(name="x", type=GAUGE, value=1)),
            report(control_pb2.Sample(name="x", type=HISTOGRAM, sum=1, count=1), task=4),
        ],
    )
    assert page.count("# TYPE heron_user_x ") == 1
    list(text_string_to_metric_families(page))


def test_series_are_bounded() -> None:
    samples = [control_pb2.Sample(name="x", label=str(i), type=GAUGE) for i in range(SERIES_MAX + 7)]
    page = exposition("t", [report(*samples)])
    assert page.count("heron_user_x{") == SERIES_MAX
    assert 'heron_executor_series_discarded{topology="t"} 7.0' in page


def test_times_are_in_seconds_and_names_say_so() -> None:
    samples = [
        control_pb2.Sample(name=name, type=COUNTER, value=value)
        for name, value in (
            ("__busy-time-ns", 2.5e9),
            ("__process/__cpu_user_usec", 2.5e6),
            ("__time_spent_back_pressure_aggr", 2500.0),
            ("spark-seconds", 2.5),
            ("__process/__uptime_sec", 2.5),
        )
    ]
    page = exposition("t", [report(*samples)])
    families = {family.name: family for family in text_string_to_metric_families(page)}
    assert set(families) == {
        "heron_busy_time_seconds",
        "heron_process_cpu_user_seconds",
        "heron_time_spent_back_pressure_aggr_seconds",
        "heron_spark_seconds",
        "heron_process_uptime_seconds",
    }
    assert {family.samples[0].value for family in families.values()} == {2.5}


def test_names_have_base_units_at_their_end_and_no_others() -> None:
    for metric in METRICS.values():
        name = own_name(metric)
        words = name.removesuffix("_per_second").split("_")
        assert not {"ns", "us", "ms", "usec", "sec", "secs", "byte"} & set(words), name
        assert not {"seconds", "bytes"} & set(words[:-1]), name
        assert not (metric.kind is Kind.GAUGE and words[-1] == "count"), name


def test_names_do_not_collide_on_the_page() -> None:
    page_names: dict[str, str] = {}
    for name, metric in METRICS.items():
        kind = {"counter": COUNTER, "gauge": GAUGE, "histogram": HISTOGRAM}[metric.kind.value]
        page = exposition("t", [report(control_pb2.Sample(name=name, type=kind))])
        shown = page.split()[2]
        assert page_names.setdefault(shown, name) == name
        assert metric.help.endswith(".")
        found = find(name)
        assert found is not None
        assert found[0] is metric


_SAMPLES = st.builds(
    lambda name, label, kind, value, buckets: control_pb2.Sample(
        name=name, label=label, type=kind, value=value, sum=value, count=9,
        buckets=[control_pb2.Bucket(le=le, count=5) for le in sorted(buckets)] if kind == HISTOGRAM else [],
    ),
    st.sampled_from(["__emit-count", "__execute-latency", "__busy-time-ns", "mine", "mi\nne", "mi ne"]),
    st.text(max_size=4),
    st.sampled_from([COUNTER, GAUGE, HISTOGRAM]),
    st.floats(0, 1e12),
    st.sets(st.sampled_from([1.0, 2000.0, float("inf")])),
)  # fmt: skip
_REPORTS = st.lists(st.lists(_SAMPLES, max_size=4), max_size=3)


@given(st.lists(_REPORTS, min_size=2, max_size=4))
def test_a_later_page_is_as_one_that_is_written_from_scratch(scrapes: list[list[list[control_pb2.Sample]]]) -> None:
    page = Page("t")
    for samples in scrapes:
        reports = [report(*of_task, task=number) for number, of_task in enumerate(samples, 1)]
        text = page.text(reports)
        assert text == exposition("t", reports)
        list(text_string_to_metric_families(text))
