from heronpy.streamlet.context import ContextImpl

__all__ = ["ContextImpl"]
