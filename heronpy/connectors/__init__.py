"""Sources and sinks ready to use."""
