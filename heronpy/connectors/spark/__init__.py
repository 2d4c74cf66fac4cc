"""Spark for topologies: the SparkSink bolt, and checks of Spark's requirements on this machine.

This package never imports pyspark: sink tasks hand Arrow files to the topology's Spark gateway (heronpy.spark).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heronpy.connectors.spark.requirements import check_spark, needs_spark

if TYPE_CHECKING:
    from heronpy.connectors.spark.sink import SparkSink

__all__ = ["SparkSink", "check_spark", "needs_spark"]


def __getattr__(name: str) -> Any:
    if name == "SparkSink":
        from heronpy.connectors.spark.sink import SparkSink

        return SparkSink
    raise AttributeError(f"module {__name__} has no attribute {name}")
