"""Resource compliant round robin: like round robin, but opens another container where limits require it. Pure.

Never exceeds a limit; the configured number of containers is only the initial one.
"""

from __future__ import annotations

from typing import ClassVar

from heronpy.packing.round_robin import RoundRobin


class ResourceCompliantRoundRobin(RoundRobin):
    """Round robin that adds containers rather than overfilling one."""

    name: ClassVar[str] = "resource_compliant_round_robin"
    fixed_containers: ClassVar[bool] = False
    fix: ClassVar[str] = "raise the limit of a container or make the instance smaller"
