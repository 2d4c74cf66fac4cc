"""What a page says of tuples that are missing from a result."""

from __future__ import annotations

import pytest

from heronpy.proto import control_pb2
from heronpy.views.build_overview import losses_of, totals_of


@pytest.mark.parametrize(
    ("totals", "said"),
    [
        (control_pb2.TupleTotals(acked=10, failed=3), ""),
        (control_pb2.TupleTotals(dead_letters=1), "1 tuple"),
        (control_pb2.TupleTotals(dead_letters=1, lost=2, not_resent=1), "4 tuples"),
        (control_pb2.TupleTotals(lost=20, lost_estimated=True), "about 20 tuples"),
        (control_pb2.TupleTotals(lost=20, lost_estimated=True, lost_unknown=True), "an unknown number of tuples"),
    ],
)
def test_losses_are_said_in_words(totals: control_pb2.TupleTotals, said: str) -> None:
    assert losses_of(totals_of(totals)) == said
