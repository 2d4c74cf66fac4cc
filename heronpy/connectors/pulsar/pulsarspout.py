"""A spout that reads a Pulsar topic.

All tasks share one failover subscription named after the topology. Under ATLEAST_ONCE a message is
acknowledged when its tuple is fully processed. It is negatively acknowledged when its tuple fails, so that Pulsar sends
it again. Under ATMOST_ONCE a message is acknowledged when its tuple is emitted. Under EFFECTIVELY_ONCE a message is
acknowledged when a checkpoint that covers its tuple is complete. The checkpoint lists the messages that are not
acknowledged yet. A restored task acknowledges these messages, and skips them if Pulsar sends them again. The spout
needs the package `pulsar-client`.

The spout never blocks in `receive`, because tuples emitted earlier would not be sent before the call returns. While the
client's queue is empty, the spout polls the queue after a millisecond and doubles the pause up to
PULSAR_RECEIVE_TIMEOUT_MS.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from heronpy.api import api_constants
from heronpy.api.spout.spout import Spout
from heronpy.api.state.two_phase import TwoPhaseStatefulComponent
from heronpy.api.stream import Stream
from heronpy.api.topology_context import TopologyContext
from heronpy.common.errors import FatalError
from heronpy.streamlet.context import OUTPUT_STREAM
from heronpy.streamlet.operators import OUTPUT_FIELD

#: First pause of a spout that has found no message, in seconds.
FIRST_PAUSE_S = 0.001
#: Key in a task's state for the messages of a checkpoint, as encoded by Pulsar.
STATE_KEY = "pulsar.messages"


class PulsarSpout(Spout, TwoPhaseStatefulComponent):
    """Emits one tuple for each message of a topic, on the stream that streamlets read.

    The deserializer turns a message's bytes into the list of values; by default, the only value is the message as text.
    Under EFFECTIVELY_ONCE, a message is emitted once if its topic has one partition or the spout has one task.
    Otherwise, after a restore, another task may get a message before this task has acknowledged that message.
    """

    serviceUrl = "PULSAR_SERVICE_URL"
    topicName = "PULSAR_TOPIC"
    receiveTimeoutMs = "PULSAR_RECEIVE_TIMEOUT_MS"
    deserializer = "PULSAR_MESSAGE_DESERIALIZER"

    outputs: list[str | Stream] = [Stream([OUTPUT_FIELD], OUTPUT_STREAM)]

    def default_deserializer(self, msg: bytes) -> list[Any]:
        """Return a list of one value: the message as text."""
        return [msg.decode("utf-8")]

    def init_state(self, state: Any) -> None:
        self._state = state
        #: Messages emitted since the last checkpoint, and the messages of each unfinished checkpoint, by its id.
        self._emitted: list[Any] = []
        self._open: dict[int, list[Any]] = {}

    def pre_save(self, checkpoint_id: str) -> None:
        """Save the messages to acknowledge once this checkpoint is complete."""
        self._open[int(checkpoint_id)] = self._emitted
        self._emitted = []
        self._state[STATE_KEY] = [message.serialize() for messages in self._open.values() for message in messages]

    def post_save(self, checkpoint_id: str) -> None:
        """Acknowledge the messages up to this checkpoint."""
        for number in [number for number in self._open if number <= int(checkpoint_id)]:
            for message_id in self._open.pop(number):
                self.consumer.acknowledge(message_id)

    def pre_restore(self, checkpoint_id: str) -> None:
        """Do nothing: `initialize`, which is called later, opens the connection."""

    def initialize(self, config: dict[str, Any], context: TopologyContext) -> None:
        """Subscribe to the topic."""
        for key in (PulsarSpout.serviceUrl, PulsarSpout.topicName):
            if key not in config:
                raise ValueError(f"spout {context.get_component_id()} needs {key} in its configuration")
        decode = config.get(PulsarSpout.deserializer, self.default_deserializer)
        if not callable(decode):
            raise TypeError(
                f"{PulsarSpout.deserializer} must be a function from bytes to a list of values, given: {decode!r}"
            )
        self._decode: Callable[[bytes], Any] = decode
        self._tracked = (
            config.get(api_constants.TOPOLOGY_RELIABILITY_MODE) == api_constants.TopologyReliabilityMode.ATLEAST_ONCE
        )
        mode = config.get(api_constants.TOPOLOGY_RELIABILITY_MODE)
        self._checkpointed = mode == api_constants.TopologyReliabilityMode.EFFECTIVELY_ONCE and context.attempt > 0
        timeout_ms = int(config.get(PulsarSpout.receiveTimeoutMs, 10))
        if timeout_ms < 0:
            raise ValueError(f"{PulsarSpout.receiveTimeoutMs} must be 0 or more, given: {timeout_ms}")
        self._longest_s = max(FIRST_PAUSE_S, timeout_ms / 1000)
        self._pause_s = FIRST_PAUSE_S
        self._pulsar = _client_library()
        url, topic = str(config[PulsarSpout.serviceUrl]), str(config[PulsarSpout.topicName])
        self.client = self._pulsar.Client(url)
        try:
            self.consumer = self.client.subscribe(
                topic, context.get_topology_name(), consumer_type=self._pulsar.ConsumerType.Failover
            )
        except Exception as error:
            self.client.close()
            raise FatalError(
                f"cannot subscribe to Pulsar topic {topic} at {url}: {error}; check the address and the topic"
            ) from error
        #: Messages of the restored checkpoint, which Pulsar may send again.
        self._known: set[bytes] = set(self._state.get(STATE_KEY) or ()) if self._checkpointed else set()
        for known in self._known:
            self.consumer.acknowledge(self._pulsar.MessageId.deserialize(known))
        self.logger.info("subscribed to Pulsar topic %s at %s", topic, url)

    def next_tuple(self) -> None:
        """Emit the next message, if one has arrived."""
        try:
            message = self.consumer.receive(timeout_millis=0)
        except self._pulsar.Timeout:
            self.wait(self._pause_s)
            self._pause_s = min(self._longest_s, 2 * self._pause_s)
            return
        self._pause_s = FIRST_PAUSE_S
        message_id = message.message_id()
        if self._known and message_id.serialize() in self._known:
            self.consumer.acknowledge(message_id)
            return
        values = self._decode(message.data())
        if self._tracked:
            self.emit(values, tup_id=message_id, stream=OUTPUT_STREAM)
        elif self._checkpointed:
            self.emit(values, stream=OUTPUT_STREAM)
            self._emitted.append(message_id)
        else:
            self.emit(values, stream=OUTPUT_STREAM)
            self.consumer.acknowledge(message_id)

    def ack(self, tup_id: Any) -> None:
        """Acknowledge the message, because its tuple is fully processed."""
        self.consumer.acknowledge(tup_id)

    def fail(self, tup_id: Any) -> None:
        """Negatively acknowledge the message, so that Pulsar sends it again."""
        self.consumer.negative_acknowledge(tup_id)

    def close(self) -> None:
        client = getattr(self, "client", None)
        if client is not None:
            client.close()


def _client_library() -> Any:
    try:
        return import_module("pulsar")
    except ImportError as error:
        raise FatalError(
            "Pulsar topics need the package pulsar-client; run "
            "`pip install pulsar-client` in the topology's environment"
        ) from error
