"""What to ask an engine for, from the requests of the containers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from heronpy.packing.requests import ResourceRequest
from heronpy.scheduler.placement_events import ContainerSpec


def with_standby(containers: Iterable[int], standbys: int) -> tuple[int, ...]:
    """The containers in which a standby topology master runs, of all containers."""
    return tuple(sorted(containers)[1 : 1 + standbys])


def container_specs(requests: Mapping[int, ResourceRequest], standbys: int) -> tuple[ContainerSpec, ...]:
    """What to ask an engine for; containers with a standby topology master and container 0 avoid each other's hosts."""
    numbers = sorted(requests)
    apart = with_standby(numbers, standbys)
    return tuple(
        ContainerSpec(
            number,
            requests[number].cpu,
            requests[number].ram_bytes,
            requests[number].disk_bytes,
            apart_from=apart if number == 0 else (0,) if number in apart else (),
        )
        for number in numbers
    )
