"""Deletes checkpoints, but no file that another checkpoint needs.

Those of the current run are deleted by its topology master, which knows what is in progress; all
others are deleted here. Shared files go when no checkpoint of their folder names them any more; where the
metadata of a remaining checkpoint cannot be read, they stay.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from heronpy.ckpt.catalogue import Found
from heronpy.cli import exits
from heronpy.cli.checkpoints.view import View
from heronpy.clusters.checkpoint_log import used_locations
from heronpy.clusters.leftovers import clear_leftovers
from heronpy.proto import control_pb2
from heronpy.storage.locations import open_store
from heronpy.storage.objects.url import Place

DELETE_S = 60.0


@dataclass(slots=True)
class Outcome:
    """What was deleted, and what was kept and why."""

    deleted: list[Found] = field(default_factory=list)
    kept: list[tuple[Found, str]] = field(default_factory=list)


def older(view: View, age_s: float) -> list[Found]:
    """Checkpoints at least that old; with 0 all, including those whose age cannot be read."""
    limit = time.time() - age_s
    return [
        found for found in view.found if age_s == 0 or (found.metadata is not None and found.metadata.taken_at <= limit)
    ]


def remove(view: View, chosen: Iterable[Found], refuse: bool) -> Outcome:
    """Delete these; one that is in use is a Failure when `refuse` says so, else it is kept and named."""
    outcome, used = Outcome(), used_locations(view.session)
    current: list[Found] = []
    others: dict[Place, list[Found]] = {}
    for found in chosen:
        if found.location in used:
            why = "a running topology would be restored from it"
            if refuse:
                raise exits.Failure(f"{found.name} is not deleted, because {why}; kill the topology first")
            outcome.kept.append((found, why))
        elif view.record is not None and found.folder.name == view.record.topology_id:
            current.append(found)
        else:
            others.setdefault(found.folder, []).append(found)
    if current:
        request = control_pb2.DeleteCheckpoints(checkpoints=sorted(found.checkpoint for found in current))
        view.session.ask(view.topology, request, DELETE_S)
        outcome.deleted += current
    for folder, doomed in others.items():
        _remove_from(folder, doomed)
        outcome.deleted += doomed
    return outcome


def _remove_from(folder: Place, doomed: list[Found]) -> None:
    store = open_store(folder)
    for number in sorted(found.checkpoint for found in doomed):
        store.delete(number)
    clear_leftovers(folder)
