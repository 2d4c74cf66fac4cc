"""Word count with the functional API: no classes, only functions over streamlets.

    heron submit local topologies/streamlet_word_count.py StreamletWordCount

Counts words in windows of ten seconds, or of `--window` seconds. Delivery is at-least-once:
a source keeps each element and replays it until it is fully processed.
"""

from __future__ import annotations

import argparse
import operator
import time
from collections.abc import Iterator

from heronpy.streamlet.builder import Builder
from heronpy.streamlet.config import Config
from heronpy.streamlet.runner import Runner
from heronpy.streamlet.windowconfig import WindowConfig

LINES = (
    "mary had a little lamb",
    "its fleece was white as snow",
    "and everywhere that mary went",
    "the lamb was sure to go",
)


def lines() -> Iterator[str]:
    """Yield ten lines a second, forever. A source may also be a function that returns one element per call."""
    while True:
        for line in LINES:
            time.sleep(0.1)
            yield line


def word_count(window_s: int = 10) -> Builder:
    """Return the computation lines -> words -> (word, 1) -> sum per word and window -> log."""
    builder = Builder()
    (
        builder.new_source(lines)
        .set_name("lines")
        .flat_map(str.split)
        .set_name("words")
        .map(lambda word: (word, 1))
        .set_name("pairs")
        # Pairs are routed by key, so one partition counts all occurrences of a word.
        .reduce_by_key_and_window(WindowConfig.create_tumbling_window(window_s), operator.add)
        .set_name("counts")
        .set_num_partitions(2)
        .log()
    )
    return builder


def at_least_once() -> Config:
    """Return a configuration with at-least-once delivery. Elements are pending until they have left their
    window, so the runner sets a message timeout longer than the windows, and allows enough pending elements."""
    config = Config()
    config.set_delivery_semantics(Config.ATLEAST_ONCE)
    return config


def main() -> None:
    """Describe the computation and submit it."""
    parser = argparse.ArgumentParser(description="Count words with streamlets.")
    parser.add_argument("name", nargs="?", default="StreamletWordCount", help="topology name")
    parser.add_argument("--window", type=int, default=10, help="length of a window in seconds")
    args = parser.parse_args()
    Runner().run(args.name, at_least_once(), word_count(args.window))


if __name__ == "__main__":
    main()
