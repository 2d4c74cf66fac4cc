"""Finds the programs of Prometheus, from Debian's package `prometheus`."""

from __future__ import annotations

import os
import shutil

import pytest


def prometheus_tool(name: str) -> str:
    """Return the path of a program; if it is missing, skip the test, or fail if HERON_TEST_PROMETHEUS=required."""
    found = shutil.which(name)
    if found is None and os.environ.get("HERON_TEST_PROMETHEUS") == "required":
        pytest.fail(f"{name} is not installed", pytrace=False)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found
