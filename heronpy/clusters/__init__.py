"""Access to a cluster for programs: settings, records in the state manager, masters, changes to topologies.

This package prints nothing. Errors (HeronError) have one-sentence messages. Other messages go to callers' functions.
"""
