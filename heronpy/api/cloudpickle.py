"""Re-exports cloudpickle under the module name of older heronpy releases."""

from __future__ import annotations

from cloudpickle import *  # noqa: F403
from cloudpickle import CloudPickler, Pickler, dump, dumps, load, loads

__all__ = ["CloudPickler", "Pickler", "dump", "dumps", "load", "loads"]
