"""`heron logs`."""

from __future__ import annotations

from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import common_flags, topology_argument
from heronpy.cli.flags.reading import Reading, reading_target


@click.command("logs", cls=Reading)
@reading_target
@topology_argument
@click.argument("what", nargs=-1, metavar="[INSTANCE|PROCESS|COMPONENT]...",
                shell_complete=complete.logged)  # fmt: skip
@click.option(
    "-f", "--follow", is_flag=True, help="Keep printing new records, until the topology ends; Ctrl-C ends it."
)
@click.option("--since", metavar="TIME", help="Only what is newer: an age such as 5m, or an ISO time.")
@click.option("--level", metavar="LEVEL", help="Only this level and above: DEBUG, INFO, WARNING, ERROR, CRITICAL.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    metavar="N",
    help="Only the last N records (with --follow: 10 unless --since is given).",
)
@click.option("--find", metavar="TEXT", help="Only what contains TEXT, letter by letter: the newest first, at most"
              " 1,000 hits, for at most 10 s. With --follow: new records that contain it.")  # fmt: skip
@click.option("-i", "--ignore-case", is_flag=True, help="With --find: A to Z are the same as a to z.")
@click.option("--context", type=click.IntRange(0, 50), default=0, metavar="N",
              help="With --find: also N lines before and after each hit.")  # fmt: skip
@click.option("--earlier", is_flag=True, help="Also the logs of earlier topologies of the same name; a line of ---- is"
              " between them.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per record.")
@common_flags
def logs_command(**flags: Any) -> None:
    """Show the logs of a topology, or of the named instances, processes and components.

    Logs of earlier topologies of the same name are shown with --earlier or --since only.

    \b
    heron logs local word_count                        everything
    heron logs local word_count count --level ERROR    tasks of the component 'count'
    heron logs local word_count container_1_count_2 -f
    heron logs local word_count tmaster scheduler --since 5m
    heron logs local word_count --find ValueError --context 3
    """
    from heronpy.cli.look.logs import show_logs

    show_logs(**flags)
