"""schemathesis asks everything that the OpenAPI document allows: no failure of the tracker, and answers of its shapes.

Both tokens ask, so changes are refused, or made: the topology of `all` may be gone in the middle. The live
stream does not end, so it is asked here by itself. A few seeded requests are of every run; the heavy test has more, by
`HERON_API_CASES` for each operation and `HERON_API_SEED`.
"""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.command import Heron
from tests.support.fake_cluster import running

CONFIG = """
[parameters]
"path.cluster" = "local"
"path.role" = "me"
"path.environ" = "default"
"path.name" = "fake-000"

[checks.not_a_server_error]
# No answer of a topology master or an executor is a problem of its own, not a failure of the tracker.
expected-statuses = ["2xx", "4xx", "502", "503", "504"]
"""
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
SEED = int(os.environ.get("HERON_API_SEED", "2026"))


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
                port = urlsplit(heron("ui").ok().out.split()[-1]).port
                yield heron, f"http://127.0.0.1:{port}"
            finally:
                heron("ui", "stop")
    finally:
        shutil.rmtree(folder)


def need_schemathesis() -> None:
    """Skip without it, or fail where HERON_TEST_API=required."""
    if importlib.util.find_spec("schemathesis") is not None:
        return
    what = "schemathesis is not installed: pip install -e '.[dev]'"
    if os.environ.get("HERON_TEST_API") == "required":
        pytest.fail(what, pytrace=False)
    pytest.skip(what)


def token_of(heron: Heron, scope: str) -> str:
    return heron("ui", "token", scope).ok().out.split()[0]


def check(tracker: tuple[Heron, str], scope: str, cases: int, folder: Path) -> None:
    need_schemathesis()
    heron, address = tracker
    (folder / "schemathesis.toml").write_text(CONFIG)
    command = [
        sys.executable, "-m", "schemathesis.cli", "--config-file", str(folder / "schemathesis.toml"), "run",
        f"{address}/api/v1/openapi.json", "-H", f"Authorization: Bearer {token_of(heron, scope)}", "--phases", "fuzzing",
        "--max-examples", str(cases), "--seed", str(SEED), "--exclude-path-regex", "/live$",
        "--checks", CHECKS, "--request-timeout", "60", "--suppress-health-check", "all", "--no-color",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "generated" in done.stdout, done.stdout


def test_a_few_requests_of_each_operation(tracker: tuple[Heron, str], tmp_path: Path) -> None:
    check(tracker, "view", 1, tmp_path)


@pytest.mark.heavy
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("scope", ["all", "view"])
def test_every_operation_answers_as_its_document_says(scope: str, tracker: tuple[Heron, str], tmp_path: Path) -> None:
    check(tracker, scope, int(os.environ.get("HERON_API_CASES", "25")), tmp_path)


def live_queries(document: dict[str, Any], cases: int) -> Iterator[dict[str, str]]:
    """Values of the parameters of the live stream, as its document allows them and otherwise."""
    drawn = random.Random(SEED)
    parameters = document["paths"]["/api/v1/live"]["get"]["parameters"]
    topology = "local/me/default/fake-000"
    odd = [
        "",
        "x",
        "\x00",
        "a/b/c",
        "../../../..",
        "local/me/default/fake-999",
        "%2e%2e/a/b/c",
        "\u2028/x/y/z",
        "a" * 5000,
    ]
    for _ in range(cases):
        query = {}
        for one in parameters:
            if one["name"] == "topology":
                query["topology"] = drawn.choice([topology, topology, *odd])
            else:
                query[one["name"]] = drawn.choice([*one["schema"]["enum"], *odd])
        yield {name: value for name, value in query.items() if drawn.random() < 0.8}


def test_the_live_stream_answers_as_its_document_says(tracker: tuple[Heron, str]) -> None:
    """It does not end, so of each stream the first event is read."""
    heron, address = tracker
    headers = {"Authorization": f"Bearer {token_of(heron, 'view')}"}
    seen = set()
    with httpx.Client(base_url=address, headers=headers, timeout=60) as client:
        document = client.get("/api/v1/openapi.json").json()
        for query in live_queries(document, 60):
            with client.stream("GET", "/api/v1/live", params=query) as response:
                seen.add(response.status_code)
                kind = response.headers["content-type"].partition(";")[0]
                if response.status_code == 200:
                    assert kind == "text/event-stream", query
                    line = next(line for line in response.iter_lines() if line)
                    assert line.startswith(("event:", "id:", "data:", ":")), (query, line)
                    continue
                response.read()
                problem = response.json()
                assert response.status_code in (400, 404) and kind == "application/problem+json", (query, problem)
                assert problem["title"] and "\n" not in problem["title"], problem
    assert {200, 400, 404} <= seen, "what is drawn reaches each kind of answer"
