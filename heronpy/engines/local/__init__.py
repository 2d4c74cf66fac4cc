"""This machine as an engine: containers are processes that outlive their scheduler."""
