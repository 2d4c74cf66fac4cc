"""S01, paths: no way of writing one leads out of what the tracker serves, at any route that takes a path or a name."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from urllib.parse import quote

import pytest

from heronpy.common.errors import InvalidRpcError
from heronpy.executor.file_service import ContainerFiles
from heronpy.proto import control_pb2
from heronpy.tracker.calls import Route
from tests.security.dot_segments import encodings
from tests.security.tracker_house import CANARY, CHANGE, PASSWD, ROUTES, Answer, Asker, House, house, named, path_of
from tests.tracker.conftest import asking, busy, home, wordy

__all__ = ["asking", "busy", "home", "house", "wordy"]

ENCODINGS = encodings()
WITH_PATHS = [route for route in ROUTES if "{" in route.path]
#: Of each list or text in a query: components, processes, files.
WITH_NAMES = [route for route in ROUTES if any(param.kind in (str, list) for param in route.params)]


def check(answer: Answer, sent: str) -> None:
    """No file of this machine, and no failure of the tracker."""
    told = answer.body.decode("utf-8", "replace")
    assert CANARY not in told and PASSWD not in told and '"working_dir":"' not in told, sent
    assert answer.status < 500 or answer.status == 503, (sent, told)


def test_s01_there_are_two_hundred_encodings() -> None:
    assert len(ENCODINGS) >= 200 and len(set(ENCODINGS)) == len(ENCODINGS)


@pytest.mark.parametrize("route", WITH_PATHS, ids=named)
def test_s01_no_encoding_in_a_path_leads_out(route: Route, house: House) -> None:
    names = re.findall(r"\{(\w+)\}", route.path)
    body = b"{}" if route.method == "POST" else b""

    async def ask(asker: Asker) -> None:
        for number, written in enumerate(ENCODINGS):
            # The last name of a path, which is a file or process if any is; the others in turn.
            for name in {names[-1], names[number % len(names)]}:
                if route.method == "POST" and name != names[-1]:
                    continue
                sent = path_of(route, **{name: written})
                answer = await asker.send(route.method, sent, headers=CHANGE if body else None, body=body)
                check(answer, sent)
                if written not in ("", ".") and name == "process":
                    assert answer.status in (400, 404), (sent, answer.body)

    house.within(ask)


@pytest.mark.parametrize("route", WITH_NAMES, ids=named)
def test_s01_no_encoding_in_a_query_leads_out(route: Route, house: House) -> None:
    wanted = {param.name: "1" for param in route.params if param.required}
    wanted |= {name: value for name, value in (("cluster", "local"), ("environ", "default")) if name in wanted}
    wanted |= {"topology": "wordy"} if "topology" in wanted else {}
    texts = [param.name for param in route.params if param.kind in (str, list)]

    async def ask(asker: Asker) -> None:
        for number, written in enumerate(ENCODINGS):
            name = texts[number % len(texts)]
            if route.path.endswith("/live") and name == "level":
                continue  # without a topology it is the list, which does not end
            pairs = {**wanted, name: written}
            # As it stands, and so that the tracker decodes what was sent.
            for value in (written.replace("&", "%26"), quote(written, safe="")):
                query = "&".join(f"{key}={value if key == name else quote(one)}" for key, one in pairs.items())
                if route.path.endswith("/live") and not written:
                    continue
                check(await asker.send("GET", path_of(route), query), query)

    house.within(ask)


def test_s01_no_encoding_of_a_static_file_leads_out(house: House) -> None:
    async def ask(asker: Asker) -> None:
        for written in ENCODINGS:
            for sent in (f"/static/{written}", f"/static/js/{written}", f"/{written}", f"/static{written}"):
                answer = await asker.send("GET", sent)
                check(answer, sent)
                assert b"def __call__" not in answer.body, "a source file"

    house.within(ask)


def test_s01_the_service_opens_only_names_that_it_lists(house: House) -> None:
    files = ContainerFiles(house.folder, 1)
    for written in ENCODINGS:
        for name in (written, f"log-files/{written}", f"log-files/{written}.log", f"dead-letters/{written}.jsonl"):
            with pytest.raises(InvalidRpcError):
                files.read(control_pb2.ReadFile(name=name))
            with pytest.raises(InvalidRpcError):
                files.search(control_pb2.SearchFile(name=name, text="a"))


@pytest.mark.parametrize("kind", ["symlink", "symlink to a folder", "pipe", "folder", "device"])
def test_s01_what_is_no_file_of_the_folder_is_not_read(kind: str, house: House) -> None:
    logs, name = house.folder / "log-files", "container_1_count_2"
    file = logs / f"{name}.log"
    if kind == "symlink":
        file.symlink_to(house.folder / "canary.txt")
    elif kind == "symlink to a folder":
        logs.rename(house.folder / "elsewhere")
        (house.folder / "elsewhere" / f"{name}.log").write_text(CANARY)
        logs.symlink_to(house.folder / "elsewhere")
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        file.symlink_to("/dev/zero")

    async def ask(asker: Asker) -> None:
        for part in (f"logs/{name}", f"logs/search?text={CANARY}"):
            path, _, query = part.partition("?")
            answer = await asker.send("GET", f"/api/v1/topologies/local/me/default/wordy/{path}", query)
            assert CANARY not in answer.body.decode().replace(f"'{CANARY}'", ""), answer.body
            assert answer.status in (200, 404) if query else answer.status == 404, answer.body

    house.within(ask)


def test_s01_a_hard_link_needs_a_folder_that_only_the_owner_opens(house: House) -> None:
    """A hard link cannot be told from the file itself; who could make one owns the folder."""
    from heronpy.common.folders import make_folders

    made = Path(house.folder) / "more" / "log-files"
    make_folders(made)
    assert stat.S_IMODE(made.stat().st_mode) == 0o700 and stat.S_IMODE(made.parent.stat().st_mode) == 0o700
