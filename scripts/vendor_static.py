"""Fetches the libraries of the tracker's pages from the npm registry into heronpy/tracker/static/vendor.

    python scripts/vendor_static.py          # fetch, verify, write
    python scripts/vendor_static.py --print  # also print the checksums of the fetched files, for a new version

Each file is copied unchanged from the package that `npm pack` downloads, and must have the SHA-256 below. To update a
library, change its version, run with --print, review the changes, and enter the new checksums.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

VENDOR = Path(__file__).parents[1] / "heronpy" / "tracker" / "static" / "vendor"
LISTING = "VENDORED"


@dataclass(frozen=True)
class Package:
    """An npm package, and the files that are copied from it."""

    name: str
    version: str
    licence: str
    why: str
    #: Path in the package, name in the vendor folder, SHA-256.
    files: tuple[tuple[str, str, str], ...]


PACKAGES = (
    Package(
        "htm",
        "3.1.1",
        "Apache-2.0",
        "components and templates; the file has Preact (MIT) and its hooks in it",
        (
            (
                "preact/standalone.module.js",
                "htm-preact.js",
                "72284e8e9079c87817145df1110f74e8a2aa040b2fc384922e18dfcb46fc1fd7",
            ),
            ("LICENSE", "htm-LICENSE", "740725f7252e750af735d0028cc534970772f513331e9f68150fede8fb3ce00f"),
        ),
    ),
    Package(
        "preact",
        "10.5.13",
        "MIT",
        "only the licence of what htm-preact.js contains",
        (("LICENSE", "preact-LICENSE", "1fe6958409c8c257a70c587a18b6f7f412b179b456630790d30b2ec9a8e4b7d4"),),
    ),
    Package(
        "uplot",
        "1.6.32",
        "MIT",
        "charts over time",
        (
            (
                "dist/uPlot.iife.min.js",
                "uPlot.iife.min.js",
                "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
            ),
            ("LICENSE", "uPlot-LICENSE", "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd"),
        ),
    ),
    Package(
        "@dagrejs/dagre",
        "3.1.3",
        "MIT",
        "layout of the graph",
        (
            ("dist/dagre.esm.js", "dagre.esm.js", "b0ddaf4af1417bec9bd89373a3a3987f081727d6cc6d95fc40dbf85a19bdf3b0"),
            (
                "dist/dagre.esm.js.LEGAL.txt",
                "dagre.esm.js.LEGAL.txt",
                "9148bffb1e84382a8b6668eeb2b53c6a554341d714fba129856ea5eb350d35f3",
            ),
            ("LICENSE", "dagre-LICENSE", "6a349742a6cb219d5a2fc8d0844f6d89a6efc62e20c664450d884fc7ff2d6015"),
        ),
    ),
)


def fetched(package: Package, folder: Path) -> dict[str, bytes]:
    """Fetch a package; return its files by their names in the vendor folder."""
    told = subprocess.run(
        ["npm", "pack", f"{package.name}@{package.version}", "--silent", "--ignore-scripts"],
        cwd=folder, check=True, capture_output=True, text=True,
    )  # fmt: skip
    found = {}
    with tarfile.open(folder / told.stdout.strip().splitlines()[-1]) as archive:
        for path, name, _ in package.files:
            member = archive.extractfile(f"package/{path}")
            if member is None:
                raise SystemExit(f"{package.name} {package.version} has no file {path}")
            found[name] = member.read()
    return found


def listing() -> str:
    """Return the text of VENDORED, with one line per file."""
    lines = ["# Written by scripts/vendor_static.py: file, package, version, licence, SHA-256, path in the package"]
    for package in PACKAGES:
        lines.append(f"# {package.name}: {package.why}")
        for path, name, digest in package.files:
            lines.append(f"{name}  {package.name}  {package.version}  {package.licence}  {digest}  {path}")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--print", action="store_true", help="print the checksums of the fetched files")
    options = parser.parse_args()
    wrong = []
    VENDOR.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for package in PACKAGES:
            data = fetched(package, Path(folder))
            for path, name, digest in package.files:
                found = hashlib.sha256(data[name]).hexdigest()
                if options.print:
                    print(f"{package.name} {path} {found}")
                if found != digest:
                    wrong.append(f"{package.name} {package.version} {path} has SHA-256 {found}, expected {digest}")
                else:
                    (VENDOR / name).write_bytes(data[name])
    if wrong:
        sys.exit("\n".join(wrong))
    (VENDOR / LISTING).write_text(listing())


if __name__ == "__main__":
    main()
