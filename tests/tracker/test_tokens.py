"""Tokens: what is kept, and what is never."""

from __future__ import annotations

from pathlib import Path

import pytest

from heronpy.common.errors import ConfigError
from heronpy.tracker.guard import Scope
from heronpy.tracker.tokens import Tokens


def test_a_token_is_kept_as_its_digest_in_a_private_file(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    secret = tokens.create(Scope.ALL)
    assert len(secret) >= 43 and secret not in tokens.path.read_text()
    assert tokens.path.stat().st_mode & 0o777 == 0o600
    holder = Tokens(tmp_path).holder(secret)
    assert holder is not None and (holder.who, holder.scope) == ("the token 'all'", Scope.ALL)
    assert tokens.holder(secret[:-1]) is None and tokens.holder("") is None


def test_a_token_made_or_removed_elsewhere_counts_at_once(tmp_path: Path) -> None:
    served, command = Tokens(tmp_path), Tokens(tmp_path)
    assert not served.are_there and served.holder("") is None
    secret = command.create(Scope.VIEW)
    assert served.are_there and served.holder(secret) is not None
    command.remove(Scope.VIEW)
    assert not served.are_there and served.holder(secret) is None


def test_there_are_two_tokens_and_a_new_one_makes_the_old_one_void(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    old, view = tokens.create(Scope.ALL), tokens.create(Scope.VIEW)
    new = tokens.create(Scope.ALL)
    found = [tokens.holder(one) for one in (old, view, new)]
    assert found[0] is None and [one.scope for one in found[1:] if one] == [Scope.VIEW, Scope.ALL]
    tokens.remove(Scope.ALL)
    assert tokens.holder(view) is not None
    with pytest.raises(ConfigError, match="there is no token 'all'"):
        tokens.remove(Scope.ALL)


def test_a_file_that_others_can_write_is_not_believed(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    secret = tokens.create(Scope.VIEW)
    tokens.path.chmod(0o666)
    with pytest.raises(ConfigError, match="writable by other users"):
        Tokens(tmp_path).holder(secret)
    tokens.path.chmod(0o600)
    tokens.path.write_text("not json")
    with pytest.raises(ConfigError, match="remove it and create new tokens"):
        Tokens(tmp_path).holder(secret)
