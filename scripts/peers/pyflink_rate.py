"""Tuples at a rate in PyFlink's thread mode: a paced Python map behind Flink's own source, a keyed Python sink.

Flink collects records for BUFFER_MS before it sends them to another task; the default of 100 ms would dominate the
latency.
"""

import os
import sys
import sysconfig
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from pacing import Arrivals, Pace
from pyflink.common import Configuration, Types
from pyflink.common.watermark_strategy import WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.functions import KeyedProcessFunction, MapFunction

BUFFER_MS = 1
PAYLOAD = "x" * 100


class Paced(MapFunction):
    """Delays each number until it is due."""

    def __init__(self, rate, seconds, prefix):
        self.made = (rate, seconds)
        self.prefix = prefix
        self.pace = None

    def map(self, number):
        if self.pace is None:
            self.pace = Pace(*self.made)
        pace = self.pace
        due = pace.due_ns()
        if due > time.monotonic_ns():
            pace.wait()
        pace.sent += 1
        if pace.done():
            pace.write(self.prefix)
        return number, due, PAYLOAD


class Measure(KeyedProcessFunction):
    """Measures arrivals, and writes the result when the input has ended."""

    def __init__(self, prefix):
        self.prefix = prefix
        self.arrivals = None

    def process_element(self, item, ctx):
        if self.arrivals is None:
            self.arrivals = Arrivals()
            ctx.timer_service().register_event_time_timer((1 << 63) - 1)
        self.arrivals.take(item[0], item[1])

    def on_timer(self, timestamp, ctx):
        self.arrivals.write(self.prefix)
        return []


def main():
    rate, seconds, prefix = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    # The interpreter that thread mode embeds into the JVM does not use the virtual environment by itself.
    folder = os.path.dirname(os.path.abspath(__file__))
    os.environ["PYTHONPATH"] = os.pathsep.join([sysconfig.get_paths()["purelib"], folder])
    config = Configuration()
    config.set_string("python.execution-mode", "thread")
    config.set_string("python.executable", sys.executable)
    config.set_string("python.client.executable", sys.executable)
    config.set_string("rest.port", "0")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(1)
    env.set_buffer_timeout(BUFFER_MS)
    source = NumberSequenceSource(0, round(rate * seconds) - 1)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())
    item = Types.TUPLE([Types.LONG(), Types.LONG(), Types.STRING()])
    paced = numbers.map(Paced(rate, seconds, prefix), item)
    paced.key_by(lambda item: 0, Types.INT()).process(Measure(prefix), Types.STRING()).print()
    env.execute("rate")


if __name__ == "__main__":
    main()
