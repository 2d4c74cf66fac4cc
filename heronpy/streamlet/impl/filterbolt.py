from heronpy.streamlet.operators import FilterBolt
from heronpy.streamlet.streamlet import FilterStreamlet

__all__ = ["FilterBolt", "FilterStreamlet"]
