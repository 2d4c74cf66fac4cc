"""`heron help`, `version` and `completion`: about the command itself."""

from __future__ import annotations

import platform
import sys

import click
from click.shell_completion import get_completion_class

from heronpy.cli import exits
from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import TargetType, json_flag
from heronpy.cli.other_words import no_such_verb
from heronpy.cli.output import print_json, say
from heronpy.common.version import VERSION


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


@click.command("version", short_help="Show the version.")
@click.argument("target", type=TargetType(), metavar="[CLUSTER]", required=False, shell_complete=complete.clusters)
@json_flag
def version_command(target: object, as_json: bool) -> None:
    """Show the version of heron and of its Python."""
    facts = {"heron": VERSION, "python": platform.python_version(), "interpreter": sys.executable}
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        say(f"{name:<12} {value}")


@click.command("completion", short_help="Print a shell completion script.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print a completion script for a shell.

    \b
    bash: heron completion bash > ~/.local/share/bash-completion/completions/heron
    zsh:  heron completion zsh > "${fpath[1]}/_heron"
    fish: heron completion fish > ~/.config/fish/completions/heron.fish
    """
    maker = get_completion_class(shell)
    assert maker is not None  # the argument's choices are click's own shells
    say(maker(ctx.find_root().command, {}, "heron", "_HERON_COMPLETE").source())
