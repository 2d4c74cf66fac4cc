"""Opens the state manager of a topology's processes: the configured one, or the scheduler's control endpoint.

On hosts that cannot reach the scheduler's files, the control endpoint is named by the launch file, not by a setting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from heronpy.statemgr import module_of as module_of_kind
from heronpy.statemgr import open_state

if TYPE_CHECKING:
    from heronpy.plan.launch import LaunchSpec
    from heronpy.statemgr.base import StateManager

#: Session timeout of a process that only reads, as a multiple of the setting, within the endpoint's limit.
_READER_TIMES: Final = 3
_READER_MAX_S: Final = 300.0


def open_state_of(launch: LaunchSpec, owns: bool = True) -> StateManager:
    """Open the state manager that a topology's launch file names.

    `owns` means that this process creates ephemerals or takes locks. A process that only reads sends fewer keep-alives
    to the scheduler's control endpoint, because it has no ephemerals or locks for which another process waits.
    """
    from msgspec.structs import replace

    from heronpy.common.setting_types import StatemgrSettings
    from heronpy.common.settings import settings_for

    settings = settings_for(launch, StatemgrSettings)
    if launch.state_type != "endpoint":
        return open_state(launch.state_type, launch.state_root, settings)
    from heronpy.net.endpoint_state import EndpointStateManager

    if not owns:
        settings = replace(settings, session_timeout_s=min(_READER_MAX_S, _READER_TIMES * settings.session_timeout_s))
    return EndpointStateManager(launch.state_root, settings)


def module_of(state_type: str) -> str:
    """The module that implements a kind of state manager. A fork server loads it once for its children."""
    return "heronpy.net.endpoint_state" if state_type == "endpoint" else module_of_kind(state_type)
