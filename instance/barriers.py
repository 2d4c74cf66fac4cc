"""Barriers at a bolt: frames of other attempts, alignment, and what an unaligned checkpoint records.

Aligned barriers act when they come out of the queue; frames that are held back meanwhile return their
credit, so that the other sources flow. Unaligned ones act when they arrive: the bolt is cut between two
tuples, and from then on it takes in, and gives credit for, all that comes until every barrier is there,
whatever its own output is stuck behind (F38).

Invariant: the credit of exactly the first `task.settled` frames (those in progress, then the queue) has
been returned. What is held back is settled, and goes to the front of the queue when it is released.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from heronpy.proto import frame_pb2, plan_pb2
from heronpy.wire.frames import BARRIER, DATA, Frame

from .alignment import Aligner, Channels, Recorder, Step
from .checkpoints import Checkpoints, Cut
from .routing import upstream_tasks
from .snapshots import Channel

if TYPE_CHECKING:
    from .bolt_loop import BoltTask

    Waiting = tuple[frame_pb2.Frame, int]


class BoltCheckpoints(Checkpoints):
    """The checkpoints of one bolt task."""

    is_source = False
    task: BoltTask

    def __init__(self, task: BoltTask, plan: plan_pb2.PhysicalPlan, region: Any, settings: Any) -> None:
        super().__init__(task, plan, region, settings)
        self.aligner: Aligner[Waiting] = Aligner(upstream_tasks(plan, task.component), settings.alignment_bytes_max)
        self.recorder: Recorder | None = None
        self._channels = Channels()
        #: When the first barrier of the alignment came out of the queue, and how long the rest may take.
        self._since = self._patience_s = 0.0

    # ---- frames in ----------------------------------------------------------------------------

    def take_restored(self, frames: list[bytes]) -> None:
        """What was on its way to this task when the checkpoint was taken goes first."""
        task = self.task
        for data in frames:
            frame = Frame.FromString(data)
            task.queue.append((frame, len(data)))
            task.settled += 1
            task.progress.in_tuples += frame.count - frame.skip
            task.progress.in_bytes += len(data)

    def admit(self, frame: frame_pb2.Frame, size: int) -> bool:
        """A frame arrived: True for data of this attempt, which goes to the queue."""
        link = self.task.link
        if frame.attempt != self.attempt:
            if frame.kind in (DATA, BARRIER):
                tuples = frame.count - frame.skip
                link.received_bytes += size
                link.received_tuples += tuples
                link.consumed(size, tuples)
                self.task.metrics.count("__stateful_stale_tuples", "", tuples)
            return False
        if frame.kind == BARRIER:
            self._arrived(frame, size)
            return False
        self.finished_before = False
        self._channels.count(frame.source_task)
        return True

    def queued(self, frame: frame_pb2.Frame, size: int) -> None:
        """A frame of this attempt was put into the queue; while recording its credit goes back at once."""
        recorder = self.recorder
        if recorder is None:
            return
        tuples = frame.count - frame.skip
        self.task.settled += 1
        self.task.link.consumed(size, tuples)
        if not recorder.arrived(size):
            self.recorder = None
            self.decline(recorder.checkpoint, self._too_much("save as under way"))
        elif frame.kind == DATA and recorder.wants(frame.source_task):
            recorder.data(frame.SerializeToString(), tuples)

    def _arrived(self, barrier: frame_pb2.Frame, size: int) -> None:
        task, checkpoint, source = self.task, barrier.checkpoint, barrier.source_task
        task.link.received_bytes += size
        task.progress.in_bytes += size
        task.queue.append((barrier, size))
        self.queued(barrier, size)
        difference = self._channels.difference(source, barrier.channel_frames)
        recorder = self.recorder
        if recorder is not None and checkpoint > recorder.checkpoint:
            # The topology master has given up the older one.
            self.aborted(recorder.checkpoint)
            recorder = None
        if difference:
            self.decline(
                checkpoint,
                f"{abs(difference)} frames from task {source} to task {task.instance_id} "
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
            # Code that works through a large chunk is to come out between two tuples.
            self.task.control.inbox.append(("late", None))

    # ---- frames out of the queue ----------------------------------------------------------------

    def opens(self, frame: frame_pb2.Frame, size: int) -> bool:
        """A frame came out of the queue: True when it is data to process now."""
        task, aligner = self.task, self.aligner
        if frame.kind == DATA:
            step = aligner.data(frame.source_task, (frame, size), size)
            if step is Step.HELD:
                task.put_aside(size, frame.count - frame.skip)
            elif step is Step.FULL:
                task.queue.appendleft((frame, size))
                self.decline(aligner.checkpoint, self._too_much("hold back"))
            return step is Step.PROCESS
        step = Step.IGNORED
        if not frame.unaligned:
            step = aligner.barrier(frame.source_task, frame.checkpoint)
        if step is Step.OVERTAKEN:
            task.queue.appendleft((frame, size))
            self._release(aligner.end())
            return False
        if step in (Step.NOTED, Step.CUT) and len(aligner.blocked) == 1:
            self._since = time.monotonic()
            settings = self.settings
            self._patience_s = settings.savepoint_timeout_s if frame.savepoint else settings.timeout_s
        if step is Step.CUT:
            self.ask(Cut(frame.checkpoint, frame.savepoint, False, self._since))
        task.progress.in_bytes -= size
        task.put_aside(size, 0)
        return False

    def check(self, now: float) -> None:
        """Hold nothing back for longer than a checkpoint may take, also while there is no topology master."""
        aligner = self.aligner
        if aligner.checkpoint and now - self._since > self._patience_s:
            missing = ", ".join(map(str, sorted(aligner.sources - aligner.blocked)))
            self.decline(
                aligner.checkpoint,
                f"task {self.task.instance_id} had no barrier of task {missing} within {self._patience_s:g} s",
            )

    def _release(self, held: list[Waiting]) -> None:
        """What was held back goes first."""
        self.task.put_first(held)

    def held_bytes(self) -> int:
        """Bytes held back or recorded now."""
        recorder = self.recorder
        return self.aligner.held_bytes + (recorder.bytes if recorder is not None else 0)

    def _too_much(self, what: str) -> str:
        return (
            f"task {self.task.instance_id} would have to {what} more than {self.aligner.bytes_max} bytes; "
            "raise heron.checkpoint.alignment_bytes_max or lessen the load"
        )

    # ---- the cut ------------------------------------------------------------------------------

    def after_start(self, cut: Cut) -> None:
        if cut.unaligned:
            self._record(cut.checkpoint)

    def after_cut(self, cut: Cut) -> None:
        self._release(self.aligner.abort(cut.checkpoint))

    def _record(self, checkpoint: int) -> None:
        """Everything here that lies before its source's barrier belongs to the checkpoint, too."""
        task = self.task
        # What an older alignment held back came before everything in the queue.
        self._release(self.aligner.abort(checkpoint))
        recorder = Recorder(checkpoint, self.aligner.sources, self.aligner.bytes_max)
        fits = True
        rest = task.rest_of_current()
        if rest is not None:
            fits = recorder.arrived(len(rest.payload))
            recorder.data(rest.SerializeToString(), rest.count - rest.skip)
        for frame, size in task.queue:
            if frame.kind == BARRIER:
                if frame.checkpoint == checkpoint:
                    recorder.barrier(frame.source_task)
                continue
            fits = recorder.arrived(size)
            if recorder.wants(frame.source_task):
                recorder.data(frame.SerializeToString(), frame.count - frame.skip)
        if not fits:
            self.decline(checkpoint, self._too_much("save as under way"))
            return
        task.settle_queue()
        self.recorder = recorder
        self._finish_recording(recorder)

    def _finish_recording(self, recorder: Recorder) -> None:
        if recorder.complete:
            self.recorder = None
            self.writer.recorded(recorder.checkpoint, Channel(recorder.frames, recorder.tuples))

    def aborted(self, checkpoint: int) -> None:
        if self.recorder is not None and self.recorder.checkpoint <= checkpoint:
            self.recorder = None
        self._release(self.aligner.abort(checkpoint))
        super().aborted(checkpoint)
