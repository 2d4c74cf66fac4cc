"""The oracle: a seeded input, a sink that records arrivals, and a verifier that recomputes all results from the seed.

To verify your own topologies, use `SeededSource` and `VerifiedSink`, configured by
`InputSpec(...).config(folder)`; `heron verify check folder` checks the records.
"""

from __future__ import annotations

from heronpy.verify.components import SeededSource, VerifiedSink
from heronpy.verify.stream import InputSpec

__all__ = ["InputSpec", "SeededSource", "VerifiedSink"]
