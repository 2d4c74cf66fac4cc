"""`heron clean`: remove the files that ended topologies have left on this machine."""

from __future__ import annotations

import time

from heronpy.cli.output import print_json, say, warning
from heronpy.clusters import cleaning
from heronpy.clusters.session import Session
from heronpy.clusters.target import Common, Target
from heronpy.common.units import counted, format_bytes, format_duration


def clean(
    target: Target, topology: str | None, older_than_s: float, dry_run: bool, as_json: bool, common: Common
) -> None:
    """Remove the files, or print what would be removed."""
    session, now = Session(target, common), time.time()
    found = cleaning.left_over(session, topology, older_than_s, now)
    if not dry_run:
        skipped = [one for one in found if not cleaning.remove(session, one)]
        for one in skipped:
            warning(f"{one.folder} is kept: topology '{one.topology}' is running again, or another command is using it")
        found = [one for one in found if one not in skipped]
    if as_json:
        rows = [
            {"topology": one.topology, "role": one.role, "folder": str(one.folder), "written_at": one.written_at,
             "bytes": one.bytes}
            for one in found
        ]  # fmt: skip
        print_json({"removed": not dry_run, "folders": rows})
        return
    for one in found:
        say(f"{one.folder}  {format_bytes(one.bytes)}, last written {format_duration(now - one.written_at)} ago")
    total = f"{counted(len(found), 'working folder')}, {format_bytes(sum(one.bytes for one in found))}"
    say(f"{'Would remove' if dry_run else 'Removed'} {total}")
