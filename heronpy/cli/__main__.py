"""`python -m heronpy.cli` is the `heron` command."""

from __future__ import annotations

import sys

from heronpy.cli.start import main

if __name__ == "__main__":
    sys.exit(main())
