"""Decides whether an attempt failed because of a disk or store rather than the user's function. Pure."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from heronpy.storage.objects.port import ObjectsError

_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE)
#: Texts of the same errors from the JVM or one of Spark's Python workers.
_TEXTS = ("No space left on device", "Disk quota exceeded", "Read-only file system", "Stale file handle")


def outage_of(error: BaseException) -> str | None:
    """Return the outage that made an attempt fail, in one line; None if the attempt counts as failed."""
    for one in _chain(error):
        if isinstance(one, ObjectsError):
            return str(one)
        if isinstance(one, OSError) and one.errno in _ERRNOS:
            return f"{one.filename}: {one.strerror}" if one.filename else str(one.strerror)
        text = text_of(one)
        for cause in _TEXTS:
            if cause in text:
                return f"Spark cannot write: {cause}"
    return None


def is_executor_lost(error: BaseException) -> bool:
    """Whether Spark aborted a job because executors ended, even if the function is the cause."""
    return any("ExecutorLostFailure" in text_of(one) for one in _chain(error))


def text_of(error: BaseException) -> str:
    """Return the text of an error; "" if the JVM has ended, because py4j requests the text from the JVM."""
    try:
        return str(error)
    except Exception:
        return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__
