"""Fixtures of the fault tests: `heron verify` as a user runs it, in a home of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Heron

Verify = Callable[..., list[dict[str, Any]]]

#: Said when this host forbids what a fault needs; the fault cannot be done then.
FORBIDDEN = "a small disk needs root"


@pytest.fixture
def verify(home: Path) -> Verify:
    """Run faults under the oracle; the result documents of runs that were right."""
    command = Heron(home)

    def run(
        mode: str, *faults: str, together: bool = False, timeout_s: float = 280, **flags: object
    ) -> list[dict[str, Any]]:
        words: list[object] = ["verify", "run", "--json", "--mode", mode]
        for fault in faults:
            words += ["--fault", fault]
        words += ["--together"] * together
        for name, value in {"duration": 3, "baseline": 1, **flags}.items():
            words += [f"--{name}"] if value is True else [f"--{name}", value]
        done = command(*words, timeout_s=timeout_s)
        if FORBIDDEN in done.err:
            pytest.skip(f"this host does not allow it: {done.err.strip().splitlines()[-1]}")
        print(f"\n{done.err}")
        assert done.out, done
        documents: list[dict[str, Any]] = json.loads(done.out)
        for one in documents:
            print(five_numbers(one))
        assert done.code == 0, f"{done.err}\n{[one['verdict'] for one in documents if not one['ok']]}"
        return documents

    return run


def five_numbers(document: dict[str, Any]) -> str:
    """Loss, duplicates, exactness, order, liveness, memory and the recovery time of a run (3.3)."""
    from heronpy.verify.tables import COLUMNS, row

    return ", ".join(f"{name} {cell}" for name, cell in zip(COLUMNS, row(document), strict=True))
