"""A PostgreSQL server of the tests' own; see `heronpy.verify.units.server`."""

from heronpy.verify.units.server import PostgresServer, why_not

__all__ = ["PostgresServer", "why_not"]
