"""The join token of a container survives its text, and nothing else is one."""

from __future__ import annotations

import json

import pytest
import zmq

from heronpy.common.errors import ConfigError
from heronpy.net.curve import Pair
from heronpy.net.join_token import JoinToken


def a_token() -> JoinToken:
    server, _ = zmq.curve_keypair()
    return JoinToken("words-1", ("tcp://10.0.0.7:4711", "tcp://login1:4711"), server, Pair(*zmq.curve_keypair()))


def test_what_was_written_is_read() -> None:
    token = a_token()
    assert JoinToken.from_text(token.to_text(), "here") == token
    assert "\n" not in token.to_text()


def test_a_key_is_not_shown() -> None:
    token = a_token()
    assert token.client.secret.decode() not in repr(token)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("addresses", []),
        ("addresses", ["ipc:///tmp/x"]),
        ("addresses", ["tcp://10.0.0.7"]),
        ("server", "short"),
        ("client", ["only one"]),
        ("topology_id", 7),
    ],
)
def test_what_is_no_token_is_refused_without_repeating_it(name: str, value: object) -> None:
    content = json.loads(a_token().to_text())
    content[name] = value
    with pytest.raises(ConfigError, match="standard input contains no join token") as caught:
        JoinToken.from_text(json.dumps(content), "standard input")
    assert content["client"][-1] not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "not json", "{" * 100])
def test_noise_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        JoinToken.from_text(text, "x")
