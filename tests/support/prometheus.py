"""The programs of Prometheus, which Debian's package `prometheus` has."""

from __future__ import annotations

import os
import shutil

import pytest


def prometheus_tool(name: str) -> str:
    """Path of `prometheus` or `promtool`; skips without it, or fails where HERON_TEST_PROMETHEUS=required."""
    found = shutil.which(name)
    if found is None and os.environ.get("HERON_TEST_PROMETHEUS") == "required":
        pytest.fail(f"{name} is not installed", pytrace=False)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found
