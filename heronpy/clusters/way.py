"""How a command asks the processes of a topology that was submitted on another host: by the scheduler's door."""

from __future__ import annotations

from dataclasses import dataclass, field

from heronpy.net.curve import Keys
from heronpy.net.relaying import RelayClient, To


@dataclass(frozen=True, slots=True)
class Way:
    """A door that this host reaches."""

    address: str
    keys: Keys = field(repr=False)

    def client(self, to: To, peer: str) -> RelayClient:
        """A blocking client of one of the topology's processes."""
        return RelayClient(self.address, to, peer, self.keys)
