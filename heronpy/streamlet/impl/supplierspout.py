from heronpy.streamlet.operators import SupplierSpout
from heronpy.streamlet.streamlet import SupplierStreamlet

__all__ = ["SupplierSpout", "SupplierStreamlet"]
