"""State of stateful components."""
