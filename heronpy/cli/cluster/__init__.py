"""What a verb needs of a cluster: its settings, its records in the state manager, its masters."""
