from heronpy.streamlet.operators import KeyGrouping as ReduceGrouping
from heronpy.streamlet.streamlet import ReduceByKeyAndWindowStreamlet
from heronpy.streamlet.windowed import ReduceByKeyAndWindowBolt

__all__ = ["ReduceByKeyAndWindowBolt", "ReduceByKeyAndWindowStreamlet", "ReduceGrouping"]
