from heronpy.streamlet.operators import ConsumeBolt
from heronpy.streamlet.streamlet import ConsumeStreamlet

__all__ = ["ConsumeBolt", "ConsumeStreamlet"]
