"""The verbs of `heron`, a file each: flags and help. Each imports the module that does its work when it runs."""
