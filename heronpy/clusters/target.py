"""`cluster[/role[/environ]]`, and the values of the flags that every verb accepts."""

from __future__ import annotations

import os
import pwd
import re
import socket

from msgspec import Struct

from heronpy.clusters.errors import RequestError

#: Clusters, roles and environs.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,99}")
NAME_RULE = "use 1 to 100 letters, digits, '_', '-' and '.', not starting with '-' or '.'"


class Target(Struct, frozen=True):
    """The cluster, role and environ of a command. `role` and `environ` are None if not given; None matches all."""

    cluster: str
    role: str | None = None
    environ: str | None = None
    implied: bool = False
    """Whether the user left out the cluster, because only one exists."""

    @classmethod
    def parse(cls, text: str, implied: bool = False) -> Target:
        """The target that this text names; raises ClusterError for an invalid text."""
        cluster, *rest = parts = text.split("/")
        if len(parts) > 3 or not all(NAME.fullmatch(part) for part in parts):
            raise RequestError(f"'{text}' is not cluster[/role[/environ]]; for example 'local' or 'local/ads/prod'")
        role, environ = [*rest, None, None][:2]
        return cls(cluster, role, environ, implied)

    @property
    def role_or_user(self) -> str:
        return self.role or unix_user()

    @property
    def environ_or_default(self) -> str:
        return self.environ or "default"

    def __str__(self) -> str:
        return "/".join(part for part in (self.cluster, self.role, self.environ) if part)


def unix_user() -> str:
    """Name of the user who runs the command, from the system's user database, never from $USER or $LOGNAME.

    The name is used as role, as folder name and in commands. The result is uid<number> if the name is invalid for these
    uses, or if the user has no entry in the database, as in a container.
    """
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = ""
    return name if NAME.fullmatch(name) else f"uid{os.getuid()}"


class Common(Struct, frozen=True):
    """Values of the flags that every verb accepts."""

    config_path: str | None = None
    config_property: tuple[str, ...] = ()
    verbose: bool = False


def caller() -> str:
    """The user who runs this command, for events and logs: `ann on login1`."""
    return f"{unix_user()} on {socket.gethostname()}"
