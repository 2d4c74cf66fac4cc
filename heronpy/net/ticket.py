"""The ticket of a container: by which addresses and keys it reaches the door of its scheduler.

It gives access to the topology, as any container that has not said hello yet. An engine hands it over as a mounted
secret, or as the standard input of the container's first process; it is never an argument, an environment variable, a
comment or a line of a log.
"""

from __future__ import annotations

import json
import re
from typing import Final

from msgspec import Struct

from heronpy.common.errors import ConfigError
from heronpy.net.curve import Keys, Pair

_ADDRESS: Final = re.compile(r"tcp://[0-9a-zA-Z.\-]+:[0-9]{1,5}")
_KEY: Final = re.compile(r"[!-~]{40}")
TEXT_MAX_CHARS: Final = 4096


class Ticket(Struct, frozen=True):
    """What one topology's containers get."""

    topology_id: str
    #: ZeroMQ endpoints of the door, best first.
    addresses: tuple[str, ...]
    #: The door's public key, in Z85.
    server: bytes
    client: Pair

    def keys(self) -> Keys:
        """For connecting to the door; nobody can listen with them."""
        return Keys(self.topology_id, Pair(self.server, b""), self.client)

    def to_text(self) -> str:
        """One line of JSON."""
        content = {
            "topology_id": self.topology_id,
            "addresses": self.addresses,
            "server": self.server.decode(),
            "client": [self.client.public.decode(), self.client.secret.decode()],
        }
        return json.dumps(content)

    @classmethod
    def from_text(cls, text: str, source: str) -> Ticket:
        """Read `to_text`; ConfigError, which names `source` and nothing of the text, when it is no ticket."""
        try:
            found = json.loads(text[:TEXT_MAX_CHARS])
            keys = [str(key) for key in (found["server"], *found["client"])]
            addresses = tuple(str(address) for address in found["addresses"])
            sound = len(keys) == 3 and all(map(_KEY.fullmatch, keys)) and all(map(_ADDRESS.fullmatch, addresses))
            if not (sound and addresses and isinstance(found["topology_id"], str)):
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{source} holds no ticket of a heron topology") from None
        server, public, secret = (key.encode() for key in keys)
        return cls(found["topology_id"], addresses, server, Pair(public, secret))
