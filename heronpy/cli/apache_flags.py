"""Flags as Apache Heron's command took them: of JVMs and of its API server, and `true` or `false` behind a flag.

`translate` turns the words of a command into those of this command, so that scripts written for Apache's keep
running. Only Apache's verbs are touched, --service-url apart, which every verb takes; and nothing behind `--`,
where all words belong to the user's program.
"""

from __future__ import annotations

from collections.abc import Sequence

#: Flags with a value that have nothing to act on here, and why.
_VALUED = {
    "--topology-main-jvm-property": "no JVM runs the topology's main program",
    "--extra-launch-classpath": "no JVM launches the topology",
    "--release-yaml-file": "the release is that of the installed heronpy",
    "--service-url": "heron talks to the cluster directly, not to an API server",
}
#: The same for flags without a value.
_PLAIN = {"--verbose_gc": "no JVM collects garbage"}
_OF_SUBMIT = frozenset({*_VALUED, *_PLAIN})
_OF_OTHERS = frozenset({"--service-url"})
_VERBS = frozenset({"submit", "kill", "activate", "deactivate", "restart", "update", "version"})
#: Flags behind which Apache's command takes, or expects, a word that says whether they are set.
_SWITCHES = frozenset({"--dry-run", "--deploy-deactivated", "--verbose", "--verbose_gc"})
_WORDS = {"true": True, "false": False}


def translate(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words without what has no effect here, and a sentence for each flag that was left out."""
    verb = next((word for word in args if not word.startswith("-")), "")
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
            warnings += [_without_effect(flag, verb)] if is_set else []
            if flag in _VALUED and not equals and rest:
                rest.pop(0)
        elif is_set:
            found.append(word)
    return found, warnings


def _without_effect(flag: str, verb: str) -> str:
    hint = "; to hand it to the program, write -- before it" if verb == "submit" else ""
    return f"{flag} has no effect: {_VALUED.get(flag) or _PLAIN[flag]}{hint}"
