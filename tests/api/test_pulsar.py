"""PulsarSpout and its streamlet, with a client that stands in for Pulsar's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.api.source_fakes import Context, Delegate


class FakePulsar(SimpleNamespace):
    """The part of the client library that the spout uses."""

    class Timeout(Exception):
        pass

    def __init__(self, messages: list[bytes]) -> None:
        super().__init__(
            messages=list(enumerate(messages)),
            acked=[],
            nacked=[],
            closed=False,
            ConsumerType=SimpleNamespace(Failover="failover"),
        )

    def Client(self, url: str) -> Any:
        self.url = url
        return self

    def subscribe(self, *args: Any, **kwargs: Any) -> Any:
        self.subscription = (*args, kwargs["consumer_type"])
        return self

    def receive(self, timeout_millis: int) -> Any:
        assert timeout_millis == 0, "what was emitted before must not wait for the next message"
        if not self.messages:
            raise self.Timeout
        number, data = self.messages.pop(0)
        return SimpleNamespace(message_id=lambda: number, data=lambda: data)

    def acknowledge(self, message_id: int) -> None:
        self.acked.append(message_id)

    def negative_acknowledge(self, message_id: int) -> None:
        self.nacked.append(message_id)

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("mode", ["ATMOST_ONCE", "ATLEAST_ONCE"])
def test_pulsar_spout(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from heronpy.connectors.pulsar.pulsarspout import PulsarSpout

    fake = FakePulsar([b"x", b"y"])
    monkeypatch.setitem(__import__("sys").modules, "pulsar", fake)
    context = Context()
    context.get_topology_name = lambda: "top"  # type: ignore[attr-defined]
    made = PulsarSpout(Delegate())
    made.initialize(
        {"PULSAR_SERVICE_URL": "pulsar://h", "PULSAR_TOPIC": "t", "topology.reliability.mode": mode}, context
    )
    for _ in range(3):
        made.next_tuple()
    assert made.delegate.emitted == [["x"], ["y"]]
    assert fake.subscription == ("t", "top", "failover")
    if mode == "ATMOST_ONCE":
        assert fake.acked == [0, 1] and made.delegate.ids == [None, None]
    else:
        assert fake.acked == [] and made.delegate.ids == [0, 1]
        made.ack(0)
        made.fail(1)
        assert (fake.acked, fake.nacked) == ([0], [1])
    made.close()
    assert fake.closed


class Id:
    def __init__(self, number: int) -> None:
        self.number = number

    def serialize(self) -> bytes:
        return str(self.number).encode()

    @staticmethod
    def deserialize(data: bytes) -> Id:
        return Id(int(data))


class Topic(FakePulsar):
    """A topic that sends again, to the next consumer, what was not acknowledged."""

    MessageId = Id

    def subscribe(self, *args: Any, **kwargs: Any) -> Any:
        self.left = [(number, data) for number, data in self.messages if number not in self.acked]
        return super().subscribe(*args, **kwargs)

    def receive(self, timeout_millis: int) -> Any:
        if not self.left:
            raise self.Timeout
        number, data = self.left.pop(0)
        return SimpleNamespace(message_id=lambda: Id(number), data=lambda: data)

    def acknowledge(self, message_id: Any) -> None:
        self.acked.append(message_id.number)


def test_effectively_once_a_message_is_acknowledged_after_its_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    from heronpy.connectors.pulsar.pulsarspout import PulsarSpout

    topic = Topic([b"a", b"b", b"c", b"d"])
    monkeypatch.setitem(__import__("sys").modules, "pulsar", topic)
    config = {"PULSAR_SERVICE_URL": "x", "PULSAR_TOPIC": "t", "topology.reliability.mode": "EFFECTIVELY_ONCE"}

    def started(attempt: int, state: dict[str, Any], checkpoint: str) -> Any:
        context = Context()
        context.get_topology_name = lambda: "top"  # type: ignore[attr-defined]
        context.attempt = attempt  # type: ignore[attr-defined]
        spout = PulsarSpout(Delegate())
        spout.init_state(state)
        spout.pre_restore(checkpoint)
        spout.initialize(config, context)
        return spout

    state: dict[str, Any] = {}
    spout = started(1, state, "0")
    spout.next_tuple()
    spout.pre_save("1")
    spout.next_tuple()
    assert topic.acked == [], "the checkpoint is not complete"
    spout.post_save("1")
    assert topic.acked == [0]
    spout.pre_save("2")
    complete = dict(state)
    spout.next_tuple()
    # It is killed before it hears that checkpoint 2 is complete.
    again = started(2, complete, "2")
    for _ in range(4):
        again.next_tuple()
    assert spout.delegate.emitted == [["a"], ["b"], ["c"]] and again.delegate.emitted == [["c"], ["d"]]
    assert sorted(set(topic.acked)) == [0, 1]
    again.pre_save("3")
    again.pre_save("4")  # the third one was declined elsewhere
    again.post_save("4")
    assert sorted(set(topic.acked)) == [0, 1, 2, 3]


def test_an_empty_queue_is_looked_at_after_pauses_that_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    from heronpy.connectors.pulsar.pulsarspout import PulsarSpout

    fake = FakePulsar([b"x"])
    monkeypatch.setitem(__import__("sys").modules, "pulsar", fake)
    context, delegate = Context(), Delegate()
    context.get_topology_name = lambda: "top"  # type: ignore[attr-defined]
    made = PulsarSpout(delegate)
    config = {"PULSAR_SERVICE_URL": "pulsar://h", "PULSAR_TOPIC": "t", "PULSAR_RECEIVE_TIMEOUT_MS": 5}
    made.initialize(config, context)
    made.next_tuple()
    assert delegate.emitted == [["x"]] and not delegate.waits
    for _ in range(5):
        made.next_tuple()
    assert delegate.waits == [0.001, 0.002, 0.004, 0.005, 0.005]
    fake.messages.append((1, b"y"))
    made.next_tuple()
    made.next_tuple()
    assert delegate.waits[5:] == [0.001]
    with pytest.raises(ValueError, match="PULSAR_RECEIVE_TIMEOUT_MS must be 0 or more, given: -1"):
        PulsarSpout(Delegate()).initialize({**config, "PULSAR_RECEIVE_TIMEOUT_MS": -1}, context)


def test_pulsar_errors_and_streamlet(monkeypatch: pytest.MonkeyPatch) -> None:
    from heronpy.api.topology import TopologyBuilder
    from heronpy.connectors.pulsar.pulsarspout import PulsarSpout
    from heronpy.connectors.pulsar.pulsarstreamlet import PulsarStreamlet
    from heronpy.streamlet.builder import Builder

    made = PulsarSpout(Delegate())
    with pytest.raises(ValueError, match="PULSAR_TOPIC"):
        made.initialize({"PULSAR_SERVICE_URL": "x"}, Context())
    monkeypatch.setitem(__import__("sys").modules, "pulsar", None)
    with pytest.raises(Exception, match="pip install pulsar-client"):
        made.initialize({"PULSAR_SERVICE_URL": "x", "PULSAR_TOPIC": "t"}, Context())
    made.close()
    builder, topology = Builder(), TopologyBuilder("t")
    builder.add_source(PulsarStreamlet.pulsarStreamlet("pulsar://h", "a/b/c", parallelism=2)).log()
    builder.build(topology)
    proto = topology.build()
    assert proto.spouts[0].comp.name == "pulsarspout-c-1"
    with pytest.raises(RuntimeError, match="name of a topic"):
        PulsarStreamlet("x", None)  # type: ignore[arg-type]
