"""Kubernetes for the tests of its engine: one of the tests' own, and by `make engines` the real control plane."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tests.support import control_plane
from tests.support.kubernetes import kubernetes
from tests.support.kubernetes_real import real_kubernetes

World = Callable[..., AbstractContextManager[tuple[Any, Any]]]
_REAL = [pytest.mark.engines, pytest.mark.timeout(400)]


@pytest.fixture(scope="session")
def plane() -> Iterator[control_plane.ControlPlane]:
    """The real control plane, which is one for all tests."""
    if why := control_plane.missing():
        pytest.skip(why)
    found = control_plane.ControlPlane()
    try:
        yield found
    finally:
        found.close()


@pytest.fixture(scope="session", params=["fake", pytest.param("real", marks=_REAL)])
def make_kubernetes(request: pytest.FixtureRequest) -> World:
    """Makes a cluster with nodes, whose kubelets run pods."""
    if request.param == "fake":
        return kubernetes
    real = request.getfixturevalue("plane")
    return lambda *given, **named: real_kubernetes(real, *given, **named)


@pytest.fixture(scope="session")
def make_fake() -> World:
    """For what can be done to a server of the tests' own alone, such as losing an answer."""
    return kubernetes
