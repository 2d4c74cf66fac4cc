"""`heron load-test batch`, `batch_straggler`, `batch_handover`: what batch runs cost, also under failures."""

#: Of `batch`, in the order in which they run.
SCENES = ("cost", "small", "kills", "failed", "preempted", "exchange", "history")
