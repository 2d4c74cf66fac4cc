"""Seeds of randomised tests: a few in every test run, all before a release."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(quick: int, count: int) -> list[Any]:
    """Return the seeds below `count` as parameters; seeds from `quick` on are marked as heavy."""
    return [*range(quick), *(pytest.param(seed, marks=pytest.mark.heavy) for seed in range(quick, count))]
