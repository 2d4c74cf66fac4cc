"""The options of a tracker's start; also imported by commands that only look for a tracker."""

from __future__ import annotations

from dataclasses import dataclass, field

from heronpy.clusters.target import Common

DEFAULT_PORT = 8889


@dataclass(frozen=True, slots=True)
class Options:
    """The flags of `heron tracker`."""

    #: Empty: all configured clusters.
    clusters: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    #: 0: any free port. None: DEFAULT_PORT, or the next free one.
    port: int | None = None
    #: Certificate and key.
    tls: tuple[str, str] | None = None
    #: The name by which clients reach the proxy, with the port if it is not the usual one.
    behind_proxy: str = ""
    #: The tracker ends after this time without a request; 0: never.
    idle_exit_s: float = 0.0
    #: Whether `heron ui` started it.
    by_ui: bool = False
    common: Common = field(default_factory=Common)
