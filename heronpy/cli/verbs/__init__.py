"""The verbs of `heron`, one file each: flags and help. Each imports the module that does its work when it runs."""
