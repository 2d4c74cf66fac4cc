#!/usr/bin/env python3
"""Runs a load profile: the same as `heron load-test`, for a checkout without an installed command.

scripts/load_test.py list
scripts/load_test.py word_count --mode ATLEAST_ONCE --containers 2 --repeat 5
scripts/load_test.py passthrough --rate 1000 --against out/load-test/passthrough-20261121T101500.json
scripts/load_test.py startup --tasks 200
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    # The topology's processes must find the checkout, too.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))

    try:
        from heronpy.cli.main import main
    except ModuleNotFoundError as missing:
        sys.exit(
            f"error: this Python has no {missing.name}; run 'make demo' once and then"
            " .venv/bin/python scripts/load_test.py"
        )

    sys.exit(main(["load-test", *sys.argv[1:]]))
