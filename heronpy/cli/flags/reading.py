"""Read-only verbs: CLUSTER may be left out when exactly one cluster is configured.

A first word that is the name of a configured cluster, or has a '/', is the cluster, unless it names a batch run, such
as visits/3. Otherwise, if exactly one cluster is configured and the words fit without a cluster, that cluster is used.
Verbs that change something require the cluster.
"""

from __future__ import annotations

import functools
from typing import Any

import click

from heronpy.cli.flags import complete
from heronpy.cli.flags.arguments import LEFT_OUT, TargetType, verb


class Reading(click.Command):
    """A command whose first argument, the cluster, may be left out."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._with_cluster(ctx, args))

    def _with_cluster(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return the words, preceded by the only configured cluster if the cluster was left out."""
        from heronpy.clusters.client_config import known_clusters  # not needed when verbs are only listed

        try:
            values, surplus, _ = self.make_parser(ctx).parse_args(args=list(args))
        except click.UsageError:
            return args  # reported by the real parser
        words = [word for given in self._arguments() for word in _words(values.get(str(given.name)))]
        if not words and ctx.resilient_parsing:
            return args
        clusters = known_clusters(values.get("config_path"))
        if words and "/" in words[0]:
            cluster, _, rest = words[0].partition("/")
            if cluster in clusters or not rest.isdecimal():
                return args
        if words and words[0] in clusters:
            return args
        if len(clusters) != 1:
            if not ctx.resilient_parsing and not _asks_for_help(args):
                self._refuse(ctx, words, clusters)
            return args
        if surplus or (words and not self._fits(len(words))):
            return args
        ctx.meta[LEFT_OUT] = True
        return [clusters[0], *args]

    def _refuse(self, ctx: click.Context, words: list[str], clusters: list[str]) -> None:
        """Raise a UsageError when a word that may be the cluster is missing."""
        wanted = sum(argument.required or argument.name == "topology" for argument in self._arguments())
        known = ", ".join(clusters)
        if not words:
            raise click.UsageError(f"name a cluster; the clusters are {known}", ctx)
        if len(words) < wanted:
            raise click.UsageError(f"'{words[0]}' is not one of the clusters {known}; name one of them first", ctx)

    def _arguments(self) -> list[click.Argument]:
        return [param for param in self.params if isinstance(param, click.Argument)]

    def _fits(self, words: int) -> bool:
        """Whether this number of words fits after the cluster."""
        rest = self._arguments()[1:]
        return any(argument.nargs == -1 for argument in rest) or words <= len(rest)


def _words(value: Any) -> list[str]:
    """Return the words of an argument; click represents an argument without words by a sentinel."""
    if isinstance(value, str):
        return [value]
    return [word for word in value if isinstance(word, str)] if isinstance(value, (tuple, list)) else []


def _asks_for_help(args: list[str]) -> bool:
    return "--help" in args or "-h" in args


reading_target = click.argument(
    "target",
    type=TargetType(),
    metavar="[CLUSTER[/ROLE[/ENVIRON]]]",
    shell_complete=complete.clusters_and_topologies,
)
#: Like `verb`, for read-only verbs.
reading = functools.partial(verb, cls=Reading, target=reading_target)
