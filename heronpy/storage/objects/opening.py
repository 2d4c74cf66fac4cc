"""Opens a place for objects, and tests at submission whether it supports checkpoints."""

from __future__ import annotations

import os
from typing import Final

from heronpy.common.errors import ConfigError, HeronError
from heronpy.storage.objects.folder import FolderObjects
from heronpy.storage.objects.port import MissingObjectError, Objects, ObjectsError, Trouble
from heronpy.storage.objects.remote import CREDENTIALS, ENDPOINTS, RemoteObjects
from heronpy.storage.objects.url import Url, place_of

#: Seconds for which commands try to reach a store. Processes of a topology try until the checkpoint times out.
COMMAND_S: Final = 8.0
_PROBE: Final = ".heron-probe"

_FIXES: Final = {
    Trouble.AWAY: "check {endpoint} in the environment of this command",
    Trouble.NO_CREDENTIALS: "set {credentials} in the environment of this command",
    Trouble.CREDENTIALS: "check {credentials} in the environment of this command",
    Trouble.DENIED: "its objects must be readable, writable, listable and removable",
    Trouble.REGION: "set AWS_REGION to that region",
    Trouble.NO_BUCKET: "create it, or name another store",
}


def open_objects(place: Url, patience_s: float = COMMAND_S) -> Objects:
    """Open an object store without sending a request. Raises ConfigError if this host cannot open it.

    Later requests that fail because of the network or an overloaded store are repeated for `patience_s` seconds.
    """
    return RemoteObjects(place, patience_s)


def open_own(place: str, own: str, read_max_bytes: int, patience_s: float) -> Objects:
    """Open the objects below a folder or a URL. In a folder, all files below the prefix `own` must belong to this user.

    The objects are not synced to disk. Raises ConfigError if this host cannot open the place. See `FolderObjects`.
    """
    found = place_of(place)
    if isinstance(found, Url):
        return open_objects(found, patience_s)
    return FolderObjects(found, fsync=False, own=own, read_max_bytes=read_max_bytes)


def check_objects(objects: Objects, what: str) -> None:
    """Write, read, list and remove a test object. Raises ConfigError if the store is unreachable, refuses requests, is
    read-only or lacks put-if-absent. `what` names the store in the error.
    """
    key = f"{_PROBE}-{os.urandom(8).hex()}"
    mine, other = os.urandom(16), os.urandom(16)
    try:
        created = objects.put_if_absent(key, mine)
    except ObjectsError as error:
        raise ConfigError(f"{what} {objects.name} {_why_not(objects, error)}") from None
    try:
        again = objects.put_if_absent(key, other)
        if not created or again or objects.get(key) != mine:
            raise ConfigError(
                f"{what} {objects.name} has no put-if-absent: it replaced an object that must not change; use a store"
                " that honours If-None-Match, or a newer release of this store"
            )
        if key not in objects.list(deep=False).objects:
            raise ConfigError(f"{what} {objects.name} does not list an object that was just written; use another store")
    except MissingObjectError:
        raise ConfigError(
            f"{what} {objects.name} has lost an object that was just written; use another store"
        ) from None
    except ObjectsError as error:
        raise ConfigError(f"{what} {objects.name} {_sentence(error)}") from None
    finally:
        _remove(objects, key, what)


def _remove(objects: Objects, key: str, what: str) -> None:
    try:
        objects.delete([key])
    except ObjectsError as error:
        raise ConfigError(f"{what} {objects.name} has not removed an object: it {_sentence(error)}") from None


def _why_not(objects: Objects, error: ObjectsError) -> str:
    """Return the reason why the first write failed: the store is read-only, or refuses all requests."""
    if error.trouble is Trouble.DENIED:
        try:
            objects.list(deep=False)
        except HeronError:
            return _sentence(error)
        return "is read-only for these credentials: allow these credentials to write and remove objects"
    return _sentence(error)


def _sentence(error: ObjectsError) -> str:
    detail = f" ({error.detail})" if error.detail else ""
    scheme = error.store.split(":", 1)[0]
    words = {"endpoint": ENDPOINTS.get(scheme, "the network"), "credentials": CREDENTIALS.get(scheme, "those")}
    fix = _FIXES.get(error.trouble, "").format(**words)
    return f"{error.trouble.value}{detail}" + (f": {fix}" if fix else "")
