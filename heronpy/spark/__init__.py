"""The Spark gateway: one driver per topology that aggregates the micro-batches of its sink tasks.

It is the only package that imports pyspark, and only in session.py when the session starts.
"""
