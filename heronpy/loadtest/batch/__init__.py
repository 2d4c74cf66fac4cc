"""`heron load-test batch`, `batch_straggler`, `batch_handover`: what batch runs cost, and how they stand failures."""
