"""The known name that was probably meant, for error messages."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], least: float = 0.6) -> str | None:
    """The known name most similar to `name`, or None if none is close.

    `least` is the least similarity that counts as close, from 0 to 1, as `difflib.SequenceMatcher.ratio` computes it.
    """
    import difflib  # every process imports this module, but few meet an error

    candidates = list(known)
    folded = {candidate.casefold(): candidate for candidate in reversed(candidates)}
    if name.casefold() in folded:
        return folded[name.casefold()]
    # difflib compares character by character: long names and long lists are cut to stay quick.
    found = difflib.get_close_matches(name[:200].casefold(), list(folded)[:2000], n=1, cutoff=least)
    return folded[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)`, to follow the unknown name in a sentence; empty when no known name is close."""
    near = nearest(name, known)
    return f" (did you mean '{near}'?)" if near else ""


def suggestion(name: str, known: Iterable[str], otherwise: str = "", least: float = 0.6) -> str:
    """`; did you mean 'x'?`, to end a sentence about an unknown name; `otherwise` when no known name is close."""
    near = nearest(name, known, least)
    return f"; did you mean '{near}'?" if near else otherwise
