"""`heron config`: settings with their origin, and the client's own defaults of a cluster."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import verb
from heronpy.cli.flags.reading import reading


class _ConfigGroup(click.Group):
    """Also takes the cluster before the subcommand, as Apache's command does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [word for word in args if not word.startswith("-")]
        if words and words[0] not in self.commands:
            if len(words) > 1 and words[1] in self.commands:
                first, second = args.index(words[0]), args.index(words[1], args.index(words[0]) + 1)
                args[first], args[second] = words[1], words[0]
            elif args == words and len(words) == 1:
                args = ["list", *words]
        return super().parse_args(ctx, args)


@click.group("config", cls=_ConfigGroup)
def config_command() -> None:
    """Show settings and their origin; list, set and unset client defaults of a cluster.

    Apache's order of words works as well: heron config CLUSTER set KEY VALUE.
    """


@reading("show", config_command, topology=None)
@click.argument("room", required=False, shell_complete=complete.rooms)
@click.option("--topology", metavar="NAME", help="Show what a running topology was launched with.",
              shell_complete=complete.topologies)  # fmt: skip
@click.option("--origin", is_flag=True, help="Show where each value comes from.")
def show_command(**flags: Any) -> None:
    """Show the settings of a cluster, of all rooms or of one.

    The keys are heron.<room>.<field>; set them in conf/<cluster>/<room>.yaml, in the topology's
    configuration, or with --config-property.
    """
    from heronpy.cli.look.settings import show

    show(**flags)


@reading("list", config_command, topology=None, common=False)
def list_command(**flags: Any) -> None:
    """List the client's defaults of a cluster."""
    from heronpy.cli.look.settings import show_defaults

    show_defaults(**flags)


@verb("set", config_command, topology=None, json=False, common=False)
@click.argument("key", shell_complete=complete.client_keys)
@click.argument("value")
def set_command(**flags: Any) -> None:
    """Set a client default of a cluster: config-path, role, environ or heron.<room>.<field>."""
    from heronpy.cli.look.settings import set_default

    set_default(**flags)


@verb("unset", config_command, topology=None, json=False, common=False)
@click.argument("key", shell_complete=complete.client_keys)
def unset_command(**flags: Any) -> None:
    """Forget a client default of a cluster."""
    from heronpy.cli.look.settings import unset_default

    unset_default(**flags)
