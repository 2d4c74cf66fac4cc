"""What is packed for others has no secrets."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.redaction import HIDDEN, is_secret_name, redacted, redacted_text
from heronpy.common.settings import describe

CANARY = "c4naryC4NARY"


@pytest.mark.parametrize(
    "text",
    [
        f"password={CANARY}",
        f"connecting with PGPASSWORD='{CANARY}' now",
        f'{{"api_key": "{CANARY} and more {CANARY}"}}',
        f"client_secret: {CANARY}, retry",
        f"Authorization: Bearer {CANARY}",
        f"kafka://user:{CANARY}@broker:9092/topic",
        f"-----BEGIN RSA PRIVATE KEY-----\n{CANARY}\n{CANARY}\n-----END RSA PRIVATE KEY-----",
        f"https://h/x?token={CANARY}&a=1",
        f"a line of a key\n{CANARY * 5}\n",
        f"the reference secret://{CANARY}/x",
    ],
)
def test_a_secret_in_a_text_is_hidden(text: str) -> None:
    found = redacted_text(text)
    assert CANARY not in found and HIDDEN in found
    assert redacted_text(found) == found, "again changes nothing"


@pytest.mark.parametrize(
    "text",
    [
        "container_1_count_3 was restarted: ValueError: order 7 of user 3 cannot be booked",
        "2026-11-22 18:00:00 INFO plan 7: 12 tasks on 3 stream managers",
        "the author: somebody; passed: 12 tests; http://localhost:8889/topologies",
        "WordCount0b9c1f2e-3d4a-4b5c-8d7e-9f0a1b2c3d4e is RUNNING",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redacted_text(text) == text


def test_settings_are_hidden_by_their_names() -> None:
    settings = {
        "db": {"user": "heron", "password": CANARY, "keys": [CANARY], "port": 5432},
        "url": f"amqp://me:{CANARY}@h", "topology.max.spout.pending": "1000", "key_groups": 128, "tls": True,
    }  # fmt: skip
    found = redacted(settings)
    assert CANARY not in json.dumps(found)
    assert found == {
        "db": {"user": "heron", "password": HIDDEN, "keys": HIDDEN, "port": 5432},
        "url": f"amqp://{HIDDEN}@h", "topology.max.spout.pending": "1000", "key_groups": 128, "tls": True,
    }  # fmt: skip
    assert is_secret_name("DB_PASSWORD") and is_secret_name("spark.key") and not is_secret_name("parallelism")


def test_no_number_of_ours_is_taken_for_a_secret() -> None:
    numbers = [one.key for one in describe() if isinstance(one.default, int | float)]
    assert numbers and [key for key in numbers if is_secret_name(key)] == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)


@given(JSON, st.sampled_from(["password", "apiKey", "X-Auth-Token", "client.secret"]))
def test_a_canary_survives_nowhere(value: object, name: str) -> None:
    assert CANARY not in json.dumps(
        redacted({"a": value, "b": [{name: CANARY}, {name: [CANARY, {"x": CANARY}]}, {name: {"x": {"y": CANARY}}}]})
    )


def test_a_long_line_takes_no_longer_than_its_length() -> None:
    began = time.process_time()
    for letter in ("a", "a.", "token", "a:", "://", "A1a"):
        redacted_text(letter * (65536 // len(letter)))
    assert time.process_time() - began < 20
