"""The keys of a control endpoint, in `<working_dir>/keys/endpoint`: two key pairs as in `curve`, and a secret key.

The pairs differ from the pairs for links between containers; the join token contains the client's pair. A process with
a join token can send the hello for any submission that has not sent it yet, and so act for this submission: a join
token must be as secret as the topology. All other requests of a submission need the submission's own secret, which the
endpoint derives from the secret key and sends in its answer to the hello. The endpoint thus stores no such secret.
"""

from __future__ import annotations

import functools
import hmac
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import zmq

from heronpy.common.errors import ConfigError
from heronpy.common.folders import replace_file
from heronpy.net import curve
from heronpy.net.curve import Keys, Pair

_SECRET: Final = "credentials.key"
_HEX: Final = re.compile(rb"[0-9a-f]{64}\n?")


@functools.lru_cache(4096)
def _derived(key: bytes, name: str) -> bytes:
    """A key derived from `key`; cached, because each request is compared with it."""
    return hmac.digest(key, name.encode(), "sha256")


@dataclass(frozen=True, slots=True)
class EndpointKeys:
    """The keys of one topology's endpoint."""

    keys: Keys
    secret_key: bytes = field(repr=False)
    """Secret key of 32 bytes, from which the secrets of session credentials are derived."""

    def secret_of(self, container: int, submission: int) -> bytes:
        """The secret of a submission whose hello was accepted."""
        return _derived(self.secret_key, f"{self.keys.domain}.{container}.{submission}")

    def is_valid(self, container: int, submission: int, secret: bytes) -> bool:
        """Whether a message contains this submission's secret."""
        return hmac.compare_digest(self.secret_of(container, submission), secret)


def folder_of(working_dir: str) -> Path:
    """The folder for the endpoint's keys, below the folder of the other keys so that `curve.remove` also removes it."""
    return curve.folder_of(working_dir) / "endpoint"


def make(working_dir: str) -> None:
    """Create new keys; call this after `curve.generate`, which removes existing keys."""
    folder = folder_of(working_dir)
    curve.save(folder, Pair(*zmq.curve_keypair()), Pair(*zmq.curve_keypair()))
    replace_file(folder / _SECRET, secrets.token_hex(32).encode() + b"\n")


def load(working_dir: str, topology_id: str) -> EndpointKeys:
    """Read the keys; raises ConfigError if they are missing, damaged or readable by others."""
    folder = folder_of(working_dir)
    keys = curve.read(folder, topology_id)
    found = curve.read_secret(folder, _SECRET)
    if not _HEX.fullmatch(found):
        raise ConfigError(f"{folder / _SECRET} contains no key; submit the topology again")
    return EndpointKeys(keys, bytes.fromhex(found.decode().strip()))
