"""One slow step of four in PyFlink: Flink's own source, a Python map that stamps tuples, rebalance, and four steps.

Each step is a task. Arguments: seconds, the prefix of the result files, process or thread, Flink options as key=value.
"""

import os
import sys
import sysconfig
import time
from glob import glob

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from pyflink.common import Configuration, Types
from pyflink.common.watermark_strategy import WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.functions import FlatMapFunction, MapFunction
from serving import PAYLOAD, STEPS, Emits, Step


class Stamp(MapFunction):
    def __init__(self, *made):
        self.made = made

    def open(self, context):
        self.emits = Emits(*self.made)

    def map(self, number):
        return self.emits.note(), PAYLOAD


class Serve(FlatMapFunction):
    def __init__(self, *made):
        self.made = made

    def open(self, context):
        # In thread mode a task has no number, so the task that creates this file is slow.
        try:
            os.close(os.open(f"{self.made[1]}.slow", os.O_CREAT | os.O_EXCL))
            slow = True
        except FileExistsError:
            slow = False
        self.step = Step(*self.made, id(self), slow)

    def flat_map(self, item):
        self.step.serve(item[0])
        return []


def main():
    seconds, prefix, mode, *options = sys.argv[1:]
    # The interpreter that thread mode embeds into the JVM does not use the virtual environment by itself.
    folder = os.path.dirname(os.path.abspath(__file__))
    os.environ["PYTHONPATH"] = os.pathsep.join([sysconfig.get_paths()["purelib"], folder])
    config = Configuration()
    config.set_string("python.execution-mode", mode)
    config.set_string("python.executable", sys.executable)
    config.set_string("python.client.executable", sys.executable)
    config.set_string("rest.port", "0")
    for option in options:
        config.set_string(*option.split("=", 1))
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(1)
    numbers = env.from_source(
        NumberSequenceSource(0, 1 << 62), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()
    )
    stamped = numbers.map(Stamp(float(seconds), prefix), Types.TUPLE([Types.LONG(), Types.STRING()]))
    served = stamped.rebalance().flat_map(Serve(float(seconds), prefix), Types.STRING())
    served.set_parallelism(STEPS).print()
    job = env.execute_async("slow")
    ended = job.get_job_execution_result()
    # The source never ends, so the job is cancelled when source and steps have written their results.
    while len(glob(f"{prefix}.*.json")) < STEPS + 1:
        if ended.done():
            ended.result()
        time.sleep(0.5)
    job.cancel().result()


if __name__ == "__main__":
    main()
