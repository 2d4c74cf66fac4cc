"""Entry point of `heron`: finds the verb, runs it, and turns every error into one sentence and an exit code.

A verb's module is imported only when the verb is used, so that `heron --help` starts fast. This module imports only
click and the standard library. A verb's short help is therefore in the table below, not in the verb's module.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence

import click

from heronpy.cli import apache_flags, exits

#: Section -> verb -> short help. The command is `<verb>_command`, with '_' for '-', in the module
#: `heronpy.cli.verbs.<verb>` or in the module that `SHARED` names.
VERBS: dict[str, dict[str, str]] = {
    "Run": {
        "submit": "Start a topology and wait until every task runs.",
        "kill": "Stop a topology and remove it from the cluster.",
        "stop": "End a topology gracefully, after a drain or a savepoint.",
        "activate": "Let the spouts of a topology emit tuples.",
        "deactivate": "Pause the spouts of a topology.",
        "restart": "Restart a topology, one container, component or task.",
        "checkpoints": "List, take, restore, check and delete checkpoints.",
        "drain": "Move the containers of a topology away from a host.",
        "scheduler": "Restart the scheduler of a topology.",
        "drill": "Kill or stop processes of a topology on purpose, to test its recovery.",
        "clean": "Remove logs and folders of topologies that have ended.",
        "job": "Create, change, deploy, stop and show jobs, which describe topologies.",
        "pool": "Share slots of an engine among the topologies of jobs.",
        "manager": "Start, stop or show the process that makes topologies match their jobs.",
        "update": "Change parallelism, containers or configuration of a running topology.",
    },
    "Look": {
        "list": "List the topologies of a cluster.",
        "status": "Show the state of a topology and its bottleneck.",
        "plan": "Show the logical, packing or physical plan.",
        "progress": "Show the progress of a batch run: stages, units, slow containers, expected end.",
        "doctor": "Diagnose a slow or faulty topology, and name the next step.",
        "top": "Watch the components of a topology live.",
        "metrics": "Show metrics by component or instance.",
        "logs": "Show or follow the logs of tasks and processes.",
        "events": "Show what happened: restarts, backpressure, checkpoints, updates.",
        "exceptions": "Show the exceptions that user code raised.",
        "history": "Show ended runs: outcome, progress, exceptions and logs.",
        "compare": "Compare the rows and figures of two runs, or of two folders.",
        "trace": "Trace tuples and show where their time goes.",
        "slow": "Show the slowest tuples with their values.",
        "batches": "Show the Spark batches that have failed, and retry them.",
        "units": "Inspect and repair pipelines of work units over growing logs.",
        "dead-letters": "Show the tuples that were abandoned after too many attempts.",
        "stacks": "Show what each thread of a running task is doing.",
        "profile": "Record where a running task spends its time.",
        "heap": "Show the objects of a running task by type.",
        "ui": "Print the address of the web pages; start the tracker if needed.",
        "tracker": "Serve the REST API and the pages of clusters.",
    },
    "Measure": {
        "load-test": "Run a load profile and check its counts.",
        "verify": "Inject faults into a topology and check the records that arrived.",
    },
    "Set up": {
        "cluster": "Set up a cluster on an engine, and check that it works.",
        "env": "Pack the dependencies of topologies for the hosts of a cluster.",
        "config": "Show settings and their origin; set client defaults for a cluster.",
        "completion": "Print a shell completion script.",
        "version": "Show the version.",
        "help": "Show help for a verb.",
    },
}

#: Verbs that share a module.
SHARED = {
    verb: module
    for module, verbs in {
        "change": "activate deactivate restart update drain scheduler drill clean",
        "jobs": "job manager",
        "kill": "stop",
        "look": "list status plan progress doctor top logs events exceptions trace slow batches dead-letters stacks"
        " profile heap metrics",
        "cluster": "env",
        "tracker": "ui",
        "history": "compare",
        "about": "completion version help",
    }.items()
    for verb in verbs.split()
}


class LazyGroup(click.Group):
    """A group whose commands are imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [verb for section in VERBS.values() for verb in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        name = cmd_name.replace("-", "_")
        module = importlib.import_module(f"heronpy.cli.verbs.{SHARED.get(cmd_name, name)}")
        command: click.Command = getattr(module, f"{name}_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None:
            from heronpy.cli.other_words import no_such_verb

            raise no_such_verb(args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, verbs in VERBS.items():
            with formatter.section(section):
                formatter.write_dl(list(verbs.items()))

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
    """Run and manage stream-processing topologies.

    \b
    heron <verb> cluster[/role[/environ]] <topology> [flags]
    heron submit local word_count.py
    heron status local word_count
    heron kill local word_count

    Read-only verbs need no cluster if only one is configured: heron status word_count.
    """
    if ctx.obj is not None:
        ctx.obj()
    if version:
        from heronpy.common.version import VERSION

        click.echo(f"heron {VERSION}")
    elif ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(argv: Sequence[str] | None = None, begin: Callable[[], None] | None = None) -> int:
    """Run `heron` with these arguments (default: the arguments of the process) and return the exit code.

    `begin` is called immediately before the verb starts.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    args, warnings = apache_flags.translate(args)
    verbose = "--verbose" in args
    for text in warnings:
        click.echo(f"warning: {text}", err=True)
    try:
        # _HERON_COMPLETE makes click answer the shell's completion request here.
        result = heron.main(args=args, prog_name="heron", standalone_mode=False, obj=begin)
        sys.stdout.flush()
        return result if isinstance(result, int) else exits.OK
    except BrokenPipeError:
        # The reader (head, less) has exited. That is not an error, and Python must not print one at exit.
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
    """Print an error's report, if any, and the error as one sentence; return the exit code."""
    if verbose:
        import traceback

        traceback.print_exception(error)
    from heronpy.cli.output import clean, clean_block

    if isinstance(error, click.ClickException):
        click.echo(f"error: {clean(usage_sentence(error))}", err=True)
        return exits.USAGE if isinstance(error, click.UsageError) else error.exit_code
    from heronpy.common.errors import HeronError

    if report := getattr(error, "report", ""):
        click.echo(clean_block(report.rstrip("\n")), err=True)
    if isinstance(error, (exits.Failure, HeronError)):
        text = str(error) or type(error).__name__
    elif isinstance(error, OSError) and error.strerror:
        text = error.strerror + (f": {error.filename}" if error.filename else "")
    else:
        text = f"heron itself failed: {type(error).__name__}: {error}"
        if not verbose:
            text += " (run the command with --verbose for the traceback)"
    for line in text.split("\n"):  # a topology may have several problems, one sentence each
        click.echo(f"error: {clean(line)}", err=True)
    return exits.exit_code_of(error)


def usage_sentence(error: click.ClickException) -> str:
    """Return click's message as one sentence that refers to the help."""
    text = " ".join(error.format_message().split()).rstrip(".")
    if isinstance(error, click.exceptions.NoSuchOption):
        from heronpy.common.nearest import suggestion

        text = f"no such option: {error.option_name}{suggestion(error.option_name, error.possibilities or ())}"
    ctx = getattr(error, "ctx", None)
    if isinstance(error, click.BadParameter) and error.param is not None:
        text = _beyond_range(error, error.param) or text
    if isinstance(error, click.exceptions.MissingParameter) and ctx is not None:
        from heronpy.cli.other_words import no_cluster

        text = no_cluster(ctx) or text
    if ctx is not None and ctx.command is not heron:
        verb = ctx.command_path.removeprefix("heron ")
        return f"{text[:1].lower()}{text[1:]} (see 'heron help {verb}')"
    return text[:1].lower() + text[1:]


def _beyond_range(error: click.BadParameter, param: click.Parameter) -> str:
    """Return the sentence for a value that is not a number in the range of its option; "" for other errors.

    click itself says `'x' is not a valid integer range` and `0 is not in the range x>=1`.
    """
    kind, (given, not_a, _) = param.type, error.message.rpartition(" is not ")
    if not not_a or not isinstance(kind, (click.IntRange, click.FloatRange)):
        return ""
    noun = "a whole number" if isinstance(kind, click.IntRange) else "a number"
    if kind.min is None:
        limits = f"of {kind.max} or less"
    else:
        limits = f"of {kind.min} or more" if kind.max is None else f"from {kind.min} to {kind.max}"
    return f"{param.opts[-1]} must be {noun} {limits}, not {given}"
