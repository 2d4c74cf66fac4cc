"""The common parts of spouts and bolts."""
