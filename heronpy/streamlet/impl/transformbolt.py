from heronpy.streamlet.operators import TransformBolt
from heronpy.streamlet.streamlet import TransformStreamlet

__all__ = ["TransformBolt", "TransformStreamlet"]
