"""Tokens and the audit: what is kept, and what is never."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heronpy.common.errors import ConfigError
from heronpy.tracker import audit
from heronpy.tracker.audit import Audit
from heronpy.tracker.guard import ALL
from heronpy.tracker.tokens import Tokens


def test_a_token_is_kept_as_its_digest_in_a_private_file(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    secret = tokens.create("me", ["admin"], "prod/ads", 10.0, 100.0)
    assert len(secret) >= 43 and secret not in tokens.path.read_text()
    assert tokens.path.stat().st_mode & 0o777 == 0o600
    holder = Tokens(tmp_path).holder(secret, 105.0)
    assert holder is not None and (holder.who, holder.scopes, holder.where) == ("token me", ALL, "prod/ads")
    assert tokens.holder(secret, 110.0) is None, "expired"
    assert tokens.holder(secret[:-1], 105.0) is None and tokens.holder("", 105.0) is None


def test_a_token_made_or_removed_elsewhere_counts_at_once(tmp_path: Path) -> None:
    served, command = Tokens(tmp_path), Tokens(tmp_path)
    assert served.all() == []
    secret = command.create("me", ["view"], "", None, 0.0)
    assert served.holder(secret, 1e9) is not None
    command.remove("me")
    assert served.holder(secret, 1e9) is None


@pytest.mark.parametrize(
    ("name", "scopes", "where", "said"),
    [("a b", ["view"], "", "cannot be the name"), ("a", ["root"], "", "is not a scope"), ("a", [], "", "scope"),
     ("a", ["view"], "x/../y", "is not cluster"), ("me", ["view"], "", "there is a token 'me'")],
)  # fmt: skip
def test_a_wrong_token_is_not_made(name: str, scopes: list[str], where: str, said: str, tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    tokens.create("me", ["view"], "", None, 0.0)
    with pytest.raises(ConfigError, match=said):
        tokens.create(name, scopes, where, None, 0.0)
    with pytest.raises(ConfigError, match="no token 'you'"):
        tokens.remove("you")


def test_a_file_that_others_can_write_is_not_believed(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    tokens.create("me", ["view"], "", None, 0.0)
    tokens.path.chmod(0o666)
    with pytest.raises(ConfigError, match="writable by other users"):
        Tokens(tmp_path).all()
    tokens.path.chmod(0o600)
    tokens.path.write_text("not json")
    with pytest.raises(ConfigError, match="remove it and make new tokens"):
        Tokens(tmp_path).all()


def test_the_audit_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "FILE_MAX_BYTES", 2000)
    clock = [0.0]
    book = Audit(tmp_path, lambda: clock[0])
    for number in range(200):
        book.change("uid 1", "kill", "x", {"n": number}, "y" * 1000, True)
    assert {path.name for path in tmp_path.iterdir()} == {"audit.jsonl", *(f"audit.jsonl.{n}" for n in range(1, 5))}
    assert all(path.stat().st_size <= 2000 for path in tmp_path.iterdir())
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())


def test_refusals_are_counted_when_there_are_too_many(tmp_path: Path) -> None:
    clock = [0.0]
    book = Audit(tmp_path, lambda: clock[0])
    for _ in range(100):
        book.refused("unknown", "GET", "/x", "no token\n{forged}")
    clock[0] = 61.0
    book.refused("unknown", "GET", "/x", "no token")
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert len(lines) == 61 and lines[-1]["others"] == "40"


def test_a_full_disk_stops_no_request(tmp_path: Path) -> None:
    (tmp_path / "audit.jsonl").mkdir()
    book = Audit(tmp_path, lambda: 0.0)
    book.change("uid 1", "kill", "x", {}, "", True)
    assert book.lost == 1
