from heronpy.streamlet.operators import GeneratorSpout
from heronpy.streamlet.streamlet import GeneratorStreamlet

__all__ = ["GeneratorSpout", "GeneratorStreamlet"]
