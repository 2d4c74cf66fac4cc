"""The join token that gives a container access to the control endpoint, and the container's session credential.

The join token contains addresses and keys. Its holder has the rights of a container that has not registered yet. An
engine passes the token as a mounted secret or as the standard input of the container's first process; it never appears
in an argument, an environment variable, a comment or a log.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec import Struct

from heronpy.common.errors import ConfigError
from heronpy.common.folders import replace_file
from heronpy.net.curve import Keys, Pair
from heronpy.net.private import read_private
from heronpy.proto import endpoint_pb2

_ADDRESS: Final = re.compile(r"tcp://[0-9a-zA-Z.\-]+:[0-9]{1,5}")
_KEY: Final = re.compile(r"[!-~]{40}")
TEXT_MAX_CHARS: Final = 4096
#: Name of the file with the session credential, next to the join token.
CREDENTIAL_FILE: Final = "credential.json"
_FILE_MAX_BYTES: Final = 1024


class JoinToken(Struct, frozen=True):
    """The addresses and keys for the containers of one topology."""

    topology_id: str
    #: Addresses of the control endpoint, best first.
    addresses: tuple[str, ...]
    #: The endpoint's public key, in Z85.
    server: bytes
    client: Pair

    def keys(self) -> Keys:
        """The keys for connecting to the endpoint; they do not permit listening."""
        return Keys(self.topology_id, Pair(self.server, b""), self.client)

    def to_text(self) -> str:
        """The token as one line of JSON."""
        content = {
            "topology_id": self.topology_id,
            "addresses": self.addresses,
            "server": self.server.decode(),
            "client": [self.client.public.decode(), self.client.secret.decode()],
        }
        return json.dumps(content)

    @classmethod
    def from_text(cls, text: str, source: str) -> JoinToken:
        """Parse the output of `to_text`; a ConfigError for an invalid token names `source`, but not the text."""
        try:
            found = json.loads(text[:TEXT_MAX_CHARS])
            keys = [str(key) for key in (found["server"], *found["client"])]
            addresses = tuple(str(address) for address in found["addresses"])
            sound = len(keys) == 3 and all(map(_KEY.fullmatch, keys)) and all(map(_ADDRESS.fullmatch, addresses))
            if not (sound and addresses and isinstance(found["topology_id"], str)):
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{source} contains no join token of a heron topology") from None
        server, public, secret = (key.encode() for key in keys)
        return cls(found["topology_id"], addresses, server, Pair(public, secret))


@dataclass(frozen=True, slots=True)
class SessionCredential:
    """Proves the identity of a container on another host: a submission and its secret, stored in a private file.

    The endpoint sends the secret only once, in its answer to the submission's hello. The file is next to the join
    token, where the container's processes read it.
    """

    container: int
    submission: int
    secret: bytes = field(repr=False)

    def to_proto(self) -> endpoint_pb2.SessionCredential:
        return endpoint_pb2.SessionCredential(container=self.container, submission=self.submission, secret=self.secret)

    def save(self, folder: Path) -> None:
        """Write the credential into the container's working folder, readable only by this user."""
        content = {"container": self.container, "submission": self.submission, "secret": self.secret.hex()}
        replace_file(folder / CREDENTIAL_FILE, json.dumps(content).encode())

    @classmethod
    def load(cls, folder: Path) -> SessionCredential:
        """Read the file of `save`; raises ConfigError, without the content, if missing, damaged or not private."""
        path = folder / CREDENTIAL_FILE
        data = read_private(path, _FILE_MAX_BYTES)
        try:
            found = json.loads(data)
            return cls(int(found["container"]), int(found["submission"]), bytes.fromhex(found["secret"]))
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{path} contains no session credential; restart the container") from None
