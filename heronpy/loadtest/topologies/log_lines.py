"""The same work as the pipeline of `log_units`, by tuples: TextFileSpout, a bolt that parses, FileSink.

heron submit local log_lines.py - --spec spec.json
"""

from __future__ import annotations

from typing import Any

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.stream import Grouping
from heronpy.connectors.files import FileSink
from heronpy.connectors.textfiles.textfilespout import TextFileSpout
from heronpy.loadtest.topologies.parts import builder, read_spec
from heronpy.loadtest.unit_lines import COLUMNS, click


class ParseBolt(Bolt):
    """A row per line."""

    outputs = list(COLUMNS)

    def process(self, tup: Any) -> None:
        user, ms = click(tup.values[0])
        self.emit([user, ms])


def main() -> None:
    """Describe the topology and submit it."""
    spec = read_spec(__doc__)
    p, made = spec["parameters"], builder(spec)
    lines = made.add_spout("lines", TextFileSpout, par=1, config={TextFileSpout.PATHS: p["logs"]})
    rows = made.add_bolt("rows", ParseBolt, par=1, inputs={lines: Grouping.SHUFFLE})
    made.add_spec(FileSink.spec("store", {rows: Grouping.SHUFFLE}, folder=p["table"], format="text"))
    made.build_and_submit()


if __name__ == "__main__":
    main()
