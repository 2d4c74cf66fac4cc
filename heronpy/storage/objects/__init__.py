"""One interface to places where hosts keep common files: a folder or an object store (S3, GCS, Azure).

`port` defines the seven calls and their errors, `url` the names of places, and `opening` opens a place.
"""
