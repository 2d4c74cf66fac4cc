"""Which settings may hold a secret (pure)."""

from __future__ import annotations

import re

HIDDEN = "***"
_NAME = re.compile(
    r"pass(word|wd|phrase)?$|secret|token|credential|api[._-]?key|access[._-]?key|private[._-]?key|signature|auth$"
    r"|cookie|dsn$|jwt|^key$",
    re.IGNORECASE,
)
#: Settings of heronpy whose names look like a secret and hold none.
_PLAIN = re.compile(r"^(heron|topology)\.[a-z.]*(_?key_groups|tokens?_per_s)$")
#: `scheme://user:password@host`
_USER = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)[^/@\s]*:[^/@\s]*@", re.IGNORECASE)


def is_secret(key: str) -> bool:
    """Whether the value of a key with this name may be a secret."""
    return not _PLAIN.match(key) and any(_NAME.search(part) for part in re.split(r"[.:/]", key))


def redacted(key: str, value: str) -> str:
    """The value, or `***` if it may be a secret; the user and password of an address are hidden in any value."""
    return HIDDEN if value and is_secret(key) else _USER.sub(rf"\g<scheme>{HIDDEN}@", value)
