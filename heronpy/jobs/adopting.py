"""Makes a job from a running topology: its program becomes the definition, and its state becomes the desired state."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from heronpy.clusters.errors import ClusterError, NotThereError
from heronpy.clusters.session import Session
from heronpy.common.errors import NodeExistsError
from heronpy.jobs.documents import leaves_of
from heronpy.jobs.driver import TopologyDriver, current_topology, definition_of, own_leaves
from heronpy.jobs.plans import pairs_of
from heronpy.jobs.store import Store
from heronpy.jobs.syncer import Running
from heronpy.launching import submission
from heronpy.launching.model import Kept
from heronpy.plan.component_config import config_of
from heronpy.proto import topology_pb2
from heronpy.statemgr import paths

#: Configuration key of demonstration programs: the length of one daily cycle of the load.
DAY_KEY: Final = "scale.day_s"


def layer_of(topology: topology_pb2.Topology, digest: str) -> dict[str, Any]:
    """Return layer provisioner for a program: its digest and, if the program sets DAY_KEY, the length of a day."""
    day_s = config_of(topology).get(DAY_KEY)
    return {"definition": digest, "scale": {} if day_s is None else {"day_s": day_s}}


def adopt(session: Session, store: Store, name: str, who: str, why: str) -> None:
    """Make a job from a running topology, which stays unchanged. Raises HeronError if starting the job would not
    reproduce the topology.
    """
    # Under the lock, no other command submits, updates or ends the topology.
    with session.operation(name):
        record = session.find(name)
        if session.state.exists(paths.job(name)):
            raise NodeExistsError(
                f"topology '{name}' already has a job; show it: heron job show {session.target} {name}"
            )
        driver = TopologyDriver(
            session.target, msgspec.structs.replace(session.common, config_property=()), session.state
        )
        if not driver.see(name, {}).alive:
            raise ClusterError(
                f"topology '{name}' has ended, so there is nothing to adopt; remove it with heron kill {session.target}"
                f" {name} and create a job from its program: heron job create {session.target} PROGRAM"
            )
        submitted = session.submitted(name)
        if submitted is None or submitted.topology_id != record.topology_id:
            raise NotThereError(f"the program of topology '{name}' is not stored, so a job could not restart it")
        kept = msgspec.convert(submitted, Kept, from_attributes=True)
        topology = current_topology(session, record)
        digest = store.define(definition_of(topology, kept, record.role, record.environ))
        place, planned, _ = driver.prepared(name, {("definition",): digest}, record.topology_id)
        submission.kept_here(kept, "submit the topology again")
        again = submission.submitted_of(place, planned, kept).settings
        layer = layer_of(topology, digest)
        # Settings that are not in the cluster's files, such as settings from the command line of the submit.
        layer["settings"] = {
            f"heron.{room}.{key}": value
            for room, values in submitted.settings.items()
            for key, value in values.items()
            if again[room].get(key) != value
        }
        if topology.state == topology_pb2.PAUSED:
            layer["run"] = "paused"
        leaves = leaves_of(layer, "provisioner")
        running = Running("", record.topology_id, pairs_of(own_leaves(topology, leaves) | leaves), {}, "IN_SYNC")
        store.create(name, {"provisioner": layer}, who, why, running)
