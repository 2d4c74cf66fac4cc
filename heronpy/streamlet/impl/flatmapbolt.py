from heronpy.streamlet.operators import FlatMapBolt
from heronpy.streamlet.streamlet import FlatMapStreamlet

__all__ = ["FlatMapBolt", "FlatMapStreamlet"]
