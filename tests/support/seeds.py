"""Seeds of tests that draw what happens: a few with every test, all before a release."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(quick: int, count: int) -> list[Any]:
    """The parameters 0 to `count`; those from `quick` on are heavy."""
    return [*range(quick), *(pytest.param(seed, marks=pytest.mark.heavy) for seed in range(quick, count))]
