"""Suggests a verb for a word that is not a verb."""

from __future__ import annotations

import click

from heronpy.cli import exits
from heronpy.clusters.client_config import known_clusters
from heronpy.clusters.target import Target
from heronpy.common.nearest import nearest, suggestion

#: Word of another tool -> the corresponding verb of `heron`.
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
    "diagnose": "heron doctor",
    "errors": "heron exceptions",
    "savepoint": "heron checkpoints savepoint",
    "restore": "heron submit --restore' or 'heron checkpoints restore",
    "rebalance": "heron update",
}


def no_such_verb(word: str, known: list[str]) -> exits.Failure:
    """Return the Failure for a word that is not a verb; it suggests the verb that the user may have meant."""
    meant = MEANT.get(word.lower())
    if meant is not None:
        hint = f"; use '{meant}'"
    else:
        cluster = nearest(word.partition("/")[0], known_clusters())
        verbs = "; run 'heron --help' to see all verbs"
        first = f"; a verb comes before the cluster, as in 'heron status {cluster}'"
        hint = suggestion(word, known, first if cluster else verbs)
    return exits.Failure(f"heron has no verb '{word}'{hint}", exits.USAGE)


def no_cluster(ctx: click.Context) -> str:
    """Return the sentence for a verb whose only argument is not a cluster; "" if it is one, or no cluster exists."""
    target, clusters = ctx.params.get("target"), known_clusters()
    if not isinstance(target, Target) or target.cluster in clusters or not clusters:
        return ""
    return f"name the cluster first, as in '{ctx.command_path} {clusters[0]} {target}'"
