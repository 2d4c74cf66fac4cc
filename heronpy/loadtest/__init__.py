"""Load tests: named profiles run against real topologies, measured from outside and inside."""
