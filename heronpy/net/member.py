"""What a container on another host proves itself with at the door of its scheduler: its secret, in a private file.

The door says the secret once, in its answer to the hello of a submission; the file lies next to the ticket, and the
processes of the container read it there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from heronpy.common.errors import ConfigError
from heronpy.net.private import read_private, write_private
from heronpy.proto import door_pb2

#: Next to the ticket.
FILE: Final = "member"
_FILE_MAX_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class Membership:
    """One submission of a container, and its secret."""

    container: int
    submission: int
    secret: bytes = field(repr=False)

    def to_proto(self) -> door_pb2.Member:
        return door_pb2.Member(container=self.container, submission=self.submission, secret=self.secret)

    def save(self, folder: Path) -> None:
        """Write it into the container's working folder, readable by this user only."""
        content = {"container": self.container, "submission": self.submission, "secret": self.secret.hex()}
        write_private(folder / FILE, json.dumps(content).encode())

    @classmethod
    def load(cls, folder: Path) -> Membership:
        """Read `save`; ConfigError, which says nothing of the content, when it is missing, damaged or not private."""
        path = folder / FILE
        data = read_private(path, _FILE_MAX_BYTES)
        try:
            found = json.loads(data)
            return cls(int(found["container"]), int(found["submission"]), bytes.fromhex(found["secret"]))
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{path} holds no member of a heron topology; restart the container") from None
