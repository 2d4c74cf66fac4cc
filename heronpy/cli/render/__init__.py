"""Plans, states and checkpoints as tables, sentences and JSON."""
