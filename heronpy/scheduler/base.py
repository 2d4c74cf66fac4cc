"""What a scheduler does, on whatever engine it places containers.

One scheduler process serves one topology. It answers KillTopology, RestartContainer and GetContainers
at the endpoint that it publishes as SchedulerLocation, follows the packing plan, and replaces containers
that die. Invariant: after `kill` has returned, no process of the topology is left.
"""

from __future__ import annotations

from typing import Protocol

from heronpy.proto import control_pb2 as control


class Scheduler(Protocol):
    """The commands, each answered when its effect is complete."""

    async def kill(self, grace_s: float) -> None:
        """Stop all containers and remove the topology's state; 0 takes the configured grace."""

    async def restart_container(self, container: int) -> list[str]:
        """Restart one container, or all with -1; returns the names of the executors."""

    def containers(self) -> list[control.ProcessRecord]:
        """The executors: where they are and why they ended last."""
