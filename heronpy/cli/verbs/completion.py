"""`heron completion`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from heronpy.cli.output import say


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
