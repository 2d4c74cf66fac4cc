from heronpy.streamlet.operators import PassBolt as UnionBolt
from heronpy.streamlet.streamlet import UnionStreamlet

__all__ = ["UnionBolt", "UnionStreamlet"]
