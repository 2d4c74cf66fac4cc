"""The parts of a task that do not depend on its process: user code, emit, groupings, and tuples in frames."""
