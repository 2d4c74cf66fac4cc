"""The request of a container: never nothing, whatever the topology asks for, and no disk that it does not ask for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.setting_types import PackingSettings
from heronpy.common.units import GB, MB
from heronpy.packing import pack
from heronpy.packing.demand import MASTER, ResourceRequest, asks, requests_of, room_text
from heronpy.proto import plan_pb2, topology_pb2
from tests.cli.conftest import word_count

SETTINGS = PackingSettings(instance_ram_bytes=100 * MB, instance_cpu=0.5, instance_disk_bytes=10 * MB)


def topology_with(**config: object) -> topology_pb2.Topology:
    topology = word_count()
    for key, value in config.items():
        topology.topology_config.kvs.add(key=f"topology.{key.replace('_', '.')}", value=str(value))
    return topology


def requests(topology: topology_pb2.Topology, spark: int = 0) -> dict[int, ResourceRequest]:
    plan: plan_pb2.PackingPlan = pack(topology, SETTINGS)
    return requests_of(plan, topology, SETTINGS, spark)


def test_without_sizes_the_settings_hold() -> None:
    topology = word_count()
    found = requests(topology)
    assert found == {0: MASTER, 1: ResourceRequest(pytest.approx(1.65), 330 * MB, 0)}
    assert not asks(pack(topology, SETTINGS))
    assert room_text(found, "slurm") == (
        "slurm is asked for 2 containers: container 0 with 0.5 cores and 512MB of memory, container 1 with 1.65 cores"
        " and 330MB of memory; 2.15 cores and 842MB of memory in all"
    )


def test_containers_of_one_size_are_named_together() -> None:
    small, large = ResourceRequest(0.5, 100 * MB, 0), ResourceRequest(2.0, GB, 0)
    found = {0: MASTER, **dict.fromkeys(range(1, 5), small), 5: large, 7: large, 8: large}
    assert room_text(found, "").startswith(
        "nothing is reserved on this machine for 8 containers: container 0 with 0.5 cores and 512MB of memory,"
        " containers 1 to 4 with 0.5 cores and 100MB of memory each, 3 containers with 2 cores and 1GB of memory each;"
    )
    many = {number: ResourceRequest(number, GB, 0) for number in range(1, 10)}
    assert "container 4 with 4 cores and 1GB of memory, 5 other sizes; 45 cores" in room_text(many, "slurm")


def test_sizes_of_components_come_first() -> None:
    topology = topology_with(component_rammap="count:1GB", container_ram_padding="50MB")
    assert asks(pack(topology, SETTINGS))
    assert requests(topology)[1] == ResourceRequest(pytest.approx(1.65), round((2 * GB + 100 * MB) * 1.1) + 50 * MB, 0)


def test_disk_is_requested_where_the_topology_asks_for_it() -> None:
    """Of tasks that say nothing the settings hold there; container 0 asks for none."""
    found = requests(topology_with(component_diskmap="count:1GB"))
    assert found[0].disk_bytes == 0
    assert found[1].disk_bytes == round((2 * GB + 10 * MB) * 1.1)
    assert room_text(found, "slurm").endswith("842MB of memory and 2.2GB of disk in all"), room_text(found, "slurm")


def test_a_container_gets_what_is_requested_for_it() -> None:
    assert requests(topology_with(container_ram_requested="700MB"))[1].ram_bytes == 700 * MB


@pytest.mark.parametrize(("heap", "ram"), [(GB, GB + 384 * MB), (10 * GB, 11 * GB)])
def test_the_driver_of_spark_is_in_container_0(heap: int, ram: int) -> None:
    found = requests(word_count(), heap)[0]
    assert found == ResourceRequest(MASTER.cpu + 1.0, MASTER.ram_bytes + ram, MASTER.disk_bytes)


@given(
    sizes=st.lists(st.lists(st.tuples(st.sampled_from([0.0, 0.5]), st.sampled_from([0, GB])), max_size=4), max_size=4),
    percent=st.sampled_from([0.0, 10.0, 150.0]),
)
def test_no_request_is_empty(sizes: list[list[tuple[float, int]]], percent: float) -> None:
    settings = PackingSettings(container_padding_percent=percent)
    plan = plan_pb2.PackingPlan()
    for number, tasks in enumerate(sizes, 1):
        total = plan_pb2.Resource(cpu=sum(cpu for cpu, _ in tasks), ram_bytes=sum(ram for _, ram in tasks))
        container = plan.containers.add(id=number, required=total)
        for cpu, ram in tasks or [(0.0, 0)]:
            container.instances.add(resource=plan_pb2.Resource(cpu=cpu, ram_bytes=ram))
    found = requests_of(plan, word_count(), settings)
    assert found.keys() == {0, *range(1, len(sizes) + 1)}
    assert all(min(one.cpu, one.ram_bytes) > 0 for one in found.values())
    for container in plan.containers:
        assert found[container.id].ram_bytes >= container.required.ram_bytes
