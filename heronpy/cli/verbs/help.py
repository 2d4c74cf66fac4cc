"""`heron help`."""

from __future__ import annotations

import click

from heronpy.cli import exits
from heronpy.cli.other_words import no_such_verb
from heronpy.cli.output import say


@click.command("help", short_help="Show help for a verb.")
@click.argument("words", nargs=-1, metavar="[VERB]")
@click.pass_context
def help_command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show help for a verb."""
    heron = ctx.find_root().command
    parent = click.Context(heron, info_name="heron", help_option_names=["-h", "--help"], max_content_width=100)
    command: click.Command = heron
    for word in words:
        if not isinstance(command, click.Group):
            raise exits.Failure(f"'{command.name}' has no subcommands; run 'heron help {command.name}'", exits.USAGE)
        found = command.get_command(parent, word)
        if found is None:
            raise no_such_verb(word, command.list_commands(parent))
        command, parent = found, click.Context(found, info_name=word, parent=parent)
    say(command.get_help(parent))
