"""A host says what it cannot hold before it starts anything."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from heronpy.common import exit_codes
from heronpy.common.errors import ConfigError
from heronpy.proto import plan_pb2
from heronpy.scheduler import resources
from heronpy.statemgr import paths
from tests.support.topologies import deploy, packing_plan
from tests.support.waiting import wait_for

SCHEDULER = [sys.executable, "-m", "tests.support.fake_scheduler", "--launch"]


def test_a_plan_that_does_not_fit_is_refused_with_the_sum() -> None:
    plan = plan_pb2.PackingPlan()
    container = plan.containers.add(id=1)
    for task in range(1000):
        container.instances.add(component="x", task_id=task + 1)
    resources.check(plan, resources.Limits(None, None, None))
    for limits, said in (
        (resources.Limits(256, None, None), "may open 256 files"),
        (resources.Limits(None, 100, None), "only 100 threads"),
        (resources.Limits(None, None, 1 << 20), "only 1MB of memory"),
    ):
        with pytest.raises(ConfigError, match=said) as caught:
            resources.check(plan, limits)
        assert "1,000 tasks in 1 container need 1006 processes" in str(caught.value)
    assert resources.limits_of_host().fds != 0


def test_more_memory_than_there_is_cannot_be_asked_for() -> None:
    """What is assumed of a task that asks for nothing does not count."""
    plan = plan_pb2.PackingPlan()
    for number, asked in ((1, 3 << 30), (2, 6 << 30), (3, 0)):
        container = plan.containers.add(id=number, required=plan_pb2.Resource(cpu=99, ram_bytes=asked))
        container.instances.add(component="x", task_id=number)
    for total in (None, 9 << 30):
        resources.check_asked(plan, resources.Limits(None, None, 1, total))
    with pytest.raises(ConfigError) as caught:
        resources.check_asked(plan, resources.Limits(None, None, None, 8 << 30))
    assert str(caught.value).startswith(
        "3 containers request 9GB of memory (6GB for container 2 alone), but this host has 8GB; lower topology."
    )
    assert (resources.limits_of_host().ram_all_bytes or 0) > (1 << 28)


def test_only_a_submit_is_refused(home: Path) -> None:
    """What runs is started again after a crash, even where it would not be admitted any more."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        deployed = deploy(home, packing_plan({1: [("word", 1)]}), {"executor": {"metrics_port": port}})
        deployed.state.create(paths.submission("word-count"), b"", ephemeral=True)
        code = subprocess.run([*SCHEDULER, deployed.launch_file], timeout=30).returncode
        assert code == exit_codes.REFUSED
        last = deployed.log("scheduler").splitlines()[-1]
        assert last.endswith(
            f"port {port} of 127.0.0.1 for the metrics page of container 0 is taken;"
            " set heron.executor.metrics_port to free ports or to 0"
        )
        assert not deployed.starts("tmaster") and not deployed.state.exists(paths.scheduler("word-count"))
        deployed.state.delete(paths.submission("word-count"))
        process = subprocess.Popen([*SCHEDULER, deployed.launch_file], start_new_session=True)
        try:
            wait_for(lambda: deployed.starts("tmaster"), 30)
        finally:
            process.terminate()
            process.wait(10)
            deployed.clean_up()
