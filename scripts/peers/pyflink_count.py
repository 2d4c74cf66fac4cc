"""Word count in PyFlink, process or thread mode.

Numbers come from Flink's own source; Python turns each into its word, keys it by partition and counts
it in a plain dict per record, which is faster in PyFlink than its keyed state.
"""

import json
import os
import sys
import sysconfig
import zlib

from pyflink.common import Configuration, Types
from pyflink.common.watermark_strategy import WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.functions import KeyedProcessFunction, MapFunction

PARTITIONS = 2


class ToWord(MapFunction):
    def __init__(self, words):
        self.words = words

    def map(self, number):
        return self.words[number % len(self.words)]


class Partition:
    def __init__(self):
        self.memo = {}

    def __call__(self, word):
        found = self.memo.get(word)
        if found is None:
            found = self.memo[word] = zlib.crc32(word.encode()) % PARTITIONS
        return found


class Count(KeyedProcessFunction):
    """Counts words, and writes the counts when the input has ended."""

    def __init__(self, result_file):
        self.result_file = result_file
        self.counts = {}
        self.armed = set()

    def process_element(self, word, ctx):
        self.counts[word] = self.counts.get(word, 0) + 1
        if not self.armed:
            self.armed.add(ctx.get_current_key())
            ctx.timer_service().register_event_time_timer((1 << 63) - 1)

    def on_timer(self, timestamp, ctx):
        with open(f"{self.result_file}.part-{os.getpid()}-{id(self)}", "w") as file:
            json.dump(self.counts, file)
        return []


def main():
    words_file, passes, result_file, mode = sys.argv[1:5]
    # The interpreter that thread mode embeds into the JVM does not use the virtual environment by itself.
    os.environ["PYTHONPATH"] = sysconfig.get_paths()["purelib"]
    with open(words_file) as file:
        words = json.load(file)
    config = Configuration()
    config.set_string("python.execution-mode", mode)
    config.set_string("python.executable", sys.executable)
    config.set_string("python.client.executable", sys.executable)
    config.set_string("rest.port", "0")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(1)
    source = NumberSequenceSource(0, len(words) * int(passes) - 1)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())
    counted = (
        numbers.map(ToWord(words), Types.STRING())
        .key_by(Partition(), Types.INT())
        .process(Count(result_file), Types.STRING())
    )
    counted.set_parallelism(PARTITIONS)
    counted.print()
    env.execute("count")
    total = {}
    folder, name = os.path.split(result_file)
    for part in os.listdir(folder):
        if part.startswith(f"{name}.part-"):
            with open(os.path.join(folder, part)) as file:
                for word, count in json.load(file).items():
                    total[word] = total.get(word, 0) + count
    with open(result_file, "w") as file:
        json.dump({"counts": total}, file)


if __name__ == "__main__":
    main()
