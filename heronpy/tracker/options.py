"""How a tracker is started; imported also by who only looks for one."""

from __future__ import annotations

from dataclasses import dataclass, field

from heronpy.clusters.target import Common

DEFAULT_PORT = 8889


@dataclass(frozen=True, slots=True)
class Options:
    """The flags of `heron tracker`."""

    #: Empty: all that are configured.
    clusters: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    #: 0: any free one. None: DEFAULT_PORT, or the next that is free.
    port: int | None = None
    #: Certificate and key.
    tls: tuple[str, str] | None = None
    #: The name, and the port if it is not the usual one, under which a proxy is reached.
    behind_proxy: str = ""
    #: Ends after this time without request; 0: never.
    idle_exit_s: float = 0.0
    #: Started by `heron ui`.
    by_ui: bool = False
    common: Common = field(default_factory=Common)
