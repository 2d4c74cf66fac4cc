"""Finds the known name that was probably meant, for error messages. Pure."""

from __future__ import annotations

from collections.abc import Iterable

#: Number of the most similar names that are examined.
CANDIDATES = 5


def nearest(name: str, known: Iterable[str], least: float = 0.6) -> str | None:
    """Return the known name most similar to `name`, or None if no name is close.

    `least` is the minimum similarity from 0 to 1, as `difflib.SequenceMatcher.ratio` computes it. Equal leading parts
    of dotted names are ignored, so the remaining parts must be similar.
    """
    import difflib  # imported here, because every process imports this module, but few need difflib

    candidates = list(known)
    folded = {candidate.casefold(): candidate for candidate in reversed(candidates)}
    if name.casefold() in folded:
        return folded[name.casefold()]
    # difflib compares character by character: long names and long lists are cut to stay quick.
    wanted = name[:200].casefold()
    for found in difflib.get_close_matches(wanted, list(folded)[:2000], n=CANDIDATES, cutoff=least):
        rests = _without_common_parts(wanted, found)
        if not all(rests) or difflib.SequenceMatcher(None, *rests).ratio() >= least:
            return folded[found]
    return None


def _without_common_parts(one: str, other: str) -> tuple[str, str]:
    ones, others = one.split("."), other.split(".")
    shared = next((at for at, (a, b) in enumerate(zip(ones, others, strict=False)) if a != b), None)
    if shared is None:
        shared = min(len(ones), len(others))
    return ".".join(ones[shared:]), ".".join(others[shared:])


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` to follow an unknown name in a sentence; empty if no known name is close."""
    near = nearest(name, known)
    return f" (did you mean '{near}'?)" if near else ""


def suggestion(name: str, known: Iterable[str], otherwise: str = "", least: float = 0.6) -> str:
    """Return `; did you mean 'x'?` to end a sentence about an unknown name; `otherwise` if no known name is close."""
    near = nearest(name, known, least)
    return f"; did you mean '{near}'?" if near else otherwise
