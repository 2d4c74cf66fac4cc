"""Entry point of `heron`: finds the verb, runs it, turns every error into one sentence and an exit code.

Verbs are loaded when they are used, so that `heron --help` costs little: this module imports click
and the standard library only. A verb's short help therefore lives in the table below, not in its module.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

from heronpy.cli import apache_flags, exits, start

#: section -> verb -> (module, short help). The command object in the module is named `<verb>_command`,
#: with '_' for '-'.
VERBS: dict[str, dict[str, tuple[str, str]]] = {
    "Run": {
        "submit": ("submit", "Start a topology and wait until every task runs."),
        "kill": ("kill", "Stop a topology and remove it from the cluster."),
        "stop": ("stop", "End a topology in order: drained, or with a savepoint."),
        "activate": ("lifecycle", "Let the spouts of a topology emit."),
        "deactivate": ("lifecycle", "Pause the spouts of a topology."),
        "restart": ("lifecycle", "Restart a topology, one container or one task."),
        "checkpoints": ("checkpoints", "List, take, restore, check and delete checkpoints."),
        "update": ("update", "Change parallelism, containers or configuration of a running topology."),
    },
    "Look": {
        "list": ("listing", "List the topologies of a cluster."),
        "status": ("listing", "Show how a topology is doing and what holds it back."),
        "plan": ("plans", "Show the logical, packing or physical plan."),
        "top": ("top", "Watch the components of a topology live."),
        "metrics": ("metrics", "Show metrics by component or instance."),
        "logs": ("logs", "Show or follow the logs of tasks and processes."),
        "exceptions": ("metrics", "Show the exceptions that user code raised."),
        "dead-letters": ("dead_letters", "Show the tuples that were given up after too many tries."),
        "profile": ("profile", "Record where a running task spends its time."),
    },
    "Measure": {
        "load-test": ("load_test", "Run a profile of load and check its counts."),
        "verify": ("verify", "Do faults to a topology and judge what arrived."),
    },
    "Set up": {
        "config": ("config", "Show settings and their origin; set client defaults of a cluster."),
        "completion": ("about", "Print a shell completion script."),
        "version": ("about", "Show the version."),
        "help": ("about", "Show help for a verb."),
    },
}


#: Words of other tools, and what they are here.
MEANT = {
    "ps": "heron list",
    "ls": "heron list",
    "describe": "heron status' or 'heron plan",
    "info": "heron status",
    "explain": "heron plan",
    "scale": "heron update --component-parallelism",
    "rescale": "heron update --component-parallelism",
    "run": "heron submit",
    "deploy": "heron submit",
    "start": "heron submit' or 'heron activate",
    "cancel": "heron stop",
    "delete": "heron kill",
    "rm": "heron kill",
    "pause": "heron deactivate",
    "resume": "heron activate",
    "tail": "heron logs -f",
    "log": "heron logs",
    "errors": "heron exceptions",
    "savepoint": "heron checkpoints savepoint",
    "restore": "heron submit --restore' or 'heron checkpoints restore",
    "rebalance": "heron update",
}


def no_such_verb(word: str, known: list[str]) -> exits.Failure:
    """The Failure for a word that is no verb: with the verb that it may stand for."""
    from heronpy.cli.session import known_clusters

    meant = MEANT.get(word.lower())
    if meant is not None:
        hint = f"; use '{meant}'"
    else:
        cluster = exits.near(word.partition("/")[0], known_clusters())
        verbs = "; run 'heron --help' to see all verbs"
        first = f"; a verb comes before the cluster, as in 'heron status {cluster}'"
        hint = exits.nearest(word, known, first if cluster else verbs)
    return exits.Failure(f"heron has no verb '{word}'{hint}", exits.USAGE)


class LazyGroup(click.Group):
    """A group whose commands are imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [verb for section in VERBS.values() for verb in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        for section in VERBS.values():
            if cmd_name in section:
                module = importlib.import_module(f"heronpy.cli.{section[cmd_name][0]}")
                command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
                return command
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None:
            raise no_such_verb(args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, verbs in VERBS.items():
            with formatter.section(section):
                formatter.write_dl([(verb, text) for verb, (_, text) in verbs.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), text) for code, text in exits.MEANINGS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
)
@click.option("--version", is_flag=True, help="Show the version.")
@click.pass_context
def heron(ctx: click.Context, version: bool) -> None:
    """Run and look after stream-processing topologies.

    \b
    heron <verb> cluster[/role[/environ]] <topology> [flags]
    heron submit local word_count.py
    heron status local word_count
    heron kill local word_count

    Verbs that only read take the one cluster that is configured when none is named: heron status word_count.
    """
    start.begin()
    if version:
        from heronpy.cli.about import version_text

        click.echo(version_text())
    elif ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(argv: Sequence[str] | None = None) -> int:
    """Run `heron` with these arguments (default: those of the process); returns the exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    args, warnings = apache_flags.translate(args)
    verbose = "--verbose" in args
    for text in warnings:
        click.echo(f"warning: {text}", err=True)
    try:
        # _HERON_COMPLETE makes click answer the shell's completion request here.
        result = heron.main(args=args, prog_name="heron", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else exits.OK
    except BrokenPipeError:
        # The reader (head, less) went away: nothing is wrong, but Python must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return exits.OK
    except (KeyboardInterrupt, click.exceptions.Abort):
        click.echo("error: interrupted", err=True)
        return exits.INTERRUPTED
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else exits.FAILED
    except Exception as error:
        return explain(error, verbose)


def explain(error: Exception, verbose: bool) -> int:
    """Print an error as one sentence (after its report); returns its exit code."""
    if verbose:
        import traceback

        traceback.print_exception(error)
    from heronpy.cli.output import clean, clean_block

    if isinstance(error, click.ClickException):
        click.echo(f"error: {clean(usage_sentence(error))}", err=True)
        return exits.USAGE if isinstance(error, click.UsageError) else error.exit_code
    from heronpy.common.errors import HeronError

    if isinstance(error, exits.Failure) and error.report:
        click.echo(clean_block(error.report.rstrip("\n")), err=True)
    if isinstance(error, (exits.Failure, HeronError)):
        text = str(error) or type(error).__name__
    elif isinstance(error, OSError) and error.strerror:
        text = error.strerror + (f": {error.filename}" if error.filename else "")
    else:
        text = f"heron itself failed: {type(error).__name__}: {error}"
        if not verbose:
            text += " (run the command with --verbose to see where)"
    for line in text.split("\n"):  # a topology may have several things wrong, one sentence each
        click.echo(f"error: {clean(line)}", err=True)
    return exits.exit_code_of(error)


def usage_sentence(error: click.ClickException) -> str:
    """click's message as one sentence with the way to help."""
    text = " ".join(error.format_message().split()).rstrip(".")
    if isinstance(error, click.exceptions.NoSuchOption) and error.possibilities and "did you mean" not in text.lower():
        text += f"; did you mean {error.possibilities[0]}?"
    ctx = getattr(error, "ctx", None)
    if ctx is not None and ctx.command is not heron:
        verb = ctx.command_path.removeprefix("heron ")
        return f"{text[:1].lower()}{text[1:]} (see 'heron help {verb}')"
    return text[:1].lower() + text[1:]


if __name__ == "__main__":
    sys.exit(main())
