"""The metrics page answers whoever asks, however many others are slow."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager

import psutil
import pytest

from heronpy.common.errors import ConfigError
from heronpy.executor import metrics_page
from heronpy.executor.metrics_page import ASK_S, CONNECTIONS_MAX, MetricsPage
from heronpy.net.addresses import page_host
from tests.support.waiting import eventually
from tests.support.zookeeper import free_ports

GET = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
#: More than the kernel takes for one connection that is not read.
LARGE = "x" * (12 << 20)


async def fetch(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(GET)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer


@asynccontextmanager
async def serving(body: str = "up 1\n") -> AsyncIterator[tuple[MetricsPage, ExitStack]]:
    page = MetricsPage("127.0.0.1", 0, {"/metrics": lambda: ("text/plain", body)})
    await page.start()
    with ExitStack() as stack:
        yield page, stack
        await page.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing ends by its deadline."""
    monkeypatch.setattr(metrics_page, "REQUEST_MAX_S", 3600.0)
    yield


def silent(page: MetricsPage, stack: ExitStack, says: bytes = b"GET /metrics HT") -> socket.socket:
    sock = stack.enter_context(socket.create_connection(("127.0.0.1", page.port), timeout=10))
    sock.sendall(says)
    return sock


@pytest.mark.usefixtures("patient")
async def test_many_slow_clients_keep_nobody_out() -> None:
    async with serving() as (page, stack):
        for _ in range(3):
            for _ in range(CONNECTIONS_MAX):
                silent(page, stack)
                await asyncio.sleep(0)
            assert b"200 OK" in await fetch(page.port)
        await eventually(lambda: page.evicted >= 2 * CONNECTIONS_MAX, what="the oldest to go")
        await eventually(lambda: len(page.visits) <= CONNECTIONS_MAX, what="a bound")


@pytest.mark.usefixtures("patient")
async def test_who_has_asked_is_answered_before_the_silent_go() -> None:
    """The oldest of all has asked and reads slowly; those who have said nothing go first."""
    async with serving(LARGE) as (page, stack):
        reader, writer = await asyncio.open_connection("127.0.0.1", page.port)
        writer.write(GET)
        await eventually(lambda: [visit.asked for visit in page.visits] == [True], what="its request")
        for _ in range(CONNECTIONS_MAX - 1):
            silent(page, stack)
        await eventually(lambda: len(page.visits) == CONNECTIONS_MAX, what="their arrival")
        await asyncio.sleep(2 * ASK_S)
        for _ in range(CONNECTIONS_MAX - 1):
            silent(page, stack)
        await eventually(lambda: page.evicted == CONNECTIONS_MAX - 1, what="evictions")
        assert len(await asyncio.wait_for(reader.read(), 30)) > len(LARGE)
        writer.close()


@pytest.mark.usefixtures("patient")
async def test_clients_that_ask_and_do_not_read_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_page, "CONNECTIONS_MAX", 4)
    async with serving(LARGE) as (page, stack):
        for _ in range(4 + 5):
            silent(page, stack, GET)
        await eventually(lambda: page.evicted == 5, what="evictions")
        assert len(await fetch(page.port)) > len(LARGE)


async def test_slow_clients_have_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a request nor an answer takes longer; then nothing is left of the connection."""
    monkeypatch.setattr(metrics_page, "REQUEST_MAX_S", 0.5)
    async with serving(LARGE) as (page, stack):
        before = psutil.Process().num_fds()
        slow = [silent(page, stack) for _ in range(10)] + [silent(page, stack, GET) for _ in range(4)]
        await eventually(lambda: len(page.visits) == len(slow), what="their arrival")
        await eventually(lambda: not page.visits, what="their end")
        await eventually(lambda: psutil.Process().num_fds() <= before + len(slow), what="their descriptors")
        assert page.evicted == 0


async def test_a_page_is_not_built_for_each_that_asks() -> None:
    """Building it costs milliseconds of the executor's only thread, asking for it nearly nothing."""
    built = 0

    def body() -> tuple[str, str]:
        nonlocal built
        built += 1
        return "text/plain", f"built {built}\n"

    page = MetricsPage("127.0.0.1", 0, {"/metrics": body})
    await page.start()
    answers = await asyncio.gather(*(fetch(page.port) for _ in range(20)))
    assert {answer[-8:] for answer in answers} == {b"built 1\n"}, "asked within half a second"
    begun = asyncio.get_running_loop().time()
    await eventually(lambda: asyncio.get_running_loop().time() > begun + metrics_page.KEEP_S)
    assert (await fetch(page.port)).endswith(b"built 2\n")
    await page.close()


async def test_pages_take_a_port_of_the_range_and_say_when_all_are_taken() -> None:
    """Of security.port_range, which a firewall lets through."""
    first, second = free_ports(2)
    pages = {"/metrics": lambda: ("text/plain", "up 1\n")}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first))
        taken.listen()
        one = MetricsPage("127.0.0.1", 0, pages, range(first, first + 1))
        with pytest.raises(ConfigError, match=f"all ports {first}-{first} of 127.0.0.1 are taken.*port_range"):
            await one.start()
        # A port that was set and is taken costs the page its port only, inside the range as well.
        other = MetricsPage("127.0.0.1", first, pages, range(second, second + 1))
        await other.start()
        assert other.port == second and b"up 1" in await fetch(second)
        await other.close()


@pytest.mark.parametrize(
    ("wanted", "address", "at"),
    [("host", "10.1.0.7", "10.1.0.7"), ("host", "", "127.0.0.1"), ("0.0.0.0", "10.1.0.7", "0.0.0.0")],
)
def test_the_address_of_a_page(wanted: str, address: str, at: str) -> None:
    assert page_host(wanted, address, "127.0.0.1") == at
