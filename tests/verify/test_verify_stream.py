"""The input of a verification is a function of its seed, and both ways to compute it agree (3.3)."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heronpy.common.errors import ConfigError
from heronpy.verify.stream import InputSpec, Partition, expected_totals, key_text, spec_of

SPECS = st.builds(
    InputSpec,
    seed=st.integers(-(1 << 63), 1 << 63),
    partitions=st.integers(1, 4),
    count=st.integers(1, 300),
    keys=st.integers(1, 50),
    payload_bytes=st.integers(8, 40),
    hot_share=st.sampled_from([0.0, 0.5, 1.0]),
    zipf=st.sampled_from([0.0, 0.7, 1.2]),
)


@given(SPECS)
def test_scalar_and_vector_forms_agree(spec: InputSpec) -> None:
    for number in range(spec.partitions):
        partition = Partition(spec, number)
        hashed = partition.hashes(np.arange(spec.count, dtype=np.uint64))
        keys, crcs = partition.keys(hashed), partition.crcs(hashed)
        for seq in range(spec.count):
            got_partition, got_seq, key, payload, crc = partition.tuple(seq)
            assert (got_partition, got_seq, key, crc) == (number, seq, key_text(int(keys[seq])), int(crcs[seq]))
            assert len(payload) == spec.payload_bytes and zlib.crc32(payload) == crc


@given(SPECS)
def test_totals_are_those_of_the_tuples(spec: InputSpec) -> None:
    counts: dict[str, int] = {}
    sums: dict[str, int] = {}
    for number in range(spec.partitions):
        for seq in range(spec.count):
            _, _, key, _, crc = Partition(spec, number).tuple(seq)
            counts[key] = counts.get(key, 0) + 1
            sums[key] = sums.get(key, 0) + crc
    totals = expected_totals(spec)
    assert {key_text(n): int(c) for n, c in enumerate(totals.counts) if c} == counts
    assert {key_text(n): int(s) for n, s in enumerate(totals.sums) if s} == sums


def test_another_seed_is_another_input() -> None:
    one, other = (Partition(InputSpec(seed=seed), 0) for seed in (1, 2))
    assert [one.tuple(n) for n in range(20)] != [other.tuple(n) for n in range(20)]
    assert Partition(InputSpec(), 0).tuple(3)[3] != Partition(InputSpec(), 1).tuple(3)[3]


def test_hot_and_zipf_shares_are_what_they_say() -> None:
    hot = expected_totals(InputSpec(count=20_000, partitions=1, hot_share=0.9)).counts
    assert 0.89 < hot[0] / hot.sum() < 0.91
    zipf = expected_totals(InputSpec(count=20_000, partitions=1, keys=100, zipf=1.2)).counts
    assert 2.0 < zipf[0] / zipf[1] < 2.6, "the second key of Zipf 1.2 comes 2.3 times as rarely"


@pytest.mark.parametrize("wrong", [{"count": 0}, {"keys": 0}, {"payload_bytes": 7}, {"hot_share": 1.5}, {"rate": -1}])
def test_an_impossible_input_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        spec_of(wrong)
