from heronpy.streamlet.operators import PassBolt as RepartitionBolt
from heronpy.streamlet.operators import RepartitionCustomGrouping
from heronpy.streamlet.streamlet import RepartitionStreamlet

__all__ = ["RepartitionBolt", "RepartitionCustomGrouping", "RepartitionStreamlet"]
