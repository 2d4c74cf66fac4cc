"""Gives a user's commands on another host access to a cluster's topologies, through the schedulers' control endpoints.

The folder `<HERON_HOME>/access/<cluster>` (mode 0700, files 0600) contains the key pair of the user's clients, which
the user's schedulers in this cluster admit, and for each topology a file with its endpoint's address and public key.
Schedulers write them; `heron cluster access` copies them to another host, where `.origin` names their source. A client
with this key has the rights of the user's commands, but not those of containers.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import zmq
from msgspec import Struct

from heronpy.common.errors import ConfigError
from heronpy.common.folders import replace_file
from heronpy.net import curve
from heronpy.net.access_place import KEY, ORIGIN, ORIGIN_MAX_BYTES, folder_of, has_key, origin_of
from heronpy.net.curve import Pair
from heronpy.net.join_token import TEXT_MAX_CHARS, JoinToken
from heronpy.net.private import make_private, read_private

#: The name of clients for an `Authenticator`.
USER: Final = "client"
_ENDPOINT: Final = ".endpoint.json"
#: Maximum number of topologies and bytes that are copied from another host.
TOPOLOGIES_MAX: Final = 10_000
BROUGHT_MAX_BYTES: Final = 16 << 20


class EndpointPlace(Struct, frozen=True):
    """The control endpoint of one topology's scheduler."""

    topology_id: str
    #: ZeroMQ endpoints, best first.
    addresses: tuple[str, ...]
    #: Public key of the server, in Z85.
    server: bytes

    def token(self, client: Pair) -> JoinToken:
        """The join token with which a client connects."""
        return JoinToken(self.topology_id, self.addresses, self.server, client)


def client_of(cluster: str) -> Pair | None:
    """The key pair of the user's clients; None if this host has none. Raises ConfigError if others can read it."""
    return curve.read_pair(folder_of(cluster), KEY) if has_key(cluster) else None


def make_client(cluster: str) -> Pair:
    """Like `client_of`, but creates a missing pair. Raises ConfigError if another user may own the folder."""
    folder = folder_of(cluster)
    make_private(folder)
    found = client_of(cluster)
    if found is not None:
        return found
    draft = folder / f".{KEY}.{os.getpid()}.new"
    replace_file(draft, curve.pair_text(Pair(*zmq.curve_keypair())))
    try:
        with suppress(FileExistsError):  # another scheduler was faster
            os.link(draft, folder / KEY)
    finally:
        draft.unlink(missing_ok=True)
    return curve.read_pair(folder, KEY)


def write_endpoint(cluster: str, topology: str, place: EndpointPlace) -> None:
    """Write the record of a topology's endpoint for the user's clients. Raises ConfigError or OSError on failure."""
    folder = folder_of(cluster)
    make_private(folder)
    replace_file(folder / f"{topology}{_ENDPOINT}", _text_of(place))


def forget_endpoint(cluster: str, topology: str, topology_id: str) -> None:
    """Remove the record of an ended topology; the record of a later topology with the same name is kept."""
    with suppress(ConfigError, OSError):
        place = known_endpoint(cluster, topology)
        if place is not None and place.topology_id == topology_id:
            (folder_of(cluster) / f"{topology}{_ENDPOINT}").unlink(missing_ok=True)


def known_endpoint(cluster: str, topology: str) -> EndpointPlace | None:
    """The address of a topology's control endpoint; None if this host has no record of it."""
    file = folder_of(cluster) / f"{topology}{_ENDPOINT}"
    if "/" in topology or not file.exists():
        return None
    place = _place_of(read_private(file, TEXT_MAX_CHARS))
    if place is None:
        fix = "the topology's scheduler writes a new one when it starts"
        if origin_of(cluster):
            fix = (
                f"run 'heron cluster access {cluster}' on host {origin_of(cluster)} and 'heron cluster access"
                f" {cluster} --install' here"
            )
        raise ConfigError(
            f"the file {file} with the control endpoint of topology '{topology}' is damaged; remove it, and {fix}"
        )
    return place


def topologies_of(cluster: str) -> list[str]:
    """Names of the topologies that have an endpoint record on this host."""
    folder = folder_of(cluster)
    names = os.listdir(folder) if folder.is_dir() else []
    return sorted(
        name.removesuffix(_ENDPOINT) for name in names if name.endswith(_ENDPOINT) and not name.startswith(".")
    )


# ---- from one host to another ---------------------------------------------------------------
def to_text(cluster: str, host: str) -> str:
    """All records, including the secret key, as one line of JSON; raises ConfigError if this host has no key."""
    client = client_of(cluster)
    if client is None:
        raise ConfigError(
            f"cluster {cluster} has no key for clients in {folder_of(cluster)}; submit a topology to it from"
            " this host first"
        )
    endpoints = {name: known_endpoint(cluster, name) for name in topologies_of(cluster)}
    content = {
        "cluster": cluster,
        "origin": host,
        "client": [client.public.decode(), client.secret.decode()],
        "endpoints": {name: json.loads(_text_of(place)) for name, place in endpoints.items() if place is not None},
    }
    return json.dumps(content)


def bring(cluster: str, text: str) -> int:
    """Replace this host's records with another host's, in the format of `to_text`; returns the number of topologies.

    Raises ConfigError, without quoting the text, if it is invalid or if this host created a cluster of that name.
    """
    try:
        found = json.loads(text)
        if found["cluster"] != cluster:
            raise ConfigError(
                f"this is the output for cluster {str(found['cluster'])[:80]!r}, not for {cluster!r}; use the same"
                " cluster name on both hosts"
            )
        public, secret = (str(key).encode() for key in found["client"])
        origin = str(found["origin"])
        endpoints: Mapping[str, Any] = found["endpoints"]
        if not origin or len(endpoints) > TOPOLOGIES_MAX or any(not _is_name(name) for name in endpoints):
            raise ValueError
        places = {name: _place_of(json.dumps(place).encode()) for name, place in endpoints.items()}
    except (ValueError, KeyError, TypeError, AttributeError, UnicodeError):
        raise ConfigError("this is not the output of 'heron cluster access' on another host") from None
    if not curve.is_pair(public, secret):
        raise ConfigError("this is not the output of 'heron cluster access' on another host: its key is damaged")
    if damaged := [name for name, place in places.items() if place is None]:
        raise ConfigError(
            "this is not the output of 'heron cluster access' on another host: the control endpoint of topology"
            f" '{damaged[0]}' is damaged; run both commands again"
        )
    folder = folder_of(cluster)
    if client_of(cluster) is not None and not origin_of(cluster):
        raise ConfigError(
            f"topologies are submitted to cluster {cluster} from this host, which has its own key in {folder}; rename"
            " the cluster on this host, or remove the folder"
        )
    draft = folder.with_name(f".{cluster}.{os.getpid()}")
    make_private(draft)
    try:
        replace_file(draft / KEY, curve.pair_text(Pair(public, secret)))
        replace_file(draft / ORIGIN, origin.encode()[:ORIGIN_MAX_BYTES])
        for name, place in places.items():
            assert place is not None
            replace_file(draft / f"{name}{_ENDPOINT}", _text_of(place))
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(draft, folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return len(places)


def _is_name(name: str) -> bool:
    return bool(name) and "/" not in name and not name.startswith(".") and name.isprintable() and len(name) < 200


def _text_of(place: EndpointPlace) -> bytes:
    content = {"topology_id": place.topology_id, "addresses": place.addresses, "server": place.server.decode()}
    return json.dumps(content).encode()


def _place_of(data: bytes) -> EndpointPlace | None:
    """Parse an access record; returns None if it has no endpoint."""
    try:
        found = json.loads(data)
        # A join token has the same rules, but the client's key is not a part of it.
        key = str(found["server"])
        token = JoinToken.from_text(json.dumps({**found, "client": [key, key]}), "")
    except (ValueError, KeyError, TypeError, ConfigError):
        return None
    return EndpointPlace(token.topology_id, token.addresses, token.server)
