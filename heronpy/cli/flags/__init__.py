"""Arguments, flags and completion that verbs share."""
