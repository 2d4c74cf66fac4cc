"""`make audit` and `make sbom` look at what is installed, with tools that stand in for the real ones."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import REPO

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
FROZEN = "click==8.1.7\npyzmq==26.0.0"


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment in which everything is installed already; its programs say what they are asked."""
    venv = tmp_path / "venv"
    script(venv / "bin" / "python", f'echo "python $*" >> {tmp_path}/asked; printf "{FROZEN}\\n"')
    (venv / ".demo").touch()
    script(venv / "audit" / "bin" / "pip-audit", f'echo "pip-audit $*" >> {tmp_path}/asked; exit "${{FOUND:-0}}"')
    script(venv / "audit" / "bin" / "cyclonedx-py", f'echo "cyclonedx-py $*" >> {tmp_path}/asked; exit "${{FOUND:-0}}"')
    (venv / "audit" / ".done").touch()
    return venv


def script(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def make(target: str, venv: Path, **environ: str) -> tuple[int, list[str]]:
    """Exit code of a target, and what its programs were asked."""
    command = ["make", "--file", REPO / "Makefile", target, f"VENV={venv}"]
    shutil.copy(REPO / "pyproject.toml", venv.parent)
    for made in (venv / "bin" / "python", venv / ".demo", venv / "audit" / ".done"):
        made.touch()  # in this order, all newer than pyproject.toml
    done = subprocess.run(
        command, cwd=venv.parent, capture_output=True, text=True, timeout=60, env={"PATH": "/usr/bin:/bin", **environ}
    )
    asked = venv.parent / "asked"
    return done.returncode, asked.read_text().splitlines() if asked.exists() else []


@needs_make
def test_an_audit_looks_up_every_installed_package_and_fails_with_what_it_finds(environment: Path) -> None:
    code, asked = make("audit", environment)
    assert code == 0
    assert asked[0].startswith("python -m pip ") and "list --format=freeze --exclude-editable" in asked[0]
    list_of = environment / "audit" / "installed.txt"
    assert list_of.read_text().strip() == FROZEN
    # Strict: a package that cannot be looked up is a failure; without pip nothing is installed for it.
    assert asked[1] == f"pip-audit --strict --no-deps --disable-pip --requirement {list_of}"
    assert make("audit", environment, FOUND="1")[0] != 0


@needs_make
def test_the_list_of_packages_is_cyclonedx(environment: Path) -> None:
    code, [asked] = make("sbom", environment)
    assert code == 0
    assert (
        asked
        == f"cyclonedx-py environment {environment}/bin/python --pyproject pyproject.toml --of JSON -o out/sbom.json"
    )
    assert make("sbom", environment, FOUND="1")[0] != 0


def test_the_tools_are_what_the_makefile_calls() -> None:
    """The extra that the targets install holds the programs that they run."""
    import tomllib

    extras = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {name.partition("=")[0].partition(">")[0].strip("~ ") for name in extras["audit"]} == {
        "pip-audit",
        "cyclonedx-bom",
    }
