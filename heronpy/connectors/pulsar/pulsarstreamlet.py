"""A Pulsar topic as a source of the streamlet API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heronpy.api.topology import TopologyBuilder
from heronpy.connectors.pulsar.pulsarspout import PulsarSpout
from heronpy.streamlet.streamlet import Streamlet


class PulsarStreamlet(Streamlet[Any]):
    """The streamlet of a topic's messages; `input_schema` turns a message's bytes into a list of one element."""

    def __init__(
        self,
        service_url: str,
        topic_name: str,
        stage_name: str | None = None,
        parallelism: int | None = None,
        receive_timeout_ms: int | None = None,
        input_schema: Callable[[bytes], list[Any]] | None = None,
    ) -> None:
        super().__init__()
        if service_url is None:
            raise RuntimeError("a PulsarStreamlet needs the URL of a Pulsar service; pass service_url=")
        if topic_name is None:
            raise RuntimeError("a PulsarStreamlet needs the name of a topic; pass topic_name=")
        if stage_name is not None:
            self.set_name(stage_name)
        if parallelism is not None:
            self.set_num_partitions(parallelism)
        self._config: dict[str, Any] = {PulsarSpout.serviceUrl: service_url, PulsarSpout.topicName: topic_name}
        if receive_timeout_ms is not None:
            self._config[PulsarSpout.receiveTimeoutMs] = receive_timeout_ms
        if input_schema is not None:
            self._config[PulsarSpout.deserializer] = input_schema

    @staticmethod
    def pulsarStreamlet(
        service_url: str,
        topic_name: str,
        stage_name: str | None = None,
        parallelism: int | None = None,
        receive_timeout_ms: int | None = None,
        input_schema: Callable[[bytes], list[Any]] | None = None,
    ) -> PulsarStreamlet:
        """Create a PulsarStreamlet; the arguments are those of the constructor."""
        return PulsarStreamlet(service_url, topic_name, stage_name, parallelism, receive_timeout_ms, input_schema)

    def _build_this(self, builder: TopologyBuilder, stage_names: set[str]) -> bool:
        # A topic is a path such as persistent://tenant/namespace/topic.
        topic = str(self._config[PulsarSpout.topicName]).rsplit("/", 1)[-1]
        builder.add_spout(
            self._claim_name(f"pulsarspout-{topic}", stage_names),
            PulsarSpout,
            par=self.get_num_partitions(),
            config=self._config,
        )
        return True
