"""The `heron` command. Nothing here is importable API: programs use heronpy.api and the wire protocol."""
