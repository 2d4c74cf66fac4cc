"""`heron load-test batch`, `batch_straggler`, `batch_handover`: the cost of batch runs, with and without failures."""

#: Scenes of `batch`, in the order in which they run.
SCENES = ("cost", "small", "kills", "failed", "preempted", "exchange", "history")
