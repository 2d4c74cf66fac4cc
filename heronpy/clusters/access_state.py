"""A state manager for topologies on other hosts: it reads a topology's state at its scheduler's control endpoint.

Only topologies to which this host has access are visible. The endpoints refuse all writes, except a command's lock and
the description of the command's activity.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Lock

from heronpy.clusters.errors import ClusterError, EndpointAwayError
from heronpy.common.errors import StateError
from heronpy.common.setting_types import StatemgrSettings
from heronpy.net import access
from heronpy.net.endpoint_state import EndpointStateManager
from heronpy.net.join_token import JoinToken, SessionCredential
from heronpy.statemgr.base import Watch
from heronpy.statemgr.paths import check_path

#: A client is not a container; the endpoint identifies it by its key.
_CREDENTIAL = SessionCredential(0, 0, b"")


class AccessState:
    """Reads the state of topologies at their endpoints; `reach` is `Records.reach`."""

    def __init__(self, cluster: str, settings: StatemgrSettings, reach: Callable[[str, JoinToken], JoinToken]) -> None:
        self._cluster = cluster
        self._settings = settings
        self._reach = reach
        self._mutex = Lock()
        self._endpoints: dict[str, EndpointStateManager] = {}

    def create(self, path: str, data: bytes, ephemeral: bool = False) -> None:
        """Create a node; permitted only for the description of a command's activity."""
        self._must(path).create(path, data, ephemeral)

    def get(self, path: str) -> tuple[bytes, int] | None:
        """Data and version of a node; raises EndpointAwayError if its endpoint does not answer."""
        endpoint = self._at(path)
        return endpoint.get(path) if endpoint is not None else None

    def set(self, path: str, data: bytes, version: int | None = None) -> int:
        """Not permitted: the endpoint refuses this request."""
        return self._must(path).set(path, data, version)

    def delete(self, path: str, version: int | None = None) -> None:
        """Not permitted: the endpoint refuses this request."""
        self._must(path).delete(path, version)

    def children(self, path: str) -> list[str]:
        """The names of a node's children; for a path of one segment, the topologies to which this host has access."""
        segments = check_path(path)
        return access.topologies_of(self._cluster) if len(segments) == 1 else self._must(path).children(path)

    def exists(self, path: str) -> bool:
        return self.get(path) is not None

    def watch(self, path: str, callback: Callable[[str], None]) -> Watch:
        """Call `callback` in a thread after each change to the node."""
        return self._must(path).watch(path, callback)

    def counter(self, path: str) -> int:
        """Not permitted: the endpoint refuses this request."""
        return self._must(path).counter(path)

    def lock(self, path: str, timeout_s: float = 10.0) -> AbstractContextManager[None]:
        """Return a context manager that holds the lock of a topology's commands."""
        return self._must(path).lock(path, timeout_s)

    def gone(self, topology: str) -> None:
        """Mark the topology as removed together with its endpoint.

        The topology's locks have ended, and no more requests are sent to the endpoint.
        """
        with self._mutex:
            endpoint = self._endpoints.pop(topology, None)
        if endpoint is not None:
            endpoint.abandon()

    def close(self) -> None:
        with self._mutex:
            endpoints, self._endpoints = self._endpoints, {}
        for endpoint in endpoints.values():
            endpoint.close()

    def _must(self, path: str) -> EndpointStateManager:
        endpoint = self._at(path)
        if endpoint is None:
            raise StateError(f"this host has no access to the topology of state node {path!r}")
        return endpoint

    def _at(self, path: str) -> EndpointStateManager | None:
        """The endpoint of a node's topology; None if this host has no access to the topology."""
        segments = check_path(path)
        name = segments[1] if len(segments) > 1 else ""
        with self._mutex:
            if name in self._endpoints:
                return self._endpoints[name]
            place, client = access.known_endpoint(self._cluster, name), access.client_of(self._cluster)
            if not name or place is None:
                return None
            if client is None:
                raise StateError(
                    f"this host has lost its key for cluster {self._cluster}; run 'heron cluster access' again"
                )
            try:
                token = self._reach(name, place.token(client))
            except ClusterError as error:
                raise EndpointAwayError(str(error)) from None
            self._endpoints[name] = EndpointStateManager.of(token, _CREDENTIAL, self._settings)
            return self._endpoints[name]
