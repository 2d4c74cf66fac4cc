"""The oracle: a seeded input, a sink that keeps records, and a verifier that recomputes everything from the seed.

For topologies of your own: `SeededSource` and `VerifiedSink`, both configured by `InputSpec(...).config(folder)`;
`heron verify check folder` judges the records.
"""

from __future__ import annotations

from heronpy.verify.sink import VerifiedSink
from heronpy.verify.source import SeededSource
from heronpy.verify.stream import InputSpec

__all__ = ["InputSpec", "SeededSource", "VerifiedSink"]
