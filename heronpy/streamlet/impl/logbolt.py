from heronpy.streamlet.operators import LogBolt
from heronpy.streamlet.streamlet import LogStreamlet

__all__ = ["LogBolt", "LogStreamlet"]
