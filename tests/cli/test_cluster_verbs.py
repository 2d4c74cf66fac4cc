"""`heron cluster init` and `check`: settings for a new cluster, and whether it works."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heronpy.cli import exits
from heronpy.clusters import requirements
from heronpy.engines.contract import (
    Found,
)
from tests.cli.conftest import Heron
from tests.cli.engine_settings import settings


def test_init_writes_settings_that_are_found_again(heron: Heron, tmp_path: Path) -> None:
    made = heron("cluster", "init", "hpc", "--engine", "slurm")
    assert made.code == exits.OK, made.err
    folder = tmp_path / "client" / "conf" / "hpc"
    assert folder.stat().st_mode & 0o777 == 0o700
    shown = heron("config", "show", "hpc", "engine", "--origin")
    assert f"{folder}/engine.yaml" in shown.out and "slurm" in shown.out, shown
    again = heron("cluster", "init", "hpc", "--engine", "slurm")
    assert again.code == exits.EXISTS and "not overwritten" in again.err


def test_init_without_a_kubeconfig_says_what_is_not_filled_in(
    heron: Heron, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    made = heron("cluster", "init", "k8s", "--engine", "kubernetes")
    assert made.code == exits.OK and "no settings are filled in" in made.err and "kubeconfig" in made.err
    assert 'kind: "kubernetes"' in (tmp_path / "client" / "conf" / "k8s" / "engine.yaml").read_text()
    refused = heron("cluster", "manifest", "k8s")
    assert refused.code != exits.OK and "heron.kubernetes.image is empty" in refused.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("hpc", "--engine", "nomad"), "this release has no engine 'nomad'"),
        (("local", "--engine", "slurm"), "cluster 'local' already exists"),
        (("../x", "--engine", "slurm"), "cannot be the name of a cluster"),
    ],
)
def test_init_refuses(heron: Heron, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    refused = heron("cluster", "init", *words)
    assert refused.code != exits.OK and said in refused.err
    assert not (tmp_path / "client" / "conf").exists()


def test_check_of_a_cluster_without_an_engine_says_so(heron: Heron) -> None:
    checked = heron("cluster", "check", "local")
    assert checked.code == exits.FAILED and "FAIL  settings: cluster 'local' has no engine" in checked.out


def test_what_was_not_tried_is_no_failure(heron: Heron, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [Found("state", True), Found.waits("container", "it is in the queue (Resources)", "check again")]
    lines.append(Found.skipped("accounting", "account 'lab' cannot be checked", "ask the operator"))
    monkeypatch.setattr("heronpy.cli.change.cluster.requirements", lambda *_, **__: lines)
    checked = heron("cluster", "check", "local")
    assert checked.code == exits.OK, checked
    assert "wait  container: it is in the queue (Resources)\n      fix: check again\n" in checked.out
    assert "skip  accounting: account 'lab' cannot be checked\n" in checked.out
    told = json.loads(heron("cluster", "check", "local", "--json").out)
    assert told["ok"] and [(one["ok"], one["untried"]) for one in told["requirements"]] == [
        (True, None),
        (None, "wait"),
        (None, "skip"),
    ]
    lines.append(Found("release", False, "too old", "install another"))
    assert heron("cluster", "check", "local").code == exits.FAILED


def test_requirements_are_judged_one_by_one(tmp_path: Path) -> None:
    def lines(**rooms: dict[str, Any]) -> list[Found]:
        resolved = settings(**rooms)
        return [requirements.times(resolved), requirements.ports(resolved), *requirements.shared(resolved)]

    assert [one.ok for one in lines()] == [True, True, True]
    assert [one.what for one in lines(engine={"fence_s": 59}) if not one.ok] == ["leases"]
    for given in ("7", "5000-5003", "9-2"):
        assert [one.what for one in lines(security={"port_range": given}) if not one.ok] == ["ports"]
    assert "No such file" in lines(engine={"shared": tmp_path / "none"})[-1].detail
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    assert "go-w" in lines(engine={"shared": open_to_all})[-1].fix
    assert not requirements.python(settings(engine={"python": "python3"})).ok
