from heronpy.streamlet.operators import KeyGrouping as ReduceGrouping
from heronpy.streamlet.streamlet import ReduceByWindowStreamlet
from heronpy.streamlet.windowed import ReduceByWindowBolt

__all__ = ["ReduceByWindowBolt", "ReduceByWindowStreamlet", "ReduceGrouping"]
