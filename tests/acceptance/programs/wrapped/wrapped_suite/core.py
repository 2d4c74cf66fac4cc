"""The wrappers: they load the user's class out of the package's archive and count what must arrive."""

from __future__ import annotations

import json
import os
from abc import abstractmethod

from pexload import load_class

from heronpy.api.bolt.bolt import Bolt
from heronpy.api.component.component_spec import HeronComponentSpec
from heronpy.api.spout.spout import Spout
from heronpy.api.stream import Stream

CONTROL = "__suite_control"
CONTROL_FIELD = "__suite_end"
USER_CLASS = "suite.user.class"
EXECUTIONS = "suite.executions"
RESULT = "suite.result"
MADE_UP_ID = "__suite_id"


def _spec(cls, name, is_spout, par, inputs, config, user_class, user_outputs):
    outputs = [Stream(fields=[CONTROL_FIELD], name=CONTROL), *user_outputs]
    path = f"{cls.__module__}.{cls.__name__}"
    return HeronComponentSpec(
        name,
        path,
        is_spout=is_spout,
        par=par,
        inputs=inputs,
        outputs=outputs,
        config={**config, USER_CLASS: user_class},
    )


class BatchBolt(Bolt):
    """A bolt that emits when all its input has come."""

    @abstractmethod
    def finish_batch(self):
        """Emit the result."""


class WrappedSpout(Spout):
    """Calls the user's spout a number of times; says that this was all when every tuple is acked."""

    @classmethod
    def spec(cls, name, par, config, user_class, user_outputs):
        return _spec(cls, name, True, par, None, config, user_class, user_outputs)

    def initialize(self, config, context):
        self.left = config.get(EXECUTIONS, 10)
        assert isinstance(self.left, int), self.left
        self.open_tuples = 0
        self.user = load_class(context.get_topology_pex_path(), config[USER_CLASS])(delegate=self)
        self.user.initialize(config, context)

    def next_tuple(self):
        if self.left == 0:
            return
        self.left -= 1
        self.user.next_tuple()
        self._end_if_done()

    def emit(self, tup, tup_id=None, stream=Stream.DEFAULT_STREAM_ID, direct_task=None, need_task_ids=None):
        self.open_tuples += 1
        super().emit(tup, MADE_UP_ID if tup_id is None else tup_id, stream, direct_task, need_task_ids)

    def ack(self, tup_id):
        self.open_tuples -= 1
        if tup_id != MADE_UP_ID:
            self.user.ack(tup_id)
        self._end_if_done()

    def fail(self, tup_id):
        raise RuntimeError(f"tuple {tup_id} failed")

    def _end_if_done(self):
        if self.left == 0 and self.open_tuples == 0:
            super().emit([CONTROL_FIELD], stream=CONTROL)


class WrappedBolt(Bolt):
    """Hands tuples to the user's bolt until every task upstream has said that it has ended."""

    @classmethod
    def spec(cls, name, par, inputs, config, user_class, user_outputs):
        return _spec(cls, name, False, par, inputs, config, user_class, user_outputs)

    def initialize(self, config, context):
        self.user = load_class(context.get_topology_pex_path(), config[USER_CLASS])(delegate=self)
        upstream = {stream.component_name for stream in context.get_this_sources()}
        self.ends_missing = sum(len(context.get_component_tasks(name)) for name in upstream)
        self.received = self.done = 0
        self.user.initialize(config, context)

    def process(self, tup):
        self.received += 1
        if tup.stream != CONTROL:
            self.user.process(tup)
            self.ack(tup)
            return
        self.ends_missing -= 1
        if self.ends_missing == 0:
            if isinstance(self.user, BatchBolt):
                self.user.finish_batch()
            super().emit([CONTROL_FIELD], stream=CONTROL)

    def process_tick(self, tup):
        self.user.process_tick(tup)

    def emit(self, tup, stream=Stream.DEFAULT_STREAM_ID, anchors=None, direct_task=None, need_task_ids=False):
        super().emit(tup, stream, anchors, direct_task, need_task_ids)

    def ack(self, tup):
        if self.done < self.received:
            super().ack(tup)
            self.done += 1

    def fail(self, tup):
        if self.done < self.received:
            super().fail(tup)
            self.done += 1


class Collector(BatchBolt):
    """The last bolt: writes what arrived."""

    outputs: list[str] = []

    def initialize(self, config, context):
        self.path = config[RESULT]
        self.found = []

    def process(self, tup):
        self.found.append(tup.values[0])

    def finish_batch(self):
        with open(f"{self.path}.draft", "w", encoding="utf-8") as file:
            json.dump(self.found, file)
        os.replace(f"{self.path}.draft", self.path)
