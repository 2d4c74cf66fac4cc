"""`heron version`, `heron help` and `heron completion`."""

from __future__ import annotations

import click

from heronpy.cli import exits
from heronpy.cli.output import print_json, say
from heronpy.cli.target import TargetType


def release() -> str:
    """The version of heronpy: of the installed distribution, or the source tree's own."""
    from importlib import metadata

    try:
        return metadata.version("heronpy")
    except metadata.PackageNotFoundError:
        import heronpy

        return str(getattr(heronpy, "__version__", "0+source"))


def version_text() -> str:
    return f"heron {release()}"


@click.command("version", short_help="Show the version.")
@click.argument("target", type=TargetType(), metavar="[CLUSTER]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def version_command(target: object, as_json: bool) -> None:
    """Show the version of heron and of what it runs on."""
    import platform
    import sys

    facts = {"heron": release(), "python": platform.python_version(), "interpreter": sys.executable}
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        say(f"{name:<12} {value}")


@click.command("help", short_help="Show help for a verb.")
@click.argument("words", nargs=-1, metavar="[VERB]")
@click.pass_context
def help_command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show help for a verb."""
    from heronpy.cli.main import heron, no_such_verb

    parent = click.Context(heron, info_name="heron", help_option_names=["-h", "--help"], max_content_width=100)
    command: click.Command = heron
    for word in words:
        if not isinstance(command, click.Group):
            raise exits.Failure(
                f"'{command.name}' has no verbs of its own; run 'heron help {command.name}'", exits.USAGE
            )
        found = command.get_command(parent, word)
        if found is None:
            raise no_such_verb(word, command.list_commands(parent))
        command, parent = found, click.Context(found, info_name=word, parent=parent)
    say(command.get_help(parent))


@click.command("completion", short_help="Print a shell completion script.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """Print a completion script for a shell.

    \b
    bash: heron completion bash > ~/.local/share/bash-completion/completions/heron
    zsh:  heron completion zsh > "${fpath[1]}/_heron"
    fish: heron completion fish > ~/.config/fish/completions/heron.fish
    """
    from click.shell_completion import get_completion_class

    from heronpy.cli.main import heron

    maker = get_completion_class(shell)
    assert maker is not None  # the argument's choices are click's own shells
    say(maker(heron, {}, "heron", "_HERON_COMPLETE").source())
