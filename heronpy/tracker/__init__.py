"""The tracker: a process that serves a REST API, live streams and web pages for its clusters' topologies.

A tracker that is killed or hangs does not affect any topology, because it only sends requests. Only `app` and `serve`
import Starlette and uvicorn.
"""
