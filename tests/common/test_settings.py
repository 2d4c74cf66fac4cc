"""Settings: precedence, origins, units, ranges, and errors that name the key and the place."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common import settings
from heronpy.common.errors import ConfigError
from heronpy.common.nearest import nearest
from heronpy.common.setting_types import ORDERED, ROOMS, InstanceSettings, StmgrSettings
from heronpy.common.settings import Resolved, conf_text, describe, find_conf, resolve, settings_for
from heronpy.plan.component_config import SerializedValue

CONF = Path(__file__).resolve().parents[2] / "conf"


@dataclass
class Launch:
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    component_settings: dict[str, dict[str, Any]] = field(default_factory=dict)


def conf(tmp_path: Path, name: str = "conf", **rooms: str) -> Path:
    directory = tmp_path / name
    (directory / "local").mkdir(parents=True)
    for room, text in rooms.items():
        (directory / "local" / f"{room}.yaml").write_text(text)
    return directory


def resolved(*overrides: str, topology: dict[str, Any] | None = None, **components: Any) -> Resolved:
    return resolve("local", [], topology or {}, components, list(overrides))


def test_without_any_configuration_the_defaults_hold() -> None:
    result = resolved()
    for room, cls in ROOMS.items():
        assert settings_for(Launch(result.settings), cls) == cls()
        assert set(result.settings[room]) == set(cls.__struct_fields__)
    assert set(result.origins.values()) == {"default"}
    assert result.component_settings == {}


def test_the_defaults_lie_in_their_ranges() -> None:
    for item in describe():
        assert settings.parse_value(item, item.default, "default") == item.default, item.key
        assert item.doc.endswith("."), item.key
        assert type(item.default).__name__ == item.type.split("[")[0], item.key
    assert ORDERED


def test_the_shipped_files_show_every_setting_and_change_none() -> None:
    for room in ROOMS:
        assert (CONF / "local" / f"{room}.yaml").read_text() == conf_text(room)
    assert resolve("local", [CONF], {}, {}, []) == resolved()


def test_the_shipped_files_say_what_holds_when_uncommented(tmp_path: Path) -> None:
    uncommented = {room: re.sub(r"^# (?=[a-z_]+: )", "", conf_text(room), flags=re.MULTILINE) for room in ROOMS}
    uncommented = {
        room: "\n".join(line for line in text.splitlines() if re.match(r"[a-z_]+: ", line))
        for room, text in uncommented.items()
    }
    result = resolve("local", [conf(tmp_path, **uncommented)], {}, {}, [])
    assert result.settings == resolved().settings
    assert "default" not in result.origins.values()


def test_later_layers_win_and_the_origin_is_known(tmp_path: Path) -> None:
    first = conf(tmp_path, "a", instance="# x\nbatch_tuples: 1\nbatch_bytes: 1KB\nallow_pickle: no")
    second = conf(tmp_path, "b", instance="\n\nbatch_tuples: 2\ntuple_max_bytes: 1MB")
    topology = {"heron.instance.tuple_max_bytes": "2MB", "heron.instance.linger_max_us": "1s"}
    components = {
        "word": {"heron.instance.linger_max_us": 7, "heron.instance.batch_bytes": "3KB"},
        "count": {"heron.instance.linger_max_us": 8, "my.key": object()},
    }
    overrides = ["heron.instance.linger_max_us=250us", "heron.stmgr.frames_per_turn = 3"]
    result = resolve("local", [first, second], topology, components, overrides)
    values = result.settings["instance"]
    assert (values["batch_tuples"], values["batch_bytes"], values["allow_pickle"]) == (
        2,
        1024,
        False,
    )
    assert (values["tuple_max_bytes"], values["linger_max_us"]) == (2 << 20, 250.0)
    assert result.settings["stmgr"]["frames_per_turn"] == 3
    assert result.component_settings == {"word": {"batch_bytes": 3072}}
    origins = result.origins
    assert origins["instance.batch_tuples"] == f"{second}/local/instance.yaml:3"
    assert origins["instance.batch_bytes"] == f"{first}/local/instance.yaml:3"
    assert origins["instance.tuple_max_bytes"] == "topology config"
    assert origins["instance.linger_max_us"] == "--config-property"
    assert origins["instance.batch_bytes@word"] == "config of component 'word'"
    assert "instance.linger_max_us@word" not in origins
    launch = Launch(json.loads(json.dumps(result.settings)), result.component_settings)
    word = settings_for(launch, InstanceSettings, "word")
    assert isinstance(word, InstanceSettings)
    assert (word.batch_bytes, word.batch_tuples) == (3072, 2)
    assert settings_for(launch, InstanceSettings, "count").batch_bytes == 1024
    assert settings_for(launch, StmgrSettings, "word").frames_per_turn == 3


def test_a_users_own_key_of_the_same_name_changes_nothing() -> None:
    word = {"heron.instance.batch_bytes": "3KB"}
    result = resolved("batch_bytes=5", "some.key=x", topology={"batch_bytes": 1, 5: 6}, word=word)
    assert result.component_settings == {"word": {"batch_bytes": 3072}}


@pytest.mark.parametrize(
    ("key", "value", "parsed"),
    [
        ("instance.batch_bytes", "64 KB", 65536),
        ("instance.batch_bytes", 5000, 5000),
        ("instance.batch_bytes", "5000", 5000),
        ("instance.queue_sample_ms", "2s", 2000.0),
        ("instance.queue_sample_ms", "2", 2.0),
        ("instance.queue_sample_ms", 2, 2.0),
        ("instance.spout_idle_min_us", "1ms", 1000.0),
        ("instance.hang_timeout_s", "2m", 120.0),
        ("instance.hang_timeout_s", 0, 0.0),
        ("instance.hang_timeout_s", "1.5", 1.5),
        ("instance.queue_ema_weight", "0.5", 0.5),
        ("instance.batch_tuples", "200", 200),
        ("instance.batch_tuples", 200.0, 200),
        ("instance.allow_pickle", "False", False),
        ("instance.allow_pickle", "on", True),
        ("executor.metrics_port", 8080, 8080),
        ("logging.level", "debug", "DEBUG"),
        ("packing.algorithm", "Balanced", "balanced"),
        ("spark.conf", '{"spark.ui.enabled": false}', {"spark.ui.enabled": False}),
        ("spark.master", "local[*]", "local[*]"),
        ("spark.driver_memory", 512, "512"),
    ],
)
def test_values_parse_by_the_type_of_their_field(key: str, value: Any, parsed: Any) -> None:
    room, name = key.split(".")
    found = resolved(topology={f"heron.{key}": value}).settings[room][name]
    assert found == parsed
    assert type(found) is type(parsed)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("instance.batch_bytes", -1),
        ("instance.batch_bytes", "-5MB"),
        ("instance.batch_bytes", "5 parsecs"),
        ("instance.batch_bytes", 0),
        ("instance.batch_bytes", True),
        ("instance.batch_bytes", "1e400"),
        ("instance.batch_bytes", float("inf")),
        ("instance.hang_timeout_s", -1),
        ("instance.hang_timeout_s", "-1s"),
        ("instance.hang_timeout_s", "inf"),
        ("instance.hang_timeout_s", "nan"),
        ("instance.hang_timeout_s", float("nan")),
        ("instance.batch_tuples", 1.5),
        ("instance.batch_tuples", "many"),
        ("instance.batch_tuples", None),
        ("instance.queue_ema_weight", 1.1),
        ("instance.allow_pickle", "maybe"),
        ("instance.allow_pickle", 2),
        ("executor.metrics_port", 65536),
        ("executor.metrics_host", ["127.0.0.1"]),
        ("logging.level", "LOUD"),
        ("packing.algorithm", "best"),
        ("spark.conf", "[]"),
        ("spark.conf", "{"),
        ("spark.conf", {1: 2}),
    ],
)
def test_a_bad_value_is_an_error_that_names_key_value_and_place(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        resolved(topology={f"heron.{key}": value})
    text = str(caught.value)
    assert text.startswith(f"topology config: heron.{key} is ")
    assert "must be" in text
    assert "\n" not in text
    assert value is None or repr(value) in text


@pytest.mark.parametrize(
    ("key", "values", "expected"),
    [
        ("queue_target_ms", (-1, "-5ms", 60_001, "61s", "soon", "nan", float("nan"), float("inf"), None, True, [1000]),
         "a duration such as 250ms or 2s (a bare number is in ms), from 0 to 60000"),
        # A target that is a time needs limits in bytes as well.
        ("backpressure_high_bytes", (0, "0MB", -1, "-1MB"), "a size such as 512KB or 64MB, at least 1B"),
    ],
)  # fmt: skip
def test_a_bad_limit_of_queues_is_one_sentence_with_its_range(key: str, values: tuple[Any, ...], expected: str) -> None:
    for value in values:
        with pytest.raises(ConfigError) as caught:
            resolved(topology={f"heron.stmgr.{key}": value})
        shown = "empty" if value is None else repr(value)
        assert str(caught.value) == f"topology config: heron.stmgr.{key} is {shown} but must be {expected}"


def test_a_bad_value_in_a_file_names_the_line(tmp_path: Path) -> None:
    directory = conf(tmp_path, stmgr="# c\nframes_per_turn: 3\n\nframe_max_bytes: -64MB\n")
    with pytest.raises(ConfigError) as caught:
        resolve("local", [directory], {}, {}, [])
    assert str(caught.value) == (
        f"{directory}/local/stmgr.yaml:4: heron.stmgr.frame_max_bytes is '-64MB' but must be a"
        " size such as 512KB or 64MB, at least 1KB"
    )


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("heron.stmgr.frame_per_turn", "heron.stmgr.frames_per_turn"),
        ("heron.instances.batch_bytes", "heron.instance.batch_bytes"),
        ("topology.max.spout.pendng", "topology.max.spout.pending"),
        ("topology.message.timeout.sec", "topology.message.timeout.secs"),
    ],
)
def test_an_unknown_key_is_an_error_that_names_the_nearest(key: str, near: str) -> None:
    for use in (
        lambda: resolved(topology={key: 1}),
        lambda: resolved(f"{key}=1"),
        lambda: resolved(word={key: 1}),
    ):
        with pytest.raises(ConfigError, match=re.escape(f"unknown key {key} (did you mean '{near}'?)")):
            use()


def test_an_unknown_key_in_a_file_names_the_line(tmp_path: Path) -> None:
    directory = conf(tmp_path, logging="level: INFO\nfile_max_byte: 1MB\n")
    with pytest.raises(ConfigError, match=r"logging\.yaml:2: .*did you mean 'heron.logging.file_max_b"):
        resolve("local", [directory], {}, {}, [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1, 2\nb: 3\n", r"stmgr\.yaml:\d: not valid YAML: .*"),
        ("a: 1\n b: 2\n", r"stmgr\.yaml:2: not valid YAML: .*"),
        ("\tx: 1\n", r"stmgr\.yaml:1: not valid YAML: .*"),
        ("x: \x00", r"stmgr\.yaml: not valid YAML: .*"),
        ("- a\n- b\n", r"stmgr\.yaml:1: the file must contain lines of the form key: value"),
        ("text", r"stmgr\.yaml:1: the file must contain lines"),
        ("frames_per_turn: 1\nframes_per_turn: 2", r"stmgr\.yaml:2: frames_per_turn is set twice"),
        (
            "frames_per_turn: !!python/object:os.system x",
            r"stmgr\.yaml:1: not valid YAML: could not",
        ),
        ("frames_per_turn:", r"stmgr\.yaml:1: heron\.stmgr\.frames_per_turn is empty but must"),
        ("[" * 5000, r"stmgr\.yaml"),
        ("#" * (1 << 20) + "##", r"stmgr\.yaml is larger than"),
    ],
)
def test_a_file_that_does_not_parse_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        resolve("local", [conf(tmp_path, stmgr=text)], {}, {}, [])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "\n\n"])
def test_an_empty_file_is_fine(tmp_path: Path, text: str) -> None:
    assert resolve("local", [conf(tmp_path, stmgr=text)], {}, {}, []) == resolved()


def test_a_file_of_no_room_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"stmgrs\.yaml is not a settings file of heronpy; use one of stmgr\.yaml, "):
        resolve("local", [conf(tmp_path, stmgrs="")], {}, {}, [])


def test_an_unknown_cluster_is_an_error_that_names_the_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cluster 'locl'.*known clusters: local"):
        resolve("locl", [conf(tmp_path)], {}, {}, [])
    for name in ("", "..", "a/b"):
        with pytest.raises(ConfigError, match="not the name of a cluster"):
            resolve(name, [], {}, {}, [])


def test_settings_that_limit_one_another_are_checked(tmp_path: Path) -> None:
    directory = conf(tmp_path, stmgr="backpressure_low_bytes: 2MB\n")
    with pytest.raises(ConfigError) as caught:
        resolve("local", [directory], {}, {}, [])
    assert str(caught.value) == (
        f"heron.stmgr.backpressure_low_bytes (2097152, {directory}/local/stmgr.yaml:1) must not"
        " exceed heron.stmgr.backpressure_high_bytes (1048576, default)"
    )
    with pytest.raises(ConfigError, match=r"\(70000000, config of component 'word'\) must not"):
        resolved(word={"heron.instance.tuple_max_bytes": 70_000_000})
    resolved(
        "heron.stmgr.frame_max_bytes=80000000",
        word={"heron.instance.tuple_max_bytes": 70_000_000},
    )


def test_a_component_may_only_set_the_instance_room() -> None:
    with pytest.raises(ConfigError, match=r"component 'word': heron.stmgr.frames_per_turn belongs"):
        resolved(word={"heron.stmgr.frames_per_turn": 1})


@pytest.mark.parametrize("text", ["heron.stmgr.frames_per_turn", "=5", "", "  = 5"])
def test_an_override_without_key_or_value_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="must have the form key=value"):
        resolved(text)


def test_the_configuration_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HERON_CONF", raising=False)
    assert find_conf() == [CONF]
    first, second = conf(tmp_path, "a"), conf(tmp_path, "b")
    monkeypatch.setenv("HERON_CONF", str(first))
    assert find_conf(second) == [CONF, first, second]
    with pytest.raises(ConfigError, match=r"--config-path names .*missing, which is not a directory"):
        find_conf(tmp_path / "missing")
    monkeypatch.setenv("HERON_CONF", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="HERON_CONF names"):
        find_conf()


def test_a_launch_file_of_another_release_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting heron\.stmgr\.old"):
        settings_for(Launch({"stmgr": {"old": 1}}), StmgrSettings)


@given(
    st.sampled_from(list(describe())),
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(),
        st.lists(st.integers()), st.dictionaries(st.text(), st.integers()),
    ),
)  # fmt: skip
def test_any_value_is_parsed_or_refused(item: settings.Setting, value: Any) -> None:
    try:
        parsed = settings.parse_value(item, value, "here")
    except ConfigError:
        with pytest.raises(ConfigError, match=rf"^here: {item.key} is "):
            settings.parse_value(item, value, "here")
    else:
        assert type(parsed).__name__ == item.type.split("[")[0]
        assert settings.parse_value(item, parsed, "here") == parsed


def test_a_key_of_the_topology_is_refused_on_the_command_line() -> None:
    """It would have no effect: a topology that asks for at least once must not silently run at most once."""
    with pytest.raises(ConfigError, match=r"cannot set topology\.reliability\.mode; set it in the program"):
        resolved("topology.reliability.mode=ATLEAST_ONCE")
    given = ["topology.reliability.mode=ATLEAST_ONCE"]
    assert resolve("local", [], {}, {}, given, lenient=True).ignored


def test_a_profile_sets_defaults_and_nothing_else() -> None:
    word = {"heron.instance.profile": "thrift", "heron.instance.linger_max_us": 3}
    result = resolved("heron.instance.profile=latency", "heron.instance.spout_idle_min_us=70", word=word)
    found = result.settings["instance"]
    assert (found["linger_max_us"], found["spout_idle_min_us"]) == (0.0, 70.0)
    assert result.origins["instance.linger_max_us"] == "profile latency"
    assert "spout_idle_min_us" not in result.component_settings.get("word", {}), "the command line has the last word"


def test_a_component_may_have_a_profile_of_its_own() -> None:
    result = resolved(word={"heron.instance.profile": "thrift", "heron.instance.linger_max_us": 3})
    assert result.component_settings["word"] == {
        "profile": "thrift",
        "linger_max_us": 3.0,
        "spout_idle_min_us": 5000.0,
    }
    assert result.settings["instance"]["spout_idle_min_us"] == 1000.0


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("heron.instance.nope", None),
        ("heron.nope", None),
        ("heron.instance.profil", "heron.instance.profile"),
        ("heron.instence.profile", "heron.instance.profile"),
        ("heron.instance", "heron.instance.profile"),
    ],
)
def test_what_names_share_suggests_nothing(key: str, near: str | None) -> None:
    assert nearest(key, ["heron.instance.profile"]) == near


def test_a_tuple_waits_for_others_a_second_at_most() -> None:
    """Longer than the message timeout, every tuple would be sent again before it had left."""
    linger = next(item for item in settings.describe() if item.key == "heron.instance.linger_max_us")
    assert settings.parse_value(linger, "1e6", "here") == 1e6
    with pytest.raises(ConfigError, match=r"here: heron.instance.linger_max_us is '60000000' but must be"):
        settings.parse_value(linger, "60000000", "here")


def test_an_object_in_a_components_configuration_is_no_duration() -> None:
    with pytest.raises(ConfigError, match=r"linger_max_us is a serialized object but must be"):
        resolve("local", [], {"heron.instance.linger_max_us": SerializedValue(b"\x80\x05].", is_python=True)}, {}, [])
