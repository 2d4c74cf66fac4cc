from heronpy.streamlet.operators import KeyGrouping as JoinGrouping
from heronpy.streamlet.streamlet import JoinStreamlet
from heronpy.streamlet.windowed import JoinBolt

__all__ = ["JoinBolt", "JoinGrouping", "JoinStreamlet"]
