"""`heron cluster check`: what a cluster needs, line by line."""

from __future__ import annotations

import click

from heronpy.cli import exits
from heronpy.cli.output import clean, print_json, say
from heronpy.clusters.requirements import check as requirements
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target


def check(target: Target, no_container: bool, as_json: bool, common: Common) -> None:
    """Print each requirement as it is tried; exits with code 1 if one is not met."""
    session = Session(target, common)
    session.check_cluster()
    found = []
    for one in requirements(session, container=not no_container):
        found.append(one)
        if not as_json:
            say(f"{'ok  ' if one.ok else 'FAIL'}  {clean(one.what)}: {clean(one.detail)}")
            if not one.ok and one.fix:
                say(f"{'':6}fix: {clean(one.fix)}")
    if as_json:
        lines = [
            {"what": one.what, "ok": one.ok, "detail": one.detail, "fix": None if one.ok else one.fix} for one in found
        ]
        print_json({"cluster": target.cluster, "ok": all(one.ok for one in found), "requirements": lines})
    if not all(one.ok for one in found):
        raise click.exceptions.Exit(exits.FAILED)
