from heronpy.streamlet.operators import StreamletBoltBase

__all__ = ["StreamletBoltBase"]
