#!/usr/bin/env python3
"""Runs what failed in the last run of pytest once more and alone, and counts what passes only then.

python scripts/second_try.py [MOST]    exit code 1 when a test fails again, or when more than MOST passed only now

A test that passes alone and failed together with others is flaky: on more processes than cores that is worth a look,
and where it is counted it cannot hide.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main(arguments: list[str]) -> int:
    most = int(arguments[0]) if arguments else None
    failed = sorted(json.loads(LAST_FAILED.read_text(encoding="utf-8"))) if LAST_FAILED.is_file() else []
    if not failed:
        print("no test failed; the run itself did")
        return 1
    print(f"what has failed, once more and alone: {len(failed)}", flush=True)
    code = subprocess.run([sys.executable, "-m", "pytest", "--last-failed"], check=False).returncode
    if code:
        return code
    print(f"{len(failed)} passed only on the second try: {', '.join(failed)}")
    if most is not None and len(failed) > most:
        print(f"at most {most} may")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
