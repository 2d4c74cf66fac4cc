"""On which address and ports processes listen for other hosts."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import zmq

from heronpy.common.errors import ConfigError
from heronpy.common.setting_types import SecuritySettings
from heronpy.net import transport
from heronpy.net.addresses import address_here, in_any_order, ports_of, told_at
from heronpy.net.curve import Keys, Pair
from tests.support.launch import launch_spec


@pytest.mark.parametrize("text", ["20000", "0-5", "9-8", "1-65536", "a-b", "1-2-3", " 1-2", "-1-2", "1-999999"])
def test_a_range_of_ports_that_is_none_is_refused_at_submit(text: str) -> None:
    with pytest.raises(ConfigError, match=r"heron.security.port_range is .* must be first-last"):
        transport.check(SecuritySettings(port_range=text))


@pytest.mark.parametrize("text", ["eth0", "10.0.0.0/33", "10.0.0", "fd00::/8", "10.0.0.0/24,10.1.0.0/24"])
def test_a_network_that_is_none_is_refused_at_submit(text: str) -> None:
    with pytest.raises(ConfigError, match=r"heron.security.network is .* must be an IPv4 network"):
        transport.check(SecuritySettings(network=text))


def test_what_an_operator_may_write() -> None:
    for good in (SecuritySettings(), SecuritySettings(network="10.1.2.3/16", port_range="20000-20999")):
        transport.check(good)
    assert ports_of("7-7") == range(7, 8) and ports_of("") is None


def test_containers_are_told_of_a_service_if_there_is_one() -> None:
    endpoints = ["tcp://10.0.0.7:5000", "tcp://10.1.0.7:5000"]
    assert told_at("", endpoints) == endpoints
    assert told_at("heron-k8s.streams.svc", endpoints) == ["tcp://heron-k8s.streams.svc:5000"]
    for wrong in ("a b", "tcp://x", "x:1", "-x", "x."):
        with pytest.raises(ConfigError, match=r"heron\.engine\.endpoint_host"):
            told_at(wrong, endpoints)


def test_all_ports_are_tried_once_from_any_one_on() -> None:
    orders = {tuple(in_any_order(range(5, 9))) for _ in range(200)}
    assert orders == {(5, 6, 7, 8), (6, 7, 8, 5), (7, 8, 5, 6), (8, 5, 6, 7)}


def test_the_address_in_a_network_or_towards_a_peer() -> None:
    assert address_here("127.0.0.0/8", "tcp://203.0.113.9:1") == "127.0.0.1"
    assert address_here("", "tcp://127.0.0.1:5000") == "127.0.0.1" == address_here("", "127.0.0.1:5000")
    with pytest.raises(
        ConfigError, match=r"no address in heron.security.network 203.0.113.0/24; its addresses are .*127\.0\.0\.1"
    ):
        address_here("203.0.113.0/24", "tcp://127.0.0.1:1")
    with pytest.raises(
        ConfigError, match=r"reaches nowhere.invalid:5 .*its addresses are .*127\.0\.0\.1.*heron.security.network"
    ):
        address_here("", "tcp://nowhere.invalid:5")


def some_keys() -> Keys:
    pairs = [Pair(*zmq.curve_keypair()) for _ in range(2)]
    return Keys("wc-1", *pairs)


def test_a_socket_takes_a_free_port_of_the_range_and_says_when_there_is_none() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        first = min(probe.getsockname()[1], 65533)
    keys, context = some_keys(), zmq.Context[Any]()
    socks = [context.socket(zmq.ROUTER) for _ in range(4)]
    try:
        taken: list[str] = []
        with pytest.raises(ConfigError, match=rf"all ports {first}-{first + 2} of 127.0.0.1 are taken"):
            for sock in socks:
                taken.append(transport.bind(sock, f"tcp://127.0.0.1:{first}-{first + 2}", keys))
        ports = [int(endpoint.rpartition(":")[2]) for endpoint in taken]
        assert ports and len(set(ports)) == len(ports) and set(ports) <= set(range(first, first + 3))
    finally:
        for sock in socks:
            sock.close(0)
        context.term()


def test_where_the_address_of_a_host_is_known_it_is_what_processes_listen_on(tmp_path: Path) -> None:
    def launch(address: str, **security: str) -> Any:
        return launch_spec("wc", "wc-1", tmp_path, address=address, settings={"security": security})

    assert transport.endpoint_of(launch("10.0.0.7"), "tmaster.1") == "tcp://10.0.0.7:*"
    ranged = launch("10.0.0.7", port_range="20000-20009", transport="tcp")
    assert transport.endpoint_of(ranged, "tmaster.1") == "tcp://10.0.0.7:20000-20009"
    assert transport.endpoint_of(launch(""), "tmaster.1").startswith("ipc://")
    with pytest.raises(ConfigError, match=r"heron.security.transport is ipc"):
        transport.endpoint_of(launch("10.0.0.7", transport="ipc"), "tmaster.1")
    with pytest.raises(ConfigError, match="cannot check folder"):
        transport.keys_of(launch("10.0.0.7"))


def test_state_in_files_of_another_host_is_reached_at_its_endpoint(tmp_path: Path) -> None:
    token = str(tmp_path / "join_token.json")
    away = launch_spec("wc", "wc-1", tmp_path, token=token)
    assert (away.state_type, away.state_root) == ("endpoint", token)
    here = launch_spec("wc", "wc-1", tmp_path)
    assert (here.state_type, here.state_root) == ("local", str(tmp_path / "state"))
    zookeeper = launch_spec("wc", "wc-1", tmp_path, state_type="zookeeper", state_root="zk:2181/heron", token=token)
    assert (zookeeper.state_type, zookeeper.state_root) == ("zookeeper", "zk:2181/heron")
