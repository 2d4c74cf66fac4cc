"""`python -m heronpy.ckpt.replicator --launch F --epoch E`: copies one topology's checkpoints to a second store.

The replicator is a separate process in container 0, outside the data path. It follows the record of complete
checkpoints in the state manager and copies files from store to store (replication.py). If it dies, hangs or lags, the
topology is not affected; its next incarnation continues from the content of the replica. It runs only if
`heron.checkpoint.replica` is set.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
import threading
import time

import zmq
from google.protobuf.message import DecodeError
from msgspec.structs import asdict

from heronpy.ckpt.replication import Replicator
from heronpy.common import logs
from heronpy.common.errors import ConfigError, HeronError, StateError
from heronpy.common.exit_codes import FAILURE, OK, USAGE
from heronpy.common.setting_types import CheckpointSettings, LoggingSettings
from heronpy.common.settings import settings_for
from heronpy.net.rpc import seal, wrap
from heronpy.net.state import open_state_of
from heronpy.net.transport import connect
from heronpy.net.zsock import configure
from heronpy.plan.launch import LaunchSpec
from heronpy.procs import sampler
from heronpy.proto import control_pb2
from heronpy.proto.checkpoint_pb2 import CheckpointLog, CheckpointRecord
from heronpy.statemgr import paths
from heronpy.statemgr.base import StateManager
from heronpy.storage.checkpoint_files import StoreError
from heronpy.storage.objects.port import ObjectsError
from heronpy.storage.stores import open_replica

log = logging.getLogger("heronpy.ckpt")

PROCESS = "checkpoint-replicator"
#: Seconds after which the record is read again, even without a notification.
LOOK_S = 1.0
#: Seconds after which a failed copy is retried if there is no newer checkpoint.
RETRY_S = 30.0


class ReplicaReports:
    """Sends metrics to the executor of container 0 without waiting for a reply."""

    def __init__(self, sockets_dir: str, epoch: int) -> None:
        self._epoch = epoch
        self._sock = configure(zmq.Context.instance().socket(zmq.PUSH), heartbeat=False)
        connect(self._sock, f"ipc://{os.path.join(sockets_dir, 'executor-0.metrics')}")

    def send(self, replicator: Replicator) -> None:
        samples = [
            control_pb2.Sample(name=f"__replica/__{name}", type=control_pb2.Sample.COUNTER, value=value)
            for name, value in asdict(replicator.counts).items()
        ]
        samples.append(
            control_pb2.Sample(name="__replica/__newest", type=control_pb2.Sample.GAUGE, value=replicator.newest)
        )
        report = control_pb2.MetricsReport(process=PROCESS, epoch=self._epoch, pid=os.getpid(), samples=samples)
        try:
            self._sock.send(seal(wrap(report)), zmq.DONTWAIT)
        except zmq.Again:
            log.debug("no executor accepts reports now")

    def close(self) -> None:
        self._sock.close()


class ReplicaService:
    """Follows one topology's record of complete checkpoints until `stop` is set."""

    def __init__(
        self, launch: LaunchSpec, settings: CheckpointSettings, state: StateManager, reports: ReplicaReports
    ) -> None:
        target = open_replica(launch.topology_id, settings)
        self._launch = launch
        self._state = state
        self._reports = reports
        self._changed = threading.Event()
        self._tried_at = 0.0
        #: The records for which all copies are complete.
        self._followed: list[CheckpointRecord] | None = None
        self.stop = threading.Event()
        self.replicator = Replicator(target, settings.replica_threads)

    def run(self) -> None:
        """Copy checkpoints until stopped."""
        watch = self._state.watch(paths.checkpoints(self._launch.topology), lambda _: self._changed.set())
        try:
            while not self.stop.is_set():
                self._changed.clear()
                if not self._turn():
                    self._reports.send(self.replicator)
                    self._changed.wait(LOOK_S)
            if records := self._records():
                with contextlib.suppress(ObjectsError, StoreError):  # the next replicator removes the files
                    self.replicator.finish(records)
        finally:
            watch.cancel()
            self.replicator.close()

    def ask_to_stop(self) -> None:
        """Make `run` return soon. The copy in progress is abandoned and stays invisible."""
        self.stop.set()
        self._changed.set()
        self.replicator.give_up()

    def _turn(self) -> bool:
        records = self._records()
        if records is None:
            return False
        now = time.monotonic()
        again = now - self._tried_at > RETRY_S
        if records == self._followed and not again:
            return False  # checking the target may cost a request
        try:
            copied = self.replicator.follow(records)
        except (ObjectsError, StoreError) as error:
            log.warning("the replica cannot be used; trying again: %s", error)
            self.replicator.counts.checkpoints_failed += 1
            self._tried_at, self._followed = now, records
            return False
        if copied is not None:
            self._tried_at = now
            self._reports.send(self.replicator)
            return True
        self._followed = records
        if again:
            self._tried_at = now
            self._followed = None
            self.replicator.retry()
        return False

    def _records(self) -> list[CheckpointRecord] | None:
        """Return the complete checkpoints; None while the state manager has not answered."""
        try:
            found = self._state.get(paths.checkpoints(self._launch.topology))
            content = CheckpointLog.FromString(found[0]) if found else None
        except (StateError, DecodeError) as error:
            log.warning("the record of checkpoints cannot be read; trying again: %s", error)
            return None
        # A later topology of the same name has a separate replicator.
        if content is None or content.topology_id not in ("", self._launch.topology_id):
            return None
        return list(content.complete)


def main(argv: list[str] | None = None) -> int:
    """Run the replicator; return the exit code of the process."""
    parser = argparse.ArgumentParser(prog="python -m heronpy.ckpt.replicator", description=__doc__)
    parser.add_argument("--launch", required=True, help="launch file of the topology")
    parser.add_argument("--epoch", required=True, type=int, help="incarnation of this process")
    arguments = parser.parse_args(argv)
    try:
        launch = LaunchSpec.load(arguments.launch)
        logs.setup(PROCESS, settings_for(launch, LoggingSettings).level)
        sampler.install(launch.sockets_dir)
        settings = settings_for(launch, CheckpointSettings)
        if not settings.replica:
            raise ConfigError("heron.checkpoint.replica is not set; give the folder or URL of the second store")
        state = open_state_of(launch)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return int(USAGE)
    except HeronError as error:
        log.error("%s", error)
        return int(FAILURE)
    reports = ReplicaReports(launch.sockets_dir, arguments.epoch)
    try:
        service = ReplicaService(launch, settings, state, reports)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: service.ask_to_stop())
        log.info("copies checkpoints of %s to %s", launch.topology, settings.replica)
        service.run()
        return int(OK)
    except HeronError as error:
        log.error("%s", error)
        return int(FAILURE)
    finally:
        reports.close()
        state.close()


if __name__ == "__main__":
    sys.exit(main())
