"""The oracle: a seeded input, a sink that keeps records, and a verifier that recomputes everything from the seed.

To verify your own topologies, use `SeededSource` and `VerifiedSink`, configured by
`InputSpec(...).config(folder)`; `heron verify check folder` checks the records.
"""

from __future__ import annotations

from heronpy.verify.components import SeededSource, VerifiedSink
from heronpy.verify.stream import InputSpec

__all__ = ["InputSpec", "SeededSource", "VerifiedSink"]
