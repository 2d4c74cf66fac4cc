from heronpy.streamlet.sources import GeneratorSpout
from heronpy.streamlet.streamlet import GeneratorStreamlet

__all__ = ["GeneratorSpout", "GeneratorStreamlet"]
