"""Access to a cluster for programs: settings, records in the state manager, masters, changes to topologies.

This package prints nothing: each error is a HeronError of one sentence, and callers pass a function for messages.
"""
