from heronpy.streamlet.operators import MapBolt
from heronpy.streamlet.streamlet import MapStreamlet

__all__ = ["MapBolt", "MapStreamlet"]
