"""`heron cluster check`: what a cluster needs, line by line."""

from __future__ import annotations

import click

from heronpy.cli import exits
from heronpy.cli.output import clean, print_json, say
from heronpy.clusters.requirements import check as requirements
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target


def check(target: Target, no_container: bool, as_json: bool, common: Common) -> None:
    """Print each requirement as it is tried; exits with code 1 if one is not met. What was not tried is no failure."""
    session = Session(target, common)
    session.check_cluster()
    found = []
    for one in requirements(session, container=not no_container):
        found.append(one)
        if not as_json:
            how = one.untried.value if one.untried else "ok" if one.ok else "FAIL"
            say(f"{how:<4}  {clean(one.what)}: {clean(one.detail)}")
            if one.fix and (one.untried or not one.ok):
                say(f"{'':6}fix: {clean(one.fix)}")
    if as_json:
        lines = [
            {
                "what": one.what,
                "ok": None if one.untried else one.ok,
                "untried": one.untried.value if one.untried else None,
                "detail": one.detail,
                "fix": one.fix if one.untried or not one.ok else None,
            }
            for one in found
        ]
        print_json({"cluster": target.cluster, "ok": all(one.ok for one in found), "requirements": lines})
    if not all(one.ok for one in found):
        raise click.exceptions.Exit(exits.FAILED)
