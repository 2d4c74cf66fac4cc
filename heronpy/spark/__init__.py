"""The Spark gateway: one driver per topology, which aggregates the micro-batches of the topology's sink tasks.

The runtime imports pyspark only in this package, when a session starts.
"""
