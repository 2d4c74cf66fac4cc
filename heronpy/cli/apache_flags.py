"""Handles Apache Heron's flags for JVMs and the API server, and its flags that accept `true` or `false`.

`translate` rewrites a command line of Apache Heron for this `heron`, so that existing scripts keep running.
It changes only the arguments of Apache's verbs, but removes --service-url from every verb. Everything after
`--` belongs to the user's program and is left unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

#: Flags with a value that have no effect here, and the reason.
_VALUED = {
    "--topology-main-jvm-property": "no JVM runs the topology's main program",
    "--extra-launch-classpath": "no JVM launches the topology",
    "--release-yaml-file": "the installed heronpy determines the release",
    "--service-url": "heron connects to the cluster directly, not through an API server",
}
#: Flags without a value that have no effect here, and the reason.
_PLAIN = {"--verbose_gc": "no JVM collects garbage"}
_OF_SUBMIT = frozenset({*_VALUED, *_PLAIN})
_OF_OTHERS = frozenset({"--service-url"})
_VERBS = frozenset({"submit", "kill", "activate", "deactivate", "restart", "update", "version"})
#: Flags after which Apache's command accepts or expects `true` or `false`.
_SWITCHES = frozenset({"--dry-run", "--deploy-deactivated", "--verbose", "--verbose_gc"})
_WORDS = {"true": True, "false": False}


def translate(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments without flags that have no effect here, and a sentence for each removed flag."""
    verb = _verb_of(args)
    switches = _SWITCHES if verb in _VERBS else frozenset()
    gone = _OF_SUBMIT if verb == "submit" else _OF_OTHERS
    found: list[str] = []
    warnings: list[str] = []
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*found, word, *rest], warnings
        flag, equals, value = word.partition("=")
        is_set = True
        if flag in switches:
            if equals and value.lower() in _WORDS:
                word, is_set = flag, _WORDS[value.lower()]
            elif not equals and rest and rest[0].lower() in _WORDS:
                is_set = _WORDS[rest.pop(0).lower()]
        if flag in gone:
            hint = "; to pass it to the program, write -- before it" if verb == "submit" else ""
            why = _VALUED.get(flag) or _PLAIN[flag]
            warnings += [f"{flag} has no effect: {why}{hint}"] if is_set else []
            if flag in _VALUED and not equals and rest:
                rest.pop(0)
        elif is_set:
            found.append(word)
    return found, warnings


def _verb_of(args: Sequence[str]) -> str:
    """Return the first word that is neither a flag nor a flag's value; "" if there is none."""
    words = iter(args)
    for word in words:
        if word in _VALUED:
            next(words, None)
        elif not word.startswith("-"):
            return word
    return ""
