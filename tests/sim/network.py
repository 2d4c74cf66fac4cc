"""The model of the network: connections between sockets of simulated processes.

A connection has a lane each way that keeps the order (ZeroMQ over TCP or ipc). What is on a lane when the
connection breaks is lost, but for a beginning of it that had arrived already. A partition holds lanes up,
as TCP does; ZeroMQ's heartbeats give a TCP connection up after a few seconds of that, and each side
notices on its own. ipc is never partitioned: both ends are on one host.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from tests.sim.kernel import Process, World

if TYPE_CHECKING:
    from tests.sim.sockets import SimSocket

#: zsock.HEARTBEAT_TIMEOUT_MS and a bit.
SILENCE_MIN_S, SILENCE_MAX_S = 3.0, 4.1
RETRY_S = 0.01


class Lane:
    """One direction of a connection."""

    def __init__(self, connection: Connection, target: SimSocket) -> None:
        self.connection = connection
        self.target = target
        self.queue: deque[tuple[float, list[bytes]]] = deque()
        self._free_at = 0.0
        self._scheduled = False
        #: No message gets through.
        self.blocked = False
        #: After what is on it now the other side sees the end.
        self.closing = False

    def put(self, parts: list[bytes]) -> None:
        network = self.connection.network
        arrival = max(self._free_at, network.world.now + network.delay_s(self.connection.tcp))
        self._free_at = arrival
        self.queue.append((arrival, parts))
        self._schedule()
        self.connection.used()

    def _schedule(self) -> None:
        if self.queue and not self._scheduled and not self.blocked:
            self._scheduled = True
            world = self.connection.network.world
            world.at(max(world.now, self.queue[0][0]), None, self._deliver)

    def _deliver(self) -> None:
        self._scheduled = False
        if self.blocked:
            return
        now = self.connection.network.world.now
        while self.queue and self.queue[0][0] <= now:
            _, parts = self.queue.popleft()
            self.target.arrived(self.connection, parts)
        if self.queue:
            self._schedule()
        elif self.closing:
            self.connection.down(self.target)

    def unblock(self) -> None:
        self.blocked = False
        self._schedule()
        if not self.queue and self.closing:
            self.connection.down(self.target)

    def cut(self, keep: int) -> int:
        """Lose all but the first messages; returns how many are lost."""
        lost = max(0, len(self.queue) - keep)
        for _ in range(lost):
            self.queue.pop()
        return lost

    def close(self) -> None:
        """The other side has ended: data on its way still arrives, and then the end."""
        self.closing = True
        if not self.queue and not self.blocked:
            network = self.connection.network
            network.world.later(network.delay_s(self.connection.tcp), self.connection.down, self.target)


class Connection:
    """An established connection; `client` is the side that connected."""

    def __init__(self, network: Network, client: SimSocket, server: SimSocket, tcp: bool) -> None:
        self.network = network
        #: Messages until it breaks; None: never.
        self.fuse: int | None = None
        self.client, self.server = client, server
        self.tcp = tcp
        self.to_server, self.to_client = Lane(self, server), Lane(self, client)
        #: Sides that see it as alive.
        self.open_ends = {id(client), id(server)}
        self.number = network.count
        #: The handshake is over.
        self.greeted = False
        network.count += 1

    @property
    def hosts(self) -> tuple[str, str]:
        return self.client.process.host, self.server.process.host

    @property
    def alive(self) -> bool:
        return len(self.open_ends) == 2

    def is_open(self, end: SimSocket) -> bool:
        """Whether this side takes it for alive."""
        return id(end) in self.open_ends

    def lane_from(self, end: SimSocket) -> Lane:
        return self.to_server if end is self.client else self.to_client

    def down(self, end: SimSocket) -> None:
        """A side sees that it is over."""
        if id(end) not in self.open_ends:
            return
        self.open_ends.discard(id(end))
        lane = self.lane_from(end)
        lane.cut(0)
        if end.process.alive and not end.closed:
            end.disconnected(self)
        other = self.server if end is self.client else self.client
        if id(other) in self.open_ends:
            lane.blocked = False
            lane.close()
        else:
            self.network.connections.pop(self, None)

    def end_from(self, end: SimSocket, abrupt: bool) -> None:
        """One side closes it, or dies; what it had sent a moment ago may be lost with it."""
        if id(end) not in self.open_ends:
            return
        self.open_ends.discard(id(end))
        lane = self.lane_from(end)
        other = self.server if end is self.client else self.client
        if abrupt and lane.queue:
            lost = lane.cut(self.network.rng.randint(0, len(lane.queue)))
            self.network.world.trace.tick(f"cut {end.process.name} {lost}")
        if id(other) in self.open_ends:
            lane.close()
        else:
            self.network.connections.pop(self, None)

    def used(self) -> None:
        """A message was sent: the place where it may break with something under way."""
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse <= 0:
                self.fuse = None
                self.reset()

    def reset(self) -> None:
        """It breaks: each side sees that in a moment."""
        rng = self.network.rng
        for lane in (self.to_server, self.to_client):
            lane.cut(rng.randint(0, len(lane.queue)))
            lane.closing = True
        for end in (self.client, self.server):
            self.network.world.later(rng.uniform(0.0001, 0.05), self.down, end)


class Network:
    """All connections, delays and partitions."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.chance("network")
        self.bound: dict[str, SimSocket] = {}
        #: In the order of their making.
        self.connections: dict[Connection, None] = {}
        self.count = 0
        self._port = 10_000
        self.ipc_delay_s = (20e-6, 120e-6)
        self.tcp_delay_s = (50e-6, 500e-6)
        #: (probability, seconds) of a message that takes much longer.
        self.spikes = (0.0, 0.0)
        #: (from, to): nothing gets from one host to the other.
        self.walls: set[tuple[str, str]] = set()

    def delay_s(self, tcp: bool) -> float:
        rng = self.rng
        often, long_s = self.spikes
        if often and rng.random() < often:
            return rng.uniform(0.0, long_s)
        return rng.uniform(*(self.tcp_delay_s if tcp else self.ipc_delay_s))

    # ---- endpoints ----------------------------------------------------------------------------

    def bind(self, sock: SimSocket, endpoint: str) -> str:
        if endpoint.endswith(":*"):
            self._port += 1
            endpoint = f"{endpoint[:-1]}{self._port}"
        self.bound[endpoint] = sock
        return endpoint

    def unbind(self, sock: SimSocket) -> None:
        for endpoint in [e for e, s in self.bound.items() if s is sock]:
            del self.bound[endpoint]

    def reach(self, client: SimSocket, endpoint: str) -> Connection | None:
        """Connect now, if somebody listens and can answer."""
        server = self.bound.get(endpoint)
        if server is None or server.process.stopped or not server.process.alive:
            return None
        tcp = endpoint.startswith("tcp:")
        if tcp and self.walled(client.process.host, server.process.host):
            return None
        connection = Connection(self, client, server, tcp)
        self.connections[connection] = None
        return connection

    # ---- faults -------------------------------------------------------------------------------

    def walled(self, one: str, other: str) -> bool:
        """Whether the two cannot talk, in one direction at least."""
        return (one, other) in self.walls or (other, one) in self.walls

    def partition(self, one: str, other: str, duration_s: float, both: bool) -> None:
        """Nothing gets from `one` to `other` for a while (and back, when `both`)."""
        walls = {(one, other), (other, one)} if both else {(one, other)}
        self.walls |= walls
        for connection in list(self.connections):
            if connection.tcp and {connection.hosts} & (walls | {w[::-1] for w in walls}):
                client, server = connection.hosts
                connection.to_server.blocked = (client, server) in self.walls
                connection.to_client.blocked = (server, client) in self.walls
                self._give_up_later(connection)
        self.world.later(duration_s, self._heal, walls)

    def _heal(self, walls: set[tuple[str, str]]) -> None:
        self.walls -= walls
        self.world.trace.note("network", f"heals {sorted(walls)}")
        for connection in list(self.connections):
            client, server = connection.hosts
            if connection.tcp and (client, server) not in self.walls:
                connection.to_server.unblock()
            if connection.tcp and (server, client) not in self.walls:
                connection.to_client.unblock()

    def _give_up_later(self, connection: Connection) -> None:
        """ZeroMQ's heartbeats: each side gives a silent connection up."""
        for end in (connection.client, connection.server):
            self.world.later(self.rng.uniform(SILENCE_MIN_S, SILENCE_MAX_S), self._give_up, connection, end)

    def _give_up(self, connection: Connection, end: SimSocket) -> None:
        silent = (
            self.walled(*connection.hosts) or connection.client.process.stopped or connection.server.process.stopped
        )
        if silent and connection.is_open(end) and not end.process.stopped:
            for lane in (connection.to_server, connection.to_client):
                lane.cut(0)
            connection.down(end)

    def stopped(self, process: Process) -> None:
        """A process was stopped: those that talk TCP with it hear no heartbeats."""
        for connection in list(self.connections):
            if connection.tcp and process in (connection.client.process, connection.server.process):
                self._give_up_later(connection)

    def reset_some(self, some: list[Process], others: list[Process], count: int) -> str:
        """Let connections over TCP between processes of two kinds break soon; which ones."""
        mine = [
            c
            for c in self.connections
            if c.tcp
            and c.alive
            and (
                (c.client.process in some and c.server.process in others)
                or (c.client.process in others and c.server.process in some)
            )
        ]
        broken = self.rng.sample(mine, min(count, len(mine)))
        for connection in broken:
            connection.fuse = self.rng.randint(1, 20)
        return ", ".join(f"{c.client.process.name}-{c.server.process.name}" for c in broken)

    def describe(self) -> dict[str, Any]:
        return {"connections": len(self.connections), "walls": sorted(self.walls)}
