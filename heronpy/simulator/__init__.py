"""Unit tests of topologies: run a topology in this process, deterministically, and inspect the results."""

from __future__ import annotations

from heronpy.simulator.errors import SimulationError
from heronpy.simulator.simulator import RunResult, Simulator
from heronpy.simulator.tuples import Injection, SimulatedTuple

__all__ = ["Injection", "RunResult", "SimulatedTuple", "SimulationError", "Simulator"]
