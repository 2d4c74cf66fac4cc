"""The configuration of a streamlet topology: delivery semantics, containers, and the user's own keys."""

from __future__ import annotations

from typing import Any

from heronpy.api import api_constants
from heronpy.streamlet.errors import StreamletError
from heronpy.streamlet.resources import Resources


class Config:
    """The configuration of a streamlet topology, for `Runner.run`."""

    ATMOST_ONCE = 1
    ATLEAST_ONCE = 2
    EFFECTIVELY_ONCE = 3

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        if config is not None and not isinstance(config, dict):
            raise StreamletError(f"Config takes a dict, not {type(config).__name__}")
        # Copied, so that setting a key here does not change the caller's dict.
        self._api_config: dict[str, Any] = dict(config or {})

    def set_delivery_semantics(self, semantics: int) -> None:
        """Set the delivery semantics: `Config.ATMOST_ONCE`, `Config.ATLEAST_ONCE` or `Config.EFFECTIVELY_ONCE`."""
        modes = {
            Config.ATMOST_ONCE: api_constants.TopologyReliabilityMode.ATMOST_ONCE,
            Config.ATLEAST_ONCE: api_constants.TopologyReliabilityMode.ATLEAST_ONCE,
            Config.EFFECTIVELY_ONCE: api_constants.TopologyReliabilityMode.EFFECTIVELY_ONCE,
        }
        if semantics not in modes:
            raise StreamletError(
                f"unknown delivery semantics {semantics!r}; use Config.ATMOST_ONCE, "
                "Config.ATLEAST_ONCE or Config.EFFECTIVELY_ONCE"
            )
        self._api_config[api_constants.TOPOLOGY_RELIABILITY_MODE] = modes[semantics]

    def set_num_containers(self, ncontainers: int) -> None:
        """Set the number of containers in which the topology runs."""
        self._api_config[api_constants.TOPOLOGY_STMGRS] = int(ncontainers)

    def set_container_resources(self, resources: Resources) -> None:
        """Request these resources per container; resources that are not set are not requested."""
        if not isinstance(resources, Resources):
            raise StreamletError(f"container resources must be a Resources, not {type(resources).__name__}")
        cpu, ram = resources.get_cpu(), resources.get_ram()
        if cpu:
            self._api_config[api_constants.TOPOLOGY_CONTAINER_CPU_REQUESTED] = cpu
        if ram:
            self._api_config[api_constants.TOPOLOGY_CONTAINER_RAM_REQUESTED] = ram

    def set_user_config(self, key: str, value: Any) -> None:
        """Set any other key; tasks read it from `Context.get_config()`."""
        self._api_config[key] = value
