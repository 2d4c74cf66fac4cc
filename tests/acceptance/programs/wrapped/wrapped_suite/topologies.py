"""The topologies of the suite, and what each must give."""

from __future__ import annotations

from plain_parts.parts import DistinctWords, Double, Identity, Letters, Sum

from heronpy.api.stream import Grouping
from heronpy.connectors.mock.arraylooper import ArrayLooper
from heronpy.streamlet.builder import Builder
from heronpy.streamlet.config import Config
from wrapped_suite.builder import WrappingBuilder, WrappingRunner


def simple(spouts, bolts, grouping):
    """Letters of some spouts to identities; numbers are parallelisms."""

    def make(name, result):
        builder = WrappingBuilder(name, result)
        sources = [builder.add_spout(f"letters-{n}", Letters, par) for n, par in enumerate(spouts)]
        for n, par in enumerate(bolts):
            builder.add_bolt(f"identity-{n}", Identity, inputs={source: grouping for source in sources}, par=par)
        return builder.create_topology()

    return make


def double_emit(name, result):
    builder = WrappingBuilder(name, result)
    letters = builder.add_spout("letters", Letters, 1)
    builder.add_bolt("double", Double, inputs={letters: Grouping.SHUFFLE}, par=1, optional_outputs=["word"])
    return builder.create_topology()


def fields_grouping(name, result):
    builder = WrappingBuilder(name, result)
    letters = builder.add_spout("letters", Letters, 1, executions=40)
    counts = builder.add_bolt("distinct", DistinctWords, inputs={letters: Grouping.fields("word")}, par=2)
    builder.add_bolt("sum", Sum, inputs={counts: Grouping.NONE}, par=1)
    return builder.create_topology()


def streamlet(name, result):
    builder = Builder()
    streams = [
        builder.new_source(ArrayLooper(lines, sleep=0.01)).flat_map(lambda line: line.split()).map(lambda w: (w, 1))
        for lines in (["a little lamb", "on a wall"], ["round the bush"])
    ]
    streams[0].union(streams[1])
    config = Config()
    config.set_delivery_semantics(Config.ATLEAST_ONCE)
    return WrappingRunner().run(name, config, builder, result)


TOPOLOGIES = {
    "AllGrouping": simple([1], [3], Grouping.ALL),
    "NoneGrouping": simple([1], [3], Grouping.NONE),
    "OneSpoutBoltMultiTasks": simple([3], [3], Grouping.SHUFFLE),
    "ShuffleGrouping": simple([1], [3], Grouping.SHUFFLE),
    "OneSpoutTwoBolts": simple([1], [1, 1], Grouping.SHUFFLE),
    "MultiSpoutsMultiTasks": simple([3, 3], [1], Grouping.SHUFFLE),
    "GlobalGrouping": simple([1], [3], Grouping.GLOBAL),
    "BoltDoubleEmit": double_emit,
    "FieldsGrouping": fields_grouping,
    "Streamlet": streamlet,
}
