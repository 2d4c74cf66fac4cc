"""`heron submit`."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import FORMATS, common_flags, target_argument, timeout_flag
from heronpy.cli.output import warning
from heronpy.clusters.target import Common, Target
from heronpy.common.nearest import nearest, suggestion

#: Key in a context's meta: the number of words after `--`.
CERTAIN = "heronpy.cli.words_for_certain"


class _Mode(click.Choice[str]):
    """A mode of `heron submit`; the program may have an option of the same name."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            hint = "" if nearest(str(value), self.choices) else "; write -- before the options of the program"
            self.fail(f"{error.message.rstrip('.')}{hint}", param, ctx)


class _Submit(click.Command):
    """Counts the words after `--`, which certainly belong to the program, because click drops the `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[CERTAIN] = len(args) - args.index("--") - 1 if "--" in args else 0
        return super().parse_args(ctx, args)


@click.command("submit", cls=_Submit, context_settings={"ignore_unknown_options": True})
@target_argument
@click.argument("program", metavar="PROGRAM")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[NAME|CLASS|-] [ARGS]...")
@click.option("--deploy-deactivated", is_flag=True, help="Start with paused spouts; 'heron activate' starts them.")
@click.option("--detach", is_flag=True, help="Return when the scheduler is running, without waiting for the tasks.")
@click.option("--wait", is_flag=True, help="Wait until a bounded topology has finished, then remove it.")
@click.option(
    "--kill-on-interrupt",
    is_flag=True,
    help="With --wait or --foreground: Ctrl-C ends the topology, not only the wait.",
)
@click.option(
    "--foreground",
    is_flag=True,
    help="On an engine: run the scheduler as a child of this command, until the scheduler ends.",
)
@timeout_flag(60.0, "Seconds for all tasks to start; sink readiness and the engine's queue have their own limits.")
@click.option("--queue-timeout", "queue_timeout_s", type=click.FloatRange(min=0.1), metavar="S",
              help="Seconds that containers may wait in the queue of an engine; default: no limit.")  # fmt: skip
@click.option(
    "--restore",
    metavar="latest|ID|PATH|URL",
    shell_complete=complete.restores,
    help="Start from a checkpoint of an earlier run: the newest, the one with this id, or the one at this path or URL.",
)
@click.option("--allow-dropped-state", is_flag=True, help="With --restore: drop the state of components that are gone.")
@click.option("--mode", type=_Mode(("stream", "batch", "auto")), default="stream", show_default=True,
              help="batch: process bounded input stage by stage, and end; auto: batch where possible.")  # fmt: skip
@click.option("--as", "like", metavar="RUN", help="With --mode batch: read the same input as this finished run.")
@click.option("--hold", is_flag=True, help="With --mode batch: publish nothing, for 'heron compare'.")
@click.option("--resume", is_flag=True,
              help="With --mode batch: continue an unfinished run, even if the program has changed.")  # fmt: skip
@click.option(
    "--fresh",
    is_flag=True,
    help="With --mode batch: begin a new run, even if an earlier run has not finished or has published its output.",
)
@click.option("--dry-run", is_flag=True, help="Print the plans and start nothing.")
@click.option("--dry-run-format", type=click.Choice(FORMATS), default="table", show_default=True)
@common_flags
def submit_command(target: Target, common: Common, dry_run: bool, dry_run_format: str, **flags: Any) -> None:
    """Start a topology and wait until every task has initialised.

    PROGRAM is a .py file, a folder with __main__.py, a .zip, .pex or .tar.gz of one, or module:Class.
    It runs in a separate process and builds the topology.

    \b
    heron submit local topo.py                     run topo.py, or use its Topology class
    heron submit local topo.py Name [ARGS]...      choose a class, or give the topology this name
    heron submit local topo.py - [ARGS]...         run topo.py with ARGS unchanged
    heron submit local topo.pex - Name             run the main program of a .pex
    heron submit local topo.pex module.Class Name  use a class of a .pex, .zip or folder
    heron submit local package.module:Class        use a class of an installed module

    An EFFECTIVELY_ONCE topology starts with empty state unless --restore names a checkpoint. PATH or URL is the folder
    of a checkpoint (chk-ID), of a topology's checkpoints, or of a copy of them.

    With --mode batch, the same command continues an unfinished run. After the run, --restore latest continues as a
    stream.

    Ctrl-C removes a topology that is not running yet. Later, Ctrl-C only ends the wait of --wait.

    Unknown flags, and everything after '--', go to PROGRAM.
    """
    if flags["detach"] and flags["wait"]:
        raise click.UsageError("--detach and --wait are mutually exclusive; leave out one of them")
    if flags["detach"] and flags["foreground"]:
        raise click.UsageError("--detach and --foreground are mutually exclusive; leave out one of them")
    if flags["kill_on_interrupt"] and not (flags["wait"] or flags["foreground"]):
        raise click.UsageError("--kill-on-interrupt needs --wait or --foreground")
    if flags["allow_dropped_state"] and flags["restore"] is None:
        raise click.UsageError("--allow-dropped-state needs --restore")
    _check_mode(flags)
    _refuse_early_option(flags["program"])
    certain = click.get_current_context().meta[CERTAIN]
    _warn_of_misspelled_options(flags["words"][: len(flags["words"]) - certain])
    from heronpy.cli.submit.child import Child

    # A plan for a program must be the only output on stdout.
    output = sys.stderr.fileno() if dry_run and dry_run_format in ("json", "raw") else None
    with Child(output) as child:
        # Imported here, while the child starts, because the import takes as long as the start.
        from heronpy.cli.submit.command import SubmitOptions, submit

        submit(target, common, SubmitOptions(dry_run_format=dry_run_format if dry_run else None, **flags), child)


def _check_mode(flags: dict[str, Any]) -> None:
    if flags["like"] == "":
        raise click.UsageError("--as needs the name of a run, such as visits/1")
    flags["like"] = flags["like"] or ""
    if flags["mode"] == "stream":
        for name, given in (
            ("--as", flags["like"]),
            *((f"--{one}", flags[one]) for one in ("hold", "resume", "fresh")),
        ):
            if given:
                raise click.UsageError(f"{name} needs --mode batch")
    elif flags["restore"] is not None:
        raise click.UsageError(
            "--restore is for --mode stream: a batch run begins with empty state; leave out one of them"
        )


def _refuse_early_option(program: str) -> None:
    """Refuse an unknown flag before the program; unknown flags after the program belong to the program."""
    if program.startswith("-") and program != "-":
        hint = suggestion(program.partition("=")[0], _known_options(), "; flags of the program come after it")
        raise click.UsageError(f"no such option: {program}{hint}", click.get_current_context())


def _warn_of_misspelled_options(words: tuple[str, ...]) -> None:
    """Warn about each word that is almost a heron flag; the word is passed to the program nevertheless."""
    known, switches = _known_options(), _known_options(switches=True)
    for word, following in itertools.pairwise((*words, "-")):
        flag = word.partition("=")[0]
        if not flag.startswith("--") or flag in known:
            continue
        has_value = "=" in word or not following.startswith("-")
        meant = suggestion(flag, [one for one in known if not (has_value and one in switches)], least=0.8)
        if meant:
            warning(f"'{flag}' is passed to the program{meant}")


def _known_options(switches: bool = False) -> list[str]:
    """Return heron's flags; with `switches`, only flags without a value."""
    params = [param for param in click.get_current_context().command.params if isinstance(param, click.Option)]
    chosen = [param for param in params if param.is_flag or not switches]
    return [option for param in chosen for option in param.opts if option.startswith("--")]
