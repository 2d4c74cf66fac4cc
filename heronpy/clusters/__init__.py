"""Access to a cluster for programs: settings, records in the state manager, masters, changes of topologies.

Nothing here prints: each error is a HeronError of one sentence, and messages for people go to a function of the caller.
"""
