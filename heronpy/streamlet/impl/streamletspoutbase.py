from heronpy.streamlet.operators import StreamletSpoutBase

__all__ = ["StreamletSpoutBase"]
