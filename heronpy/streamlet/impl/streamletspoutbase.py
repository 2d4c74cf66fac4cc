from heronpy.streamlet.sources import StreamletSpoutBase

__all__ = ["StreamletSpoutBase"]
