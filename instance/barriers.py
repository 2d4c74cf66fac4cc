"""Barriers at a bolt: frames of other attempts, alignment, and the records of an unaligned checkpoint.

Aligned barriers take effect when they come out of the queue; frames that are held back until then return their credit,
so that other sources can continue to send. Unaligned barriers take effect when they arrive: the bolt is cut between
two tuples. Until every barrier has arrived, the bolt then accepts all frames and returns their credit, even while its
own output is blocked. An aligned checkpoint may become unaligned while its barriers are on their way: a barrier
that has come out of the queue then counts as arrived.

Frames that are held back are set aside in the in-queue (in_queue.py), and go to its front when they are released.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from heronpy.proto import frame_pb2, plan_pb2
from heronpy.wire.frames import BARRIER, DATA, Frame

from .checkpoints import Checkpoints, Cut, CutPorts
from .in_queue import Aligner, Channels, Entry, InQueue, Recorder, Sized, Step
from .snapshots import Channel

if TYPE_CHECKING:
    from heronpy.ckpt.snapshot import TaskState


class BoltCheckpoints(Checkpoints):
    """The checkpoints of one bolt task."""

    is_source = False

    def __init__(
        self,
        ports: CutPorts,
        region: plan_pb2.RegionRecord,
        state: TaskState,
        sources: Iterable[int],
        queue: InQueue,
    ) -> None:
        super().__init__(ports, region, state)
        self.queue = queue
        self.aligner: Aligner[Sized] = Aligner(sources, state.settings.alignment_bytes_max)
        self.recorder: Recorder | None = None
        self._channels = Channels()
        #: The time when the alignment's first barrier left the queue, and the timeout in seconds for the rest.
        self._since = self._patience_s = 0.0

    # ---- frames in ----------------------------------------------------------------------------

    def restore(self) -> list[bytes]:
        """Restore the state; the frames that were in flight to this task at the checkpoint go first into the queue."""
        frames = super().restore()
        for data in frames:
            frame = Frame.FromString(data)
            frame.trace = 0  # its times are of another process, perhaps of another host
            frame.origin_ns = 0  # its age would be the age of the checkpoint
            self.queue.restore(frame, len(data))
        return frames

    def admit(self, frame: frame_pb2.Frame, size: int) -> None:
        """Accept a frame: queue data and barriers of this attempt, and return the credit for other frames."""
        if frame.attempt != self.attempt:
            if frame.kind in (DATA, BARRIER):
                tuples = frame.count - frame.skip
                self.queue.refuse(size, tuples)
                self.ports.metrics.count("__stateful_stale_tuples", "", tuples)
        elif frame.kind == BARRIER:
            self._put(frame, size)
            self._arrived(frame)
        elif frame.kind == DATA:
            self.finished_before = False
            self._channels.count(frame.source_task)
            self._put(frame, size)

    def _put(self, frame: frame_pb2.Frame, size: int) -> None:
        """Queue a frame; return its credit immediately while recording."""
        recorder = self.recorder
        self.queue.put(frame, size, settled=recorder is not None)
        if recorder is None:
            return
        if not recorder.arrived(size):
            self.recorder = None
            self.decline(recorder.checkpoint, self._too_much("save in-flight tuples of"))
        elif frame.kind == DATA and recorder.wants(frame.source_task):
            recorder.data(frame.SerializeToString(), frame.count - frame.skip)

    def _arrived(self, barrier: frame_pb2.Frame) -> None:
        checkpoint, source = barrier.checkpoint, barrier.source_task
        difference = self._channels.difference(source, barrier.channel_frames)
        recorder = self.recorder
        if recorder is not None and checkpoint > recorder.checkpoint:
            # The topology master has abandoned the older checkpoint.
            self.aborted(recorder.checkpoint)
            recorder = None
        if difference:
            self.decline(
                checkpoint,
                f"{abs(difference)} frames from task {source} to task {self.ports.name.instance_id} "
                f"{'are missing' if difference > 0 else 'came twice'}",
                lost_data=True,
            )
        elif recorder is not None and recorder.checkpoint == checkpoint:
            recorder.barrier(source)
            self._finish_recording(recorder)
        elif barrier.unaligned:
            self.ask(Cut(checkpoint, barrier.savepoint, True, time.monotonic()))

    def ask(self, cut: Cut) -> None:
        super().ask(cut)
        if self.due is cut and cut.unaligned:
            self.ports.control.interrupt()

    # ---- frames out of the queue ----------------------------------------------------------------

    def next(self) -> Entry | None:
        """Open the first frame of the queue. Returns None if the frame was held back or is a barrier, or if the caller
        must try again.
        """
        queue, first = self.queue, self.queue.waiting[0]
        step = self._data(first) if first.frame.kind == DATA else self._barrier(first.frame)
        if step is Step.PROCESS:
            return queue.next()
        if step is Step.HELD:
            queue.put_aside(queue.next())
        elif step not in (Step.FULL, Step.OVERTAKEN):
            queue.done(queue.next(), 0)
        return None

    def _data(self, entry: Entry) -> Step:
        aligner, frame = self.aligner, entry.frame
        step = aligner.data(frame.source_task, (frame, entry.size), entry.size)
        if step is Step.FULL:
            self.decline(aligner.checkpoint, self._too_much("hold back"))
        return step

    def _barrier(self, barrier: frame_pb2.Frame) -> Step:
        if barrier.unaligned:
            return Step.IGNORED
        aligner, settings = self.aligner, self.settings
        step = aligner.barrier(barrier.source_task, barrier.checkpoint)
        if step is Step.OVERTAKEN:
            self.queue.put_first(aligner.end())
        elif step is not Step.IGNORED and len(aligner.blocked) == 1:
            self._since = time.monotonic()
            self._patience_s = settings.savepoint_timeout_s if barrier.savepoint else settings.timeout_s
        if step is Step.CUT:
            self.ask(Cut(barrier.checkpoint, barrier.savepoint, False, self._since))
        return step

    def check(self, now: float) -> None:
        """Release held frames after the timeout of a checkpoint, even without a topology master."""
        aligner = self.aligner
        if aligner.checkpoint and now - self._since > self._patience_s:
            missing = ", ".join(map(str, sorted(aligner.sources - aligner.blocked)))
            self.decline(
                aligner.checkpoint,
                f"task {self.ports.name.instance_id} got no barrier from task {missing} within {self._patience_s:g} s",
            )

    def held_bytes(self) -> int:
        """Return the number of bytes that are held back or recorded now."""
        recorder = self.recorder
        return self.aligner.held_bytes + (recorder.bytes if recorder is not None else 0)

    def _too_much(self, what: str) -> str:
        return (
            f"task {self.ports.name.instance_id} would have to {what} more than {self.aligner.bytes_max} bytes; "
            "raise heron.checkpoint.alignment_bytes_max or reduce the load"
        )

    # ---- the cut ------------------------------------------------------------------------------

    def after_start(self, cut: Cut) -> None:
        if cut.unaligned:
            self._record(cut.checkpoint)

    def after_cut(self, cut: Cut) -> None:
        self.queue.put_first(self.aligner.abort(cut.checkpoint))

    def _record(self, checkpoint: int) -> None:
        """Record all waiting frames that precede their source's barrier: they belong to the checkpoint."""
        queue, aligner = self.queue, self.aligner
        # The sources whose barrier came out of the queue while the checkpoint was still aligned.
        passed = set(aligner.blocked) if aligner.checkpoint == checkpoint else set()
        # Frames that an older alignment held back arrived before everything in the queue.
        queue.put_first(aligner.abort(checkpoint))
        recorder = Recorder(checkpoint, aligner.sources - passed, aligner.bytes_max)
        fits = True
        for entry in queue.opened():
            rest = entry.rest()
            fits = recorder.arrived(len(rest.payload))
            recorder.data(rest.SerializeToString(), entry.left)
        for entry in queue.waiting:
            frame = entry.frame
            if frame.kind == BARRIER:
                if frame.checkpoint == checkpoint:
                    recorder.barrier(frame.source_task)
                continue
            fits = recorder.arrived(entry.size)
            if recorder.wants(frame.source_task):
                recorder.data(frame.SerializeToString(), entry.tuples)
        if not fits:
            self.decline(checkpoint, self._too_much("save in-flight tuples of"))
            return
        queue.settle_all()
        self.recorder = recorder
        self._finish_recording(recorder)

    def _finish_recording(self, recorder: Recorder) -> None:
        if recorder.complete:
            self.recorder = None
            self.writer.recorded(recorder.checkpoint, Channel(recorder.frames, recorder.tuples))

    def aborted(self, checkpoint: int) -> None:
        if self.recorder is not None and self.recorder.checkpoint <= checkpoint:
            self.recorder = None
        self.queue.put_first(self.aligner.abort(checkpoint))
        super().aborted(checkpoint)
