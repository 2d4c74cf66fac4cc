"""Load tests: named profiles that run real topologies and measure them from outside and inside."""
