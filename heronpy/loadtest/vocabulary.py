"""The words of the word counts: the same for every run, every process and every peer (pure)."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Sequence

SEED = 20_140_623
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
#: Words of a sentence.
SENTENCE = 10


def word_list(distinct: int, length: int, zipf: float = 0.0) -> list[str]:
    """`length` words out of `distinct` ones; with `zipf` word k is 1/k**zipf as frequent as the first."""
    chooser = random.Random(SEED)
    known: dict[str, None] = {}
    while len(known) < distinct:
        known["".join(chooser.choices(_LETTERS, k=chooser.randint(3, 10)))] = None
    words = list(known)
    if zipf:
        weights = list(itertools.accumulate(rank**-zipf for rank in range(1, distinct + 1)))
        # Interned through the list of known words, as if a program had read them.
        return chooser.choices(words, cum_weights=weights, k=length)
    repeated = (words * (length // distinct + 1))[:length]
    chooser.shuffle(repeated)
    return repeated


def sentences(words: Sequence[str]) -> list[str]:
    """The words in sentences; a shorter rest at the end is omitted."""
    whole = len(words) // SENTENCE * SENTENCE
    return [" ".join(words[at : at + SENTENCE]) for at in range(0, whole, SENTENCE)]


def expected_counts(words: Sequence[str], emitted: Iterable[int]) -> Counter[str]:
    """Counts of the words if each spout goes through the list from its start and emits this many."""
    once = Counter(words)
    total: Counter[str] = Counter()
    for number in emitted:
        full, rest = divmod(number, len(words))
        for word, times in once.items():
            total[word] += times * full
        total.update(words[:rest])
    return +total
