"""Objects in S3, Google Cloud Storage or Azure Blob Storage, accessed by the library obstore (extra `objects`).

Credentials, region and endpoint come from the environment variables that this library reads. They are not taken from
settings, and not shown in errors, which contain only the kind of failure and its code. Requests that fail because of
the network or an overloaded store are repeated with growing pauses until `patience_s` has passed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from heronpy.common.errors import ConfigError
from heronpy.storage.objects.port import Listing, MissingObjectError, ObjectsError, Trouble
from heronpy.storage.objects.url import Url

if TYPE_CHECKING:
    from obstore.store import ObjectStore

INSTALL: Final = "pip install 'heronpy[objects]'"
#: Seconds of silence after which a peer counts as lost; a whole request may take longer, for large objects.
READ_S: Final = 30.0
CONNECT_S: Final = 5.0
REQUEST_S: Final = 600.0
#: Longest pause between two attempts, in seconds.
PAUSE_S: Final = 5.0
#: Objects up to this size are sent in one request, and larger objects in parts of this size.
PART_BYTES: Final = 8 << 20
#: Number of parts of one object that are sent at the same time.
PARTS: Final = 4
#: Number of the library's threads in a process.
WORKERS: Final = "2"

#: Without this option, only https:// endpoints are used. The library also reads this variable, but not together with
#: explicit options.
_ALLOW_HTTP: Final = {"s3": "AWS_ALLOW_HTTP", "gs": "GOOGLE_ALLOW_HTTP", "az": "AZURE_ALLOW_HTTP"}

#: The environment variables that most users set, by scheme: credentials, and the address of another server.
CREDENTIALS: Final = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
ENDPOINTS: Final = {
    "s3": "AWS_ENDPOINT_URL and, for http://, AWS_ALLOW_HTTP=true",
    "gs": "the network",
    "az": "AZURE_STORAGE_ENDPOINT and, for http://, AZURE_ALLOW_HTTP=true",
}

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>([A-Za-z0-9]{1,64})</Code>")
#: Addresses of cloud services that give credentials to programs on their hosts; used only without other credentials.
_METADATA_SERVICES: Final = ("169.254.169.254", "metadata.google.internal", "169.254.170.2")
_OF_CREDENTIALS: Final = frozenset(
    (
        "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "TokenRefreshRequired",
        "AuthenticationFailed", "InvalidAuthenticationInfo",
    )
)  # fmt: skip


class RemoteObjects:
    """A `port.Objects` in an object store; keys are relative to `place`."""

    def __init__(self, place: Url, patience_s: float) -> None:
        self.name = str(place)
        self._start = f"{place.key}/" if place.key else ""
        self._store = open_client(place.scheme, place.bucket, patience_s, os.getpid())

    def put(self, key: str, data: bytes | bytearray | memoryview | Path) -> None:
        import obstore

        with self._trouble():
            obstore.put(self._store, self._start + key, data, chunk_size=PART_BYTES, max_concurrency=PARTS)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._trouble():
            try:
                obstore.put(self._store, self._start + key, data, mode="create", use_multipart=False)
                return True
            except (AlreadyExistsError, PreconditionError):
                pass
        # This process may have written the object: the first answer was lost, and the repetition refused.
        try:
            return self.get(key) == data
        except MissingObjectError:
            return False

    def get(self, key: str) -> bytes:
        import obstore

        with self._trouble(key):
            return obstore.get(self._store, self._start + key).bytes().to_bytes()

    def head(self, key: str) -> int | None:
        import obstore

        try:
            with self._trouble(key):
                return int(obstore.head(self._store, self._start + key)["size"])
        except MissingObjectError:
            return None

    def list(self, prefix: str = "", deep: bool = True) -> Listing:
        import obstore

        below, cut = (self._start + prefix).rstrip("/") or None, len(self._start)
        with self._trouble():
            if deep:
                pages = obstore.list(self._store, below)
                return Listing({item["path"][cut:]: item["size"] for page in pages for item in page})
            listed = obstore.list_with_delimiter(self._store, below)
            folders = tuple(sorted(path.rsplit("/", 1)[-1] for path in listed["common_prefixes"]))
            return Listing({item["path"][cut:]: item["size"] for item in listed["objects"]}, folders)

    def delete(self, keys: Iterable[str]) -> None:
        import obstore

        doomed = [self._start + key for key in keys]
        if not doomed:
            return
        with self._trouble(), contextlib.suppress(FileNotFoundError):
            obstore.delete(self._store, doomed)
            return
        # Some stores stop deleting when an object is absent.
        for key in doomed:
            with self._trouble(), contextlib.suppress(FileNotFoundError):
                obstore.delete(self._store, key)

    @contextlib.contextmanager
    def _trouble(self, key: str | None = None) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            text = str(error)
            code = _CODE.search(text)
            missing = isinstance(error, FileNotFoundError) and (
                code is None or code[1] in ("NoSuchKey", "BlobNotFound")
            )
            if missing and key is not None:
                raise MissingObjectError(self.name, key) from None
            # `from None`, because the library's text may contain a signed address.
            raise ObjectsError(self.name, _trouble_of(error, text, code[1] if code else ""), _detail(text)) from None


@functools.lru_cache(maxsize=16)
def open_client(scheme: str, bucket: str, patience_s: float, pid: int) -> ObjectStore:
    """Return the client of a bucket, which keeps connections open. A forked process gets a new client."""
    # By default the library starts a thread for each processor of the host, in every task.
    os.environ.setdefault("TOKIO_WORKER_THREADS", WORKERS)
    place = f"{scheme}://{bucket}"
    try:
        from obstore.exceptions import BaseError
        from obstore.store import AzureStore, GCSStore, S3Store
    except ImportError:
        raise ConfigError(f"{place} needs the library obstore; run: {INSTALL}") from None
    options: dict[str, Any] = {
        "client_options": {
            "allow_http": os.environ.get(_ALLOW_HTTP[scheme], "").lower() in ("true", "1", "yes", "on"),
            "connect_timeout": timedelta(seconds=min(CONNECT_S, max(patience_s, 1.0))),
            "read_timeout": timedelta(seconds=READ_S),
            "timeout": timedelta(seconds=REQUEST_S),
        },
        "retry_config": {
            # Only the time limits the attempts: the count is higher than the number of attempts that fit into that
            # time.
            "max_retries": 1 + int(patience_s * 10),
            "retry_timeout": timedelta(seconds=patience_s),
            "backoff": {
                "init_backoff": timedelta(seconds=0.1),
                "max_backoff": timedelta(seconds=PAUSE_S),
                "base": 2,
            },
        },
    }
    try:
        if scheme == "s3":
            return S3Store(bucket, **options)
        if scheme == "gs":
            return GCSStore(bucket, **options)
        return AzureStore(bucket, **options)
    except (BaseError, OSError, ValueError):
        # The library's message is not repeated, because it may contain secret values of environment variables.
        raise ConfigError(
            f"{place} cannot be opened with the settings in the environment; check {CREDENTIALS[scheme]}, or see"
            " docs/howto/object-stores.md for other variables"
        ) from None


def _trouble_of(error: Exception, text: str, code: str) -> Trouble:
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    status = _STATUS.search(text)
    number = int(status[1]) if status else 0
    if any(address in text for address in _METADATA_SERVICES):
        return Trouble.NO_CREDENTIALS
    if code in _OF_CREDENTIALS or isinstance(error, UnauthenticatedError):
        return Trouble.CREDENTIALS
    if isinstance(error, PermissionDeniedError) or number == 403:
        return Trouble.DENIED
    if number == 404:
        return Trouble.NO_BUCKET
    if number == 301:
        return Trouble.REGION
    if number in (408, 429, 503) or code == "SlowDown":
        return Trouble.BUSY
    return Trouble.OTHER if number else Trouble.AWAY


def _detail(text: str) -> str:
    """Return an answer's status and code, which contain no secrets."""
    status, code = _STATUS.search(text), _CODE.search(text)
    return " ".join(found[1] for found in (status, code) if found)
