"""The tracker: one process that serves REST, live streams and pages of the topologies of its clusters.

A tracker that is killed or hangs does not affect any topology, because it only sends requests. Only `app` and `serve`
import Starlette and uvicorn.
"""
