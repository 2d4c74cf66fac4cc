"""The modules that the fork server loads once, so that every process of a container shares them and starts quickly.

A module that is not installed is skipped. A preloaded module must not start a thread or open a socket on import.
"""

from __future__ import annotations

#: Modules that the local scheduler also needs; it loads them once, before it starts its fork server.
SHARED: tuple[str, ...] = (
    "asyncio",
    "zmq",
    "google.protobuf.message",
    "msgspec",
    "uvloop",
    "heronpy.common.logs",
    "heronpy.common.settings",
    "heronpy.net.rpc_loop",
    "heronpy.net.state",
    "heronpy.procs.host",
    "heronpy.procs.loop",
    "heronpy.procs.plan_watch",
    "heronpy.procs.supervisor",
    "heronpy.statemgr.localfs",
    "heronpy.statemgr.watcher",
    "heronpy.storage.stores",
)

#: The modules for the containers on one machine, in the order of loading: large libraries first, because heronpy's own
#: modules need them anyway.
PRELOAD: tuple[str, ...] = (
    *SHARED,
    "concurrent.futures",
    "faulthandler",
    "pickle",
    "resource",
    "numpy",
    "psutil",
    "cloudpickle",
    "heronpy.proto.frame_pb2",
    "heronpy.executor.__main__",
    "heronpy.executor.shell",
    "heronpy.tmaster.__main__",
    "heronpy.api.topology",
    "heronpy.api.user_code",
    "heronpy.api.bolt.base_bolt",
    "heronpy.api.spout.base_spout",
    "stmgr.__main__",
    "instance.__main__",
)

_MASTERS, _TASKS = frozenset({"heronpy.tmaster.__main__"}), frozenset({"stmgr.__main__", "instance.__main__"})


def preload_of(container: int) -> tuple[str, ...]:
    """The modules that one container's fork server loads, without modules for processes of other containers.

    A standby topology master, which may run in any container, loads its modules itself.
    """
    others = _MASTERS if container else _TASKS
    return tuple(module for module in PRELOAD if module not in others)
