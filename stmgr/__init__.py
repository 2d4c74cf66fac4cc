"""The stream manager: one process per container that switches frames between tasks and peers."""
