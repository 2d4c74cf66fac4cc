"""The program in the test container of `heron cluster check`: it needs only Python, and reports over TCP.

The program is sent as an argument of `python -c`, so that it also runs where heronpy is missing. Its standard input,
or a mounted file, contains the addresses to call, the secret, and the folders to examine. Exit code 3: no address could
be reached.
"""

import json
import os
import socket
import sys

UNREACHED = 3
CONNECT_S = 3.0


def looked_up(folders: dict[str, str]) -> dict[str, str]:
    """Map from folder to problem, for folders whose test file, written by the calling host, is missing or differs."""
    wrong = {}
    for folder, nonce in folders.items():
        try:
            with open(os.path.join(folder, f".heron-check-{nonce}"), encoding="ascii") as file:
                if file.read(64) != nonce:
                    wrong[folder] = "is a different folder"
        except OSError as error:
            wrong[folder] = f"is not the same folder ({error.strerror})"
    return wrong


def home_problem(home: str) -> str:
    """Why `home` (heron.engine.home) cannot be used; folders created for the test are removed again."""
    if not home:
        return ""
    missing, at = [], os.path.abspath(home)
    while not os.path.isdir(at) and at != os.path.dirname(at):
        missing.append(at)
        at = os.path.dirname(at)
    made: list[str] = []
    try:
        for folder in reversed(missing):
            os.mkdir(folder, 0o700)
            made.append(folder)
        writable = os.access(home, os.W_OK)
        others = os.stat(home).st_mode & 0o022
    except OSError as error:
        return f"cannot be created ({error.strerror})"
    finally:
        for folder in reversed(made):
            os.rmdir(folder)
    if not writable:
        return "cannot be written"
    return "can be written by others" if others else ""


def report(asked: dict[str, object]) -> dict[str, object]:
    try:
        from importlib.metadata import version

        release, problem = version("heronpy"), ""
    except Exception as error:
        release, problem = "", f"{type(error).__name__}: {error}"
    return {
        "secret": asked["secret"],
        "host": socket.gethostname(),
        "python": list(sys.version_info[:3]),
        "release": release,
        "release_problem": problem,
        "shared": looked_up(dict(asked["shared"])),  # type: ignore[call-overload]
        "home": home_problem(str(asked["home"])),
    }


def main() -> int:
    """Call the addresses in turn, and send the report to the first address that answers."""
    mounted = os.environ.get("HERON_JOIN_TOKEN_FOLDER", "")
    with open(os.path.join(mounted, "join_token")) if mounted else sys.stdin as file:
        asked = json.loads(file.read())
    text = json.dumps(report(asked)).encode() + b"\n"
    for address, port in asked["addresses"]:
        try:
            with socket.create_connection((address, port), CONNECT_S) as link:
                link.sendall(text)
            return 0
        except OSError:
            continue
    return UNREACHED


if __name__ == "__main__":
    sys.exit(main())
