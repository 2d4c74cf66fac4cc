"""A connection through the API server to the pod that runs a cluster's schedulers, for hosts that cannot reach pods.

It does what `kubectl port-forward` does, with the PyPI package `kubernetes`: each connection to a local loopback port
is forwarded to a port of the pod. The data is encrypted and authenticated by the endpoint's own keys, so neither the
API server nor another user of this host can read it or send requests. The connection ends with the process.
"""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import suppress
from typing import Any, Final

from heronpy.engines.contract import EngineAwayError, EngineFatalError
from heronpy.engines.kubernetes.client import Api
from heronpy.engines.kubernetes.names import dns_of

log = logging.getLogger("heronpy.engines")

#: Maximum number of simultaneous connections: a command needs two, one for the state and one for requests.
CONNECTIONS_MAX: Final = 32
_PIECE_BYTES: Final = 64 << 10
#: Time limit for the package to close its side of a connection after this side has ended.
_END_S: Final = 5.0


def forwarded(api: Api, cluster: str, port: int) -> str:
    """An address `tcp://127.0.0.1:N`, forwarded to a port of the pod of `heron cluster manifest`; "" if there is
    no such pod.

    Raises EngineFatalError if permission is missing, and EngineAwayError for a temporary failure.
    """
    name = _pod_of(api, cluster)
    if not name:
        return ""
    _end(_open(api, name, port))  # raises the error while the caller can still report it
    listener = socket.create_server(("127.0.0.1", 0), backlog=CONNECTIONS_MAX)
    threading.Thread(
        target=_serve, args=(listener, api, name, port), name="port-forward", daemon=True
    ).start()  # fmt: skip
    return f"tcp://127.0.0.1:{listener.getsockname()[1]}"


def _pod_of(api: Api, cluster: str) -> str:
    found = api.call(
        "GET",
        f"/api/v1/namespaces/{api.namespace}/pods",
        {"labelSelector": f"app.kubernetes.io/name=heron-{dns_of(cluster)}", "limit": 50},
    )
    for pod in found.get("items") or ():
        if (pod.get("status") or {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp"):
            return str(pod["metadata"]["name"])
    return ""


def _open(api: Api, pod: str, port: int) -> Any:
    from kubernetes import client, stream

    # A separate client, because the package changes it while it connects.
    core = client.CoreV1Api(client.ApiClient(api.configuration))
    try:
        opened = stream.portforward(core.connect_get_namespaced_pod_portforward, pod, api.namespace, ports=str(port))
    except Exception as error:  # the package may raise any exception for a failed handshake
        said = " ".join(str(getattr(error, "reason", "") or error).split())[:200]
        if "403" in said:
            raise EngineFatalError(
                f"the API server refuses to forward a port of pod {pod}; its user needs the verbs get and create of"
                f" pods/portforward in namespace {api.namespace}"
            ) from None
        raise EngineAwayError(f"the API server does not forward port {port} of pod {pod}: {said}") from None
    return opened.socket(port)


def _serve(listener: socket.socket, api: Api, pod: str, port: int) -> None:
    slots = threading.BoundedSemaphore(CONNECTIONS_MAX)
    while True:
        near = listener.accept()[0]
        slots.acquire()
        threading.Thread(target=_pass_on, args=(near, api, pod, port, slots), name="forwarded", daemon=True).start()


def _pass_on(near: socket.socket, api: Api, pod: str, port: int, slots: threading.BoundedSemaphore) -> None:
    try:
        far = _open(api, pod, port)
    except (EngineAwayError, EngineFatalError) as error:
        log.debug("%s", error)  # the client connects again
        near.close()
        slots.release()
        return
    back = threading.Thread(target=_copy, args=(far, near), name="forwarded back", daemon=True)
    back.start()
    _copy(near, far)
    _say_end(far)
    back.join(_END_S)
    _end(far)
    near.close()
    slots.release()


def _copy(source: Any, target: Any) -> None:
    """Copy data until either side closes its connection, then close the client's connection."""
    with suppress(OSError):
        while data := source.recv(_PIECE_BYTES):
            target.sendall(data)
    for one in (source, target):
        if isinstance(one, socket.socket):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def _say_end(far: Any) -> None:
    with suppress(OSError):
        far.shutdown(socket.SHUT_WR)


def _end(far: Any) -> None:
    """Close a connection to the pod once all data is sent, because a reset would end a thread of `kubernetes`."""
    _say_end(far)
    with suppress(OSError):
        far.settimeout(_END_S)
        while far.recv(_PIECE_BYTES):
            pass
    far.close()
