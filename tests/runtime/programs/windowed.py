"""A streamlet with a window, at least once."""

from __future__ import annotations

import argparse
import operator
from pathlib import Path

from heronpy.streamlet import Builder, Config, Runner, WindowConfig

ELEMENTS = 4000


class Appended:
    """Appends the sums to a file."""

    def __init__(self, path):
        self.path = path

    def __call__(self, pair):
        if pair[1]:
            with Path(self.path).open("a") as file:
                file.write(f"{pair[1]}\n")


def ones():
    for _ in range(ELEMENTS):
        yield 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--out")
    parser.add_argument("--window", type=float)
    parser.add_argument("--message-timeout", type=float)
    args = parser.parse_args()
    builder = Builder()
    ticks = WindowConfig.create_tumbling_window(args.window)
    ones_of = builder.new_source(ones).set_name("ones")
    ones_of.reduce_by_window(ticks, operator.add).set_name("sums").consume(Appended(args.out))
    config = Config()
    config.set_delivery_semantics(Config.ATLEAST_ONCE)
    if args.message_timeout:
        config.set_user_config("topology.message.timeout.secs", args.message_timeout)
    Runner().run(args.name, config, builder)


if __name__ == "__main__":
    main()
