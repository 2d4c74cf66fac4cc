"""The document of a job: each key is checked, and each error names the key, the layer and the fix."""

from __future__ import annotations

from typing import Any

import pytest

from heronpy.common.errors import ConfigError
from heronpy.jobs.documents import Document, document_of, leaves_of, nested

DIGEST = "a" * 64
ALL: dict[str, Any] = {
    "definition": DIGEST,
    "run": "paused",
    "restore": "empty",
    "parallelism": {"work": 3},
    "resources": {"work": {"ram": "256MB", "cpu": 0.5}},
    "concurrency": {"call": 64},
    "config": {"limit": 7, "topology.max.spout.pending": 100},
    "component_config": {"work": {"a.b": "text"}},
    "settings": {"heron.checkpoint.interval_s": "10s"},
    "slo": {"lag_s": 5},
    "scale": {"mode": "advise", "max": {"work": 8}, "min": {"work": 1}, "drain_s": 1800, "day_s": 86400},
    "place": {"pool": "small"},
    "role": "ads",
    "priority": 50,
    "privileged": True,
}


def refusal(given: Any, layer: str = "oncall") -> str:
    with pytest.raises(ConfigError) as caught:
        leaves_of(given, layer)
    text = str(caught.value)
    assert "\n" not in text and not text.endswith(".")
    return text


def test_every_key_is_kept_typed_and_in_its_unit() -> None:
    document = document_of(leaves_of(ALL, "oncall"))
    assert document.resources["work"].ram == 256 << 20
    assert document.settings == {"heron.checkpoint.interval_s": 10.0}
    assert document.scale.max == {"work": 8} and document.scale.mode == "advise"
    assert document.slo.lag_s == 5 and document.priority == 50 and document.privileged
    assert set(ALL) == set(Document.__struct_fields__)
    assert leaves_of(nested(leaves_of(ALL, "oncall")), "oncall") == leaves_of(ALL, "oncall")


def test_a_setting_that_is_a_map_is_one_value() -> None:
    given = {"settings": {"heron.executor.restart_budgets": {"work": 5}}}
    assert leaves_of(given, "base") == {("settings", "heron.executor.restart_budgets"): {"work": 5}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"paralelism": {"work": 3}}, "layer oncall has the unknown key 'paralelism' (did you mean 'parallelism'?)"),
        ({"scale": {"maximum": {"work": 3}}}, "'scale' of layer oncall has the unknown key 'maximum'"),
        ({"resources": {"work": {"rm": 1}}}, "'resources.work' of layer oncall has the unknown key 'rm' (did you mean"),
        ({"settings": {"heron.checkpoint.intervall_s": 1}}, "(did you mean 'heron.checkpoint.interval_s'?)"),
        ({"config": {"topology.max.spout.pendin": 1}}, "(did you mean 'topology.max.spout.pending'?)"),
        ({"parallelism": None}, "'parallelism' of layer oncall is null, but a layer cannot delete keys"),
        ({"config": {"limit": None}}, "'config.limit' of layer oncall is null"),
        ({"parallelism": 3}, "'parallelism' of layer oncall is 3; it must be a map"),
        ({"resources": {"work": 3}}, "'resources.work' of layer oncall is 3; it must be a map"),
        (7, "layer oncall is 7; it must be a map"),
        ({"run": {"a": 1}}, "'run' of layer oncall is {'a': 1}; it must be running, paused or stopped"),
        ({"parallelism": {"work": "3"}}, "'parallelism.work' of layer oncall is '3'; it must be a whole number from 1"),
        ({"parallelism": {"work": True}}, "'parallelism.work' of layer oncall is True; it must be a whole number"),
        ({"parallelism": {"work": 0}}, "'parallelism.work' of layer oncall is 0; it must be a whole number from 1"),
        ({"parallelism": {7: 1}}, "'parallelism' of layer oncall has the key 7; a key is one line"),
        ({"config": {"a\x1b": 1}}, "has the key 'a\\x1b'; a key is one line"),
        (
            {"resources": {"work": {"ram": "much"}}},
            "'resources.work.ram' of layer oncall is 'much'; it must be an amount",
        ),
        (
            {"concurrency": {"call": 513}},
            "'concurrency.call' of layer oncall is 513; it must be a whole number from 1 to 512",
        ),
        ({"resources": {"work": {"cpu": float("nan")}}}, "'resources.work.cpu' of layer oncall is nan; it must be"),
        ({"slo": {"lag_s": float("inf")}}, "'slo.lag_s' of layer oncall is inf; it must be a number of seconds"),
        ({"run": "runing"}, "'run' of layer oncall is 'runing'; it must be running, paused or stopped"),
        ({"definition": "latest"}, "'definition' of layer oncall is 'latest'; it must be the digest"),
        ({"place": {"pool": "a/b"}}, "'place.pool' of layer oncall is 'a/b'; it must be a name"),
        ({"config": {"limit": [1]}}, "'config.limit' of layer oncall is [1]; it must be text"),
        ({"settings": {"heron.checkpoint.interval_s": "soon"}}, "heron.checkpoint.interval_s is 'soon' but must be"),
        ({"config": {"topology.reliability.mode": "ATMOST_ONCE"}}, "cannot change while the topology runs"),
        ({"component_config": {"work": {"heron.instance.batch_tuples": 1}}}, "cannot change while the topology runs"),
        ({"config": {"topology.max.spout.pending": 0}}, "sets 'topology.max.spout.pending' to 0; it must be a whole"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(given: Any, said: str) -> None:
    assert said in refusal(given)


def test_the_scaler_writes_only_its_keys() -> None:
    allowed = {"parallelism": {"work": 3}, "resources": {"work": {"ram": 1 << 28}}, "concurrency": {"work": 3}}
    assert len(leaves_of(allowed, "scaler")) == 3
    for key in ALL.keys() - allowed.keys():
        assert f"layer scaler cannot contain '{key}'" in refusal({key: ALL[key]}, "scaler")


def test_an_unknown_layer_names_the_nearest() -> None:
    assert "there is no layer 'on-call' (did you mean 'oncall'?)" in refusal({}, "on-call")
