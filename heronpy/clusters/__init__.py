"""Access to a cluster for programs: settings, records in the state manager, masters, changes to topologies.

This package prints nothing. Each error is a HeronError with one sentence. Callers pass functions for other messages.
"""
