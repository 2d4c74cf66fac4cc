"""What a program needs of a cluster: settings, records in the state manager, masters, changes of topologies.

Nothing here prints: each error is a HeronError of one sentence, and each text that a person should see goes to a
function of the caller.
"""
