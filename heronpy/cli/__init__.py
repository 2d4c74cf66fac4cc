"""The `heron` command. This package has no importable API: programs use heronpy.api and the wire protocol."""
