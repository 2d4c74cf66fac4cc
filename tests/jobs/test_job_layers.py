"""Layers: they merge by strength, leaf by leaf, and a writer changes only what nobody else has changed meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.errors import ConfigError
from heronpy.jobs.documents import LAYERS, Leaves, leaves_of, nested
from heronpy.jobs.merge import (
    Change,
    ConflictError,
    Layer,
    Stamp,
    change_of,
    effective,
    gone_back,
    merge,
    put,
    take_out,
    values_of,
)

names = st.sampled_from(["read", "work", "call"])
counts = st.integers(1, 50)
by_component = st.dictionaries(names, counts, max_size=3)
documents = st.fixed_dictionaries(
    {},
    optional={
        "parallelism": by_component,
        "concurrency": by_component,
        "resources": st.dictionaries(names, st.fixed_dictionaries({}, optional={"cpu": counts.map(float)}), max_size=3),
        "config": st.dictionaries(st.sampled_from(["a", "b.c"]), st.one_of(counts, st.booleans(), st.text("xyz"))),
        "scale": st.fixed_dictionaries({}, optional={"max": by_component, "mode": st.sampled_from(["act", "off"])}),
        "run": st.sampled_from(["running", "paused"]),
    },
)
leaves = documents.map(lambda given: leaves_of(given, "oncall"))


def by_the_rule(weak: Any, strong: Any) -> Any:
    """Objects key by key, everything else is replaced."""
    if not isinstance(weak, dict) or not isinstance(strong, dict):
        return strong
    return weak | {key: by_the_rule(weak[key], value) if key in weak else value for key, value in strong.items()}


def without_empty(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    return {key: kept for key, value in tree.items() if (kept := without_empty(value)) != {}}


@given(documents, documents)
def test_merging_is_that_of_maps_key_by_key(weak: dict[str, Any], strong: dict[str, Any]) -> None:
    merged = nested(merge([leaves_of(weak, "provisioner"), leaves_of(strong, "oncall")]))
    assert merged == without_empty(by_the_rule(weak, strong))


@given(st.lists(leaves, max_size=5), st.integers(0, 5))
def test_merging_is_associative_in_order(layers: list[Leaves], at: int) -> None:
    assert merge([merge(layers[:at]), merge(layers[at:])]) == merge(layers)


@given(leaves, leaves)
def test_merging_is_idempotent_and_deletes_nothing(weak: Leaves, strong: Leaves) -> None:
    merged = merge([weak, strong])
    assert merge([merged, strong]) == merged == merge([merged, merged])
    assert merged.keys() == weak.keys() | strong.keys()
    assert all(merged[path] == value for path, value in strong.items())


def layers_of(**given: Any) -> dict[str, Layer]:
    return {name: put(Layer(name), leaves_of(given[name], name), 0, (), said(name)) for name in LAYERS if name in given}


def said(who: str, until: float | None = None, at: float = 100.0) -> Stamp:
    return Stamp(who, f"{who} wants it", at, until)


def tasks(layers: dict[str, Layer], now: float = 200.0) -> Any:
    found = effective(layers, now).get(("parallelism", "work"))
    return found and (found.value, found.layer, found.entry.stamp.who)


SCALED = {"parallelism": {"work": 10}, "scale": {"max": {"work": 40}}}
FIFTEEN = {"parallelism": {"work": 15}}


def test_a_leaf_has_the_origin_of_the_strongest_layer() -> None:
    layers = layers_of(provisioner=SCALED, scaler=FIFTEEN)
    assert tasks(layers) == (15, "scaler", "scaler")
    layers |= layers_of(oncall={"parallelism": {"work": 30}, "config": {"a": 1}})
    assert tasks(layers) == (30, "oncall", "oncall")
    assert effective(layers, 200.0)["scale", "max", "work"].layer == "provisioner"


def test_an_override_with_an_end_does_not_count_after_it() -> None:
    layers = layers_of(provisioner=SCALED, scaler=FIFTEEN)
    layers["oncall"] = put(Layer("oncall"), {("parallelism", "work"): 30}, 0, (), said("ann", until=300.0))
    assert tasks(layers, 299.9) == (30, "oncall", "ann")
    assert tasks(layers, 300.0) == (15, "scaler", "scaler")
    later = put(layers["oncall"], {("role",): "ads"}, 1, (), said("bob", at=400.0))
    assert [entry.path for entry in later.entries] == [("role",)], "what has ended is taken out by the next change"


@pytest.mark.parametrize(
    ("scale", "counts"),
    [({"max": {"work": 12}}, 12), ({"min": {"work": 20}}, 20), ({"max": {"work": 40}}, 15)],
)
def test_what_the_scaler_wrote_holds_within_limits_that_came_later(scale: Any, counts: int) -> None:
    layers = layers_of(provisioner=SCALED, scaler=FIFTEEN, oncall={"scale": scale})
    assert tasks(layers) == (counts, "scaler", "scaler")


def test_a_component_without_a_maximum_is_not_the_scalers() -> None:
    assert tasks(layers_of(provisioner={"parallelism": {"work": 10}}, scaler=FIFTEEN)) == (
        10,
        "provisioner",
        "provisioner",
    )


steps = st.one_of(leaves.filter(bool), st.sampled_from(["parallelism", "parallelism.work", "config", "run"]))


@given(st.lists(steps, min_size=1, max_size=6), st.data())
def test_going_back_gives_what_was_in_that_version(done: list[Any], data: st.DataObject) -> None:
    layer, history, was = Layer("oncall"), [], {}
    for step in done:
        stamp = said("ann")
        try:
            if isinstance(step, str):
                new = take_out(layer, [step], layer.version, history, stamp)
            else:
                new = put(layer, step, layer.version, history, stamp)
        except ConfigError:
            continue
        if new is not layer:
            history.append(change_of(layer, new, stamp))
            layer = new
            was[layer.version] = {entry.path: (type(entry.value), entry.value) for entry in layer.entries}
    if layer.version < 2:
        return
    to = data.draw(st.integers(1, layer.version - 1))
    back = gone_back(layer, to, layer.version, history, said("bob"))
    assert {entry.path: (type(entry.value), entry.value) for entry in back.entries} == was[to]
    assert back.version == layer.version + (was[to] != was[layer.version])


def written(*steps: tuple[str, Leaves]) -> tuple[Layer, list[Change]]:
    layer, history = Layer("oncall"), []
    for who, changes in steps:
        new = put(layer, changes, layer.version, history, said(who))
        history.append(change_of(layer, new, said(who)))
        layer = new
    return layer, history


WORK, CALL = ("parallelism", "work"), ("parallelism", "call")


def test_another_key_of_a_newer_version_is_kept() -> None:
    layer, history = written(("ann", {WORK: 20}))
    merged = put(layer, {CALL: 3}, 0, history, said("bob"))
    assert {entry.path: entry.value for entry in merged.entries} == {WORK: 20, CALL: 3}


def test_the_same_key_is_refused_with_both_values_and_both_writers() -> None:
    layer, history = written(("ann", {WORK: 20}))
    with pytest.raises(
        ConflictError,
        match=r"'parallelism.work' of layer oncall was set to 20 by ann in the meantime, but bob's change would"
        " leave it set to 30",
    ):
        put(layer, {WORK: 30, CALL: 3}, 0, history, said("bob"))
    with pytest.raises(ConflictError, match="set to 20 by ann in the meantime, but bob's change would leave it unset"):
        take_out(layer, ["parallelism"], 0, history, said("bob"))
    assert put(layer, {WORK: 20}, 0, history, said("bob")) is layer, "who wants the same has what it wants"
    assert put(layer, {WORK: 30}, 1, history, said("bob")).version == 2


def test_a_key_that_was_unset_meanwhile_is_refused() -> None:
    layer, history = written(("ann", {WORK: 20}))
    without = take_out(layer, ["parallelism.work"], 1, history, said("ann"))
    history.append(change_of(layer, without, said("ann")))
    with pytest.raises(ConflictError, match="was unset by ann in the meantime, but bob's change would leave it set"):
        put(without, {WORK: 30}, 1, history, said("bob"))
    assert put(without, {CALL: 3}, 1, history, said("bob")).version == 3


def test_a_version_that_the_history_no_longer_reaches_is_refused() -> None:
    layer, history = written(("ann", {WORK: 20}), ("ann", {WORK: 21}))
    with pytest.raises(
        ConflictError, match="version 0 of layer oncall is no longer in the history; read the layer again"
    ):
        put(layer, {CALL: 3}, 0, history[1:], said("bob"))
    with pytest.raises(ConfigError, match="layer oncall has version 2, not 7; read the layer again"):
        put(layer, {CALL: 3}, 7, history, said("bob"))
    with pytest.raises(ConfigError, match="layer oncall has no earlier version, so there is nothing to revert"):
        gone_back(written(("ann", {WORK: 20}))[0], 77, 1, (), said("bob"))
    with pytest.raises(ConfigError, match="version 2 of layer oncall is not in the history; give one from 1 to 1"):
        gone_back(layer, 2, 2, history, said("bob"))


def test_one_is_not_true() -> None:
    layer, history = written(("ann", {("config", "a"): 1}))
    assert put(layer, {("config", "a"): True}, 1, history, said("ann")).entries[0].value is True


def test_an_unknown_key_to_unset_names_the_nearest() -> None:
    layer, history = written(("ann", {WORK: 20}))
    with pytest.raises(
        ConfigError, match=r"layer oncall does not set 'parallelism.wrk' \(did you mean 'parallelism.work'\?\)"
    ):
        take_out(layer, ["parallelism.wrk"], 1, history, said("ann"))


def test_values_of_leaves_out_the_origins() -> None:
    assert values_of(effective(layers_of(base={"role": "ads"}), 0.0)) == {("role",): "ads"}
