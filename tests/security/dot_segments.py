"""Every way to write a path that leads out of a folder: encodings, separators and places, combined."""

from __future__ import annotations

from itertools import product
from typing import Final

#: A dot, and what separates names, as attackers write them.
_DOTS: Final = (
    "..", "%2e%2e", "%2E%2e", ".%2e", "%2e.", "%252e%252e", "%25252e%25252e", "%c0%ae%c0%ae", "%e0%80%ae%e0%80%ae",
    "%c0%2e%c0%2e", "%u002e%u002e", "&#46;&#46;", "..%00", "%00..", "..;", "..%20", "...", "....", "\uff0e\uff0e",
    "\u2024\u2024", "%ef%bc%8e%ef%bc%8e", "x/..", "./..", "..%09", "..%0d%0a",
)  # fmt: skip
_SEPARATORS: Final = (
    "/", "%2f", "%2F", "%252f", "%25252f", "\\", "%5c", "%255c", "%c0%af", "%e0%80%af", "%c1%9c", "//", "/./", "%2f%2e%2f",
    "%u2215", "\u2215", "\u2044", "%ef%bc%8f", ";/", "%00/", "%0a/",
)  # fmt: skip
#: The wanted files exist; one is a secret of the test next to the folder of logs.
TARGETS: Final = ("launch.json", "canary.txt", "etc/passwd")
_DEPTHS: Final = (1, 2, 8)
#: No dots at all.
_ABSOLUTE: Final = (
    "/etc/passwd", "//etc/passwd", "%2fetc%2fpasswd", "%252fetc%252fpasswd", "\\etc\\passwd", "%5cetc%5cpasswd",
    "file:///etc/passwd", "file:%2f%2f%2fetc%2fpasswd", "~/canary.txt", "~root/.bashrc", "C:\\windows\\win.ini",
    "\\\\host\\share", "/proc/self/environ", "%2fproc%2fself%2fenviron", "/proc/self/root/etc/passwd", "/dev/zero",
    "%00", "%00/etc/passwd", "canary.txt%00.log", "canary.txt%00", "canary.txt%0a", ".", "..", "%2e", "%2e%2e", "",
    "*", "[a-z]*", "{launch,canary}.json", "$(cat canary.txt)", "`id`", "|id", "a" * 300, "../" * 300 + "etc/passwd",
    "%2e%2e%2f" * 200 + "etc%2fpasswd", "." * 4000, "CON", "nul", "aux.log", "canary.txt::$DATA", "%ff%fe", "\ufeff..",
)  # fmt: skip


def encodings() -> list[str]:
    """At least 200, each once, always the same."""
    found = dict.fromkeys(_ABSOLUTE)
    for number, (dots, separator) in enumerate(product(_DOTS, _SEPARATORS)):
        depth, target = _DEPTHS[number % len(_DEPTHS)], TARGETS[number % len(TARGETS)]
        found[separator.join([*[dots] * depth, *target.split("/")])] = None
    return list(found)
