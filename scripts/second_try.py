#!/usr/bin/env python3
"""Runs the tests that failed in the last run of pytest again, one by one, and counts those that pass now.

python scripts/second_try.py [MOST]    exit code 1 if a test fails again, or if more than MOST tests pass now

A test that fails with other tests but passes alone is flaky. The limit MOST keeps the number of flaky tests low.
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
        print("pytest recorded no failed test, but its run failed; see its output")
        return 1
    print(f"running {len(failed)} failed tests again, one by one", flush=True)
    code = subprocess.run([sys.executable, "-m", "pytest", "--last-failed"], check=False).returncode
    if code:
        return code
    print(f"{len(failed)} passed only on the second try: {', '.join(failed)}")
    if most is not None and len(failed) > most:
        print(f"at most {most} are allowed")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
