"""`heron load-test batch`, `batch_straggler`, `batch_handover`: what batch runs cost, and how they stand failures."""

#: Of `batch`, in the order in which they run.
SCENES = ("cost", "small", "kills", "failed", "preempted", "history")
