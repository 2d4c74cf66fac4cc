"""What a task is apart from its process: user code, emit, groupings, and tuples in frames."""
