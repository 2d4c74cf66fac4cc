"""`heron pool`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags.arguments import timeout_flag, verb

_pool = click.argument("pool")
_slots = click.option("--slots", type=int, required=True, metavar="N", help="Number of slots in the pool.")


@click.group("pool")
def pool_command() -> None:
    """Run many small topologies in few containers: the slots of a pool.

    An engine places the slots like the containers of a topology. The topology of a job with place.pool=POOL runs
    in the slots. If a slot is lost, its containers are started in other slots.
    """


@verb("create", pool_command, topology=_pool, json=False)
@_slots
@click.option("--cpu", type=float, default=2.0, show_default=True, metavar="N", help="Cores of each slot.")
@click.option("--ram", default="4GB", show_default=True, metavar="SIZE", help="Memory of each slot.")
def create_command(**flags: Any) -> None:
    """Create a pool of empty slots.

    The cluster's engine runs the slots. If the cluster has no engine, the engine 'local' runs them.
    """
    from heronpy.cli.change.pools import create

    create(**flags)


@verb("show", pool_command, topology=_pool)
def show_command(**flags: Any) -> None:
    """Show the slots of a pool, their loads, and the topologies in them."""
    from heronpy.cli.change.pools import show

    show(**flags)


@verb("resize", pool_command, topology=_pool, json=False)
@_slots
def resize_command(**flags: Any) -> None:
    """Change the number of slots of a pool; topologies are moved out of removed slots first."""
    from heronpy.cli.change.pools import resize

    resize(**flags)


@verb("drain", pool_command, topology=_pool, json=False)
@click.argument("slot", type=int)
@click.option("--lift", is_flag=True, help="Let the slot run containers again.")
@timeout_flag(120.0, "Seconds to wait until the slot is empty; the containers continue to move after that.")
def drain_command(**flags: Any) -> None:
    """Move the topologies of a slot to other slots, and place no topology in the slot until --lift."""
    from heronpy.cli.change.pools import drain

    drain(**flags)


@verb("delete", pool_command, topology=_pool, json=False)
def delete_command(**flags: Any) -> None:
    """Remove a pool in which no topology runs, and stop its slots."""
    from heronpy.cli.change.pools import delete

    delete(**flags)
