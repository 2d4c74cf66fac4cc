"""Keys of a scheduler's control endpoint: others than those of the links, private, and a secret per submission."""

from __future__ import annotations

from pathlib import Path

import pytest

from heronpy.common.errors import ConfigError
from heronpy.net import curve, endpoint_keys


def made(folder: Path) -> endpoint_keys.EndpointKeys:
    curve.generate(str(folder))
    endpoint_keys.make(str(folder))
    return endpoint_keys.load(str(folder), "wc-1")


def test_keys_of_the_endpoint_are_private_and_not_those_of_the_links(tmp_path: Path) -> None:
    keys = made(tmp_path)
    folder = endpoint_keys.folder_of(str(tmp_path))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    links = curve.load(str(tmp_path), "wc-1")
    assert len({pair.secret for pair in (keys.keys.server, keys.keys.client, links.server, links.client)}) == 4
    assert endpoint_keys.load(str(tmp_path), "wc-1") == keys
    assert keys.secret_key.hex() not in repr(keys)
    curve.remove(str(tmp_path))
    with pytest.raises(ConfigError, match="endpoint"):
        endpoint_keys.load(str(tmp_path), "wc-1")


def test_each_submission_has_a_secret_of_its_own(tmp_path: Path) -> None:
    keys = made(tmp_path)
    secrets = {keys.secret_of(container, number) for container in range(3) for number in range(1, 4)}
    assert len(secrets) == 9
    assert keys.is_valid(2, 3, keys.secret_of(2, 3))
    assert not keys.is_valid(2, 4, keys.secret_of(2, 3)), "the secret of another submission"
    assert not keys.is_valid(2, 3, b"")
    other = endpoint_keys.EndpointKeys(curve.load(str(tmp_path), "wc-2"), keys.secret_key)
    assert other.secret_of(2, 3) != keys.secret_of(2, 3), "the secret of another topology"


@pytest.mark.parametrize("content", [b"", b"short", b"g" * 64, b"0" * 64 + b"\n\n"])
def test_a_damaged_key_is_refused_without_showing_it(tmp_path: Path, content: bytes) -> None:
    made(tmp_path)
    (endpoint_keys.folder_of(str(tmp_path)) / "credentials.key").write_bytes(content)
    with pytest.raises(ConfigError, match="contains no key") as found:
        endpoint_keys.load(str(tmp_path), "wc-1")
    assert not content or content.decode() not in str(found.value)
