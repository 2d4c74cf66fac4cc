"""One port to wherever several hosts keep common files: a folder or an object store (S3, GCS, Azure).

`port` has the seven calls and what may go wrong, `url` the names of places, `opening` makes the port of a place.
"""
