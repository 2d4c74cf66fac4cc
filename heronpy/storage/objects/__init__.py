"""One interface for files that hosts share: in a folder, or in an object store (S3, GCS, Azure).

`port` defines the calls and their errors, `url` defines the names of places, and `opening` opens a place.
"""
