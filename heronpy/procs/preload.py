"""What the fork server loads once, so that every process of a container shares it and starts at once.

A module that is not installed is left out. Nothing here may start a thread or open a socket when it is
imported.
"""

from __future__ import annotations

#: In order; the heavy libraries first, because our own modules need them anyway.
PRELOAD: tuple[str, ...] = (
    "asyncio",
    "concurrent.futures",
    "faulthandler",
    "pickle",
    "resource",
    "zmq",
    "google.protobuf.message",
    "msgspec",
    "numpy",
    "uvloop",
    "psutil",
    "cloudpickle",
    "heronpy.proto.control_pb2",
    "heronpy.proto.frame_pb2",
    "heronpy.common.logs",
    "heronpy.common.settings",
    "heronpy.statemgr.localfs",
    "heronpy.net.rpc",
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
