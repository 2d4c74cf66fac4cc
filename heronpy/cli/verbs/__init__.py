"""The verbs of `heron`, one file each: flags and help. A verb imports its implementation when it runs."""
