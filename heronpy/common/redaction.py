"""Removes secrets from data that is shown or packed for other people. Pure.

A value is secret if its name suggests it (password, token, key, ...). In text, these parts are secret, too: the word
after such a name, the user and password in an address, and words that look like well-known kinds of keys. This filter
is a last resort: it cannot detect a secret that looks like an ordinary word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

HIDDEN: Final = "***"

_WORD = (
    r"(?:pass(?:word|wd|phrase)?(?![a-z])|pwd|secret|token|credential|private|auth(?:orization|entication)?(?![a-z])"
    r"|api[-_.]?key|access[-_.]?key|cookie)"
)
_NAME = re.compile(rf"{_WORD}|(?:^|[-_.])(?:key|keys|curve|tls|cert)(?:$|[-_.])", re.IGNORECASE)
#: Names of settings that look secret but whose values are not.
_HARMLESS = re.compile(
    r"(?:^|[-_.])(?:key_groups|keys_max|key_bytes|memo_keys|path|file|folder|dir|timeout\w*|enabled)$", re.IGNORECASE
)
#: The value after a name: a quoted text, or a word.
_VALUE = r"(?:bearer\s+|basic\s+)?(?:\"[^\"]*\"|'[^']*'|[^\s,;&}\])]+)"
# Repetitions are bounded, so that the time is linear in the length of a line.
_IN_TEXT: Final = (
    (re.compile(rf"([\w.-]{{0,64}}{_WORD}[\w.-]{{0,64}}[\"']?\s{{0,4}}[=:]\s{{0,4}}){_VALUE}", re.I), rf"\1{HIDDEN}"),
    (re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}", re.I), rf"\1 {HIDDEN}"),
    # user:password@host in an address
    (re.compile(r"\b(\w[\w+.-]{0,31}://)[^\s/@:]{0,256}:[^\s/@]{0,256}@"), rf"\1{HIDDEN}@"),
    (
        re.compile(r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,32}PRIVATE KEY-----|\Z)", re.S),
        HIDDEN,
    ),
    # Keys of AWS, GitHub, Slack, Google; JSON web tokens.
    (re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"), HIDDEN),
    (re.compile(r"\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bxox[abeoprs]-[\w-]{10,}|\bAIza[\w-]{35}"), HIDDEN),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), HIDDEN),
    # Long words with capital letters, small letters and digits, which may be keys or lines of keys.
    (re.compile(r"(?<![\w+/])(?=\S{0,99}[a-z])(?=\S{0,99}[A-Z])(?=\S{0,99}\d)[A-Za-z0-9+/=]{36,}"), HIDDEN),
    # secret://name is a reference: its name is not secret, but hiding it does no harm.
    (re.compile(r"\bsecret://[^\s\"']+"), HIDDEN),
)


def is_secret_name(name: str) -> bool:
    """Whether the value of a setting with this name must not be shown."""
    return bool(_NAME.search(name)) and not _HARMLESS.search(name)


def redacted_text(text: str) -> str:
    for pattern, instead in _IN_TEXT:
        text = pattern.sub(instead, text)
    return text


def redacted(value: object, name: str = "") -> object:
    """Replace the secrets in a JSON value: values under secret names, and secrets within texts."""
    if isinstance(value, bool | None):
        return value
    if isinstance(value, Mapping):
        return {str(key): redacted(item, name if is_secret_name(name) else str(key)) for key, item in value.items()}
    if is_secret_name(name):
        return HIDDEN
    if isinstance(value, str):
        return redacted_text(value)
    if isinstance(value, Sequence):
        return [redacted(item) for item in value]
    return value


def redacted_texts(value: object) -> object:
    """Replace secrets within the texts of a JSON value whose names come from the runtime and are not secret."""
    if isinstance(value, str):
        return redacted_text(value)
    if isinstance(value, Mapping):
        return {str(key): redacted_texts(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [redacted_texts(item) for item in value]
    return value
