"""Builds a Kubernetes control plane from Debian's source package, for the tests of `make engines`.

    python scripts/kubernetes_server.py           # prints the folder with the programs; the first build takes minutes

Debian has no package of the server. So apt fetches the source package and checks its signatures, and Debian's Go builds
it into `${XDG_CACHE_HOME:-~/.cache}/heronpy-engines`. If HERON_ENGINES names a folder, the programs in it are used
instead, for example to test another release.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from heronpy.common.folders import make_folders

#: The programs that this script builds; other programs are in Debian's packages.
BUILT = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
#: Map from program to Debian package.
INSTALLED = {"etcd": "etcd-server", "kubectl": "kubernetes-client"}
NEEDED_TO_BUILD = {"go": "golang-go", "dpkg-source": "dpkg-dev"}
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SOURCES = f"""\
deb-src [signed-by={KEYRING}] http://deb.debian.org/debian bookworm main
deb-src [signed-by={KEYRING}] http://deb.debian.org/debian-security bookworm-security main
"""
PACKAGE = "k8s.io/kubernetes"
#: Go packages with the version: for `--version`, and for the answers of the API server.
VERSION_PACKAGES = (f"{PACKAGE}/vendor/k8s.io/component-base/version", f"{PACKAGE}/vendor/k8s.io/client-go/pkg/version")
#: Marks the packages from which the API's description is generated, as in the source's makefiles.
DESCRIBED = re.compile(rb"^// *\+k8s:openapi-gen=", re.MULTILINE)
NOT_DESCRIBED = ("vendor/k8s.io/code-generator", "vendor/k8s.io/sample-apiserver")


class CannotError(Exception):
    """The build is impossible; the message is one sentence with the cause and the remedy."""


def folder() -> Path:
    """Return the folder of the built programs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "heronpy-engines"


def run(*argv: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    """Run a command with its output on stderr. Raises CannotError if it fails."""
    done = subprocess.run(argv, cwd=cwd, env=env, stdout=sys.stderr.fileno(), check=False)
    if done.returncode:
        raise CannotError(f"{' '.join(argv[:4])} failed with status {done.returncode}; see its output above")


def install(wanted: dict[str, str]) -> None:
    """Install the packages of missing programs."""
    packages = [package for program, package in wanted.items() if shutil.which(program) is None]
    if not packages:
        return
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        raise CannotError(f"missing Debian packages, which only root can install: {' '.join(packages)}")
    tell(f"installing {' '.join(packages)}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run("apt-get", "-qq", "update", env=quiet)
    run("apt-get", "-qq", "install", "-y", "--no-install-recommends", *packages, env=quiet)


def fetch(into: Path) -> Path:
    """Fetch the source into a folder below `into`, with separate package lists; return the folder."""
    if not KEYRING.exists():
        raise CannotError(f"{KEYRING} is missing; run this script on Debian 12, or set HERON_ENGINES")
    lists = into / "lists"
    shutil.rmtree(into, ignore_errors=True)
    make_folders(lists / "partial")
    (into / "sources.list").write_text(SOURCES)
    options = [
        "-qq",
        *("-o", f"Dir::Etc::SourceList={into / 'sources.list'}", "-o", "Dir::Etc::SourceParts=/dev/null"),
        *("-o", f"Dir::State::Lists={lists}", "-o", "APT::Sandbox::User=root"),
    ]
    tell("fetching the source package kubernetes")
    run("apt-get", *options, "update")
    run("apt-get", *options, "source", "kubernetes", cwd=into)
    [found] = [one for one in into.glob("kubernetes-*") if one.is_dir()]
    return found


def build(source: Path, into: Path) -> None:
    """Build the programs in a GOPATH, without Go modules, as Debian's Go 1.19 needs it for this release."""
    root = source.parent / "go"
    tree = root / "src" / "k8s.io" / "kubernetes"
    make_folders(tree.parent)
    tree.symlink_to(source, target_is_directory=True)
    release = source.name.rpartition("really")[2].removeprefix("kubernetes-")
    major, minor = release.split(".")[:2]
    told = {"gitVersion": f"v{release}", "gitMajor": major, "gitMinor": minor}
    names = [f"-X {package}.{key}={value}" for package in VERSION_PACKAGES for key, value in told.items()]
    flags = " ".join(["-s", "-w", *names])
    env = {
        **os.environ,
        "GOPATH": str(root),
        # Go programs use this path of the folder, with its links, to find `vendor`.
        "PWD": str(tree),
        "GOCACHE": str(source.parent / "cache"),
        "GO111MODULE": "off",
        "CGO_ENABLED": "0",
        "GOFLAGS": "",
    }
    made = source.parent / "bin"
    made.mkdir()
    tell(f"building Kubernetes {release}; two cores take about ten minutes")
    describe_api(tree, env)
    packages = [f"{PACKAGE}/cmd/{one}" for one in BUILT]
    run("go", "build", "-ldflags", flags, "-o", f"{made}/", *packages, cwd=tree, env=env)
    shutil.rmtree(into, ignore_errors=True)
    # Rename the complete folder, so that it never contains only some of the programs.
    made.rename(into)


def describe_api(tree: Path, env: dict[str, str]) -> None:
    """Generate the only file that the source lacks: the description of the fields of all objects."""
    generator = tree.resolve().parent / "openapi-gen"
    run("go", "build", "-o", str(generator), f"{PACKAGE}/vendor/k8s.io/kube-openapi/cmd/openapi-gen", cwd=tree, env=env)
    folders = set()
    for top in ("vendor/k8s.io", "pkg", "cmd", "plugin"):
        # Path.rglob does not follow links, and the packages below vendor are links.
        for folder, _, names in os.walk(tree / top, followlinks=True):
            at = Path(folder).relative_to(tree)
            if not str(at).startswith(NOT_DESCRIBED) and any(
                DESCRIBED.search((Path(folder) / name).read_bytes()) for name in names if name.endswith(".go")
            ):
                folders.add(f"{PACKAGE}/{at}")
    run(
        str(generator),
        *("-i", ",".join(sorted(folders)), "-p", f"{PACKAGE}/pkg/generated/openapi", "-O", "zz_generated.openapi"),
        *("-h", "hack/boilerplate/boilerplate.generatego.txt", "-r", str(generator.with_name("violations"))),
        cwd=tree,
        env=env,
    )


def tell(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def prepare() -> Path:
    """Build the programs if needed; return their folder."""
    install(INSTALLED)
    given = os.environ.get("HERON_ENGINES")
    if given:
        missing = [one for one in BUILT if not os.access(Path(given) / one, os.X_OK)]
        if missing:
            raise CannotError(f"HERON_ENGINES is {given}, but that folder has no program {missing[0]}")
        return Path(given).absolute()
    found = folder() / "kubernetes"
    if not found.exists():
        install(NEEDED_TO_BUILD)
        work = folder() / "work"
        make_folders(work)
        build(fetch(work), found)
        shutil.rmtree(work)
    return found


def main() -> int:
    try:
        print(prepare())
    except CannotError as error:
        tell(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
