"""The tracker: one process that serves REST, live streams and pages of the topologies of its clusters.

It only asks: a tracker that is killed or hangs changes nothing in a topology. Starlette and uvicorn are imported by
`app` and `serve` alone.
"""
