"""A Slurm, and Kubernetes for the tests of its engine: a store of the tests' own, and by `make engines` the real control
plane.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.support import control_plane, slurm
from tests.support.kubernetes import kubernetes
from tests.support.kubernetes_client import Client
from tests.support.kubernetes_real import real_kubernetes
from tests.support.slurm import SlurmCluster


def needs_slurm() -> None:
    """Skip, or fail where HERON_TEST_SLURM says that it is required."""
    if why := slurm.missing():
        (pytest.fail if os.environ.get("HERON_TEST_SLURM") == "required" else pytest.skip)(why)


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    """Slurm's own daemons."""
    needs_slurm()
    with slurm.slurm_cluster() as found:
        yield found


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


@pytest.fixture(scope="session", params=[pytest.param("real", marks=_REAL)])
def make_real(plane: control_plane.ControlPlane) -> World:
    """For what Kubernetes itself decides."""
    return lambda *given, **named: real_kubernetes(plane, *given, **named)


@pytest.fixture(scope="session")
def make_fake() -> World:
    """For what can be done to a server of the tests' own alone, such as losing an answer."""
    return kubernetes


@pytest.fixture
def k8s(make_real: World, tmp_path: Path) -> Iterator[Client]:
    """`heron` on the real control plane; the topology fish is killed afterwards."""
    with make_real() as (cluster, kubelets):
        yield from client_of(cluster, kubelets, tmp_path)


def client_of(cluster: Any, kubelets: Any, folder: Path) -> Iterator[Client]:
    """What such a fixture yields."""
    found = Client(cluster, kubelets, folder)
    yield found
    if found.conf.exists():
        found.start("kill", "k8s", "fish").communicate(timeout=120)
