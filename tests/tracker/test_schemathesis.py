"""schemathesis asks everything that the OpenAPI document allows: no failure of the tracker, and answers of its shapes.

It has a token that may read, so that changes are refused and the topology stays. Left out are the live stream, which
does not end, and what is read at executors, which the fake topology does not have.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import Heron
from tests.support.fake_cluster import running

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]

CONFIG = """
[parameters]
"path.cluster" = "local"
"path.role" = "me"
"path.environ" = "default"
"path.name" = "fake-000"

[checks.not_a_server_error]
# No answer of a topology master is a problem of its own, not a failure of the tracker.
expected-statuses = ["2xx", "4xx", "503"]
"""
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.fixture
def tracker() -> Iterator[tuple[Heron, str]]:
    """A tracker of one topology, and its address."""
    # Not tmp_path: paths of ipc sockets are limited to 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="hp-", dir="/tmp"))
    try:
        (folder / "home").mkdir(mode=0o700)
        heron = Heron(folder / "home")
        with running(heron.home, components=4, tasks=8):
            try:
                yield heron, heron("ui").ok().out.split()[-1]
            finally:
                heron("ui", "stop")
    finally:
        shutil.rmtree(folder)


def test_every_operation_answers_as_its_document_says(tracker: tuple[Heron, str], tmp_path: Path) -> None:
    if importlib.util.find_spec("schemathesis") is None:
        pytest.skip("schemathesis is not installed: pip install -e '.[dev]'")
    heron, address = tracker
    words = heron("ui", "token", "create", "--scope", "data", "reader").ok().out.split()
    token = max(words, key=len)
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    command = [
        sys.executable, "-m", "schemathesis.cli", "--config-file", str(tmp_path / "schemathesis.toml"), "run",
        f"{address}/api/v1/openapi.json", "-H", f"Authorization: Bearer {token}", "--phases", "fuzzing",
        "--max-examples", os.environ.get("HERON_API_CASES", "5"), "--exclude-path-regex", "/live$|/logs|/letters",
        "--checks", CHECKS, "--request-timeout", "30", "--no-color",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "generated" in done.stdout, done.stdout
