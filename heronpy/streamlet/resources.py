"""The resources requested for a container of a streamlet topology."""

from __future__ import annotations

from heronpy.streamlet.errors import StreamletError

_MB = 1024 * 1024
_GB = 1024 * _MB


class Resources:
    """CPU cores and bytes of memory requested for each container; 0 means no request.

    The setters return this object. They raise StreamletError unless the value is above 0.
    """

    def __init__(self) -> None:
        self._cpu = 0.0
        self._ram = 0

    def __repr__(self) -> str:
        return f"Resource {{cpu: {self._cpu:f}, ram: {self._ram:d}}}"

    def set_cpu(self, cpu: float) -> Resources:
        """Request `cpu` cores."""
        self._cpu = float(_positive(cpu, "cpu"))
        return self

    def set_ram(self, ram: int) -> Resources:
        """Request `ram` bytes of memory."""
        self._ram = int(_positive(ram, "ram"))
        return self

    def set_ram_in_mb(self, ram: float) -> Resources:
        """Request `ram` mebibytes of memory."""
        return self.set_ram(int(_positive(ram, "ram") * _MB))

    def set_ram_in_gb(self, ram: float) -> Resources:
        """Request `ram` gibibytes of memory."""
        return self.set_ram(int(_positive(ram, "ram") * _GB))

    def get_cpu(self) -> float:
        """Return the requested cores, or 0."""
        return self._cpu

    def get_ram(self) -> int:
        """Return the requested bytes of memory, or 0."""
        return self._ram


def _positive(value: float, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise StreamletError(f"container {what} is {value!r}; give a number greater than zero")
    return value
