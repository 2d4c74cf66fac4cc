"""One contract for every place of objects: a folder, memory, an S3 server, and Azure's emulator where it is installed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from heronpy.common.errors import ConfigError
from heronpy.storage.objects import remote as remote_module
from heronpy.storage.objects.folder import FolderObjects
from heronpy.storage.objects.opening import check_objects, open_objects
from heronpy.storage.objects.port import MissingObjectError, Objects, ObjectsError, Trouble
from heronpy.storage.objects.remote import RemoteObjects
from heronpy.storage.objects.url import Url, place_of
from tests.support.azure_server import AzureServer, connected
from tests.support.memory_objects import MemoryObjects
from tests.support.object_server import ObjectServer


@pytest.fixture(params=["folder", "memory", "s3", "azure"])
def objects(request: pytest.FixtureRequest, object_server: ObjectServer, tmp_path: Path) -> Iterator[Objects]:
    if request.param == "folder":
        yield FolderObjects(tmp_path / "objects")
    elif request.param == "memory":
        yield MemoryObjects()
    else:
        bucket = request.getfixturevalue("bucket" if request.param == "s3" else "azure_container")
        yield from connected(open_objects(place_at(bucket, "some/prefix")))


def place_at(bucket: str, prefix: str) -> Url:
    place = place_of(f"{bucket}/{prefix}")
    assert isinstance(place, Url)
    return place


@pytest.fixture
def remote(bucket: str) -> Iterator[RemoteObjects]:
    yield RemoteObjects(place_at(bucket, "p"), 5.0)


# ---- the contract --------------------------------------------------------------------------------


def test_what_is_written_is_read(objects: Objects, tmp_path: Path) -> None:
    big = os.urandom(9 << 20)
    file = tmp_path / "some file"
    file.write_bytes(b"of a file")
    for key, data in (("a/b/c", b"deep"), ("top", b""), ("big", big), ("from", file), ("view", memoryview(b"view"))):
        objects.put(key, data)
    assert objects.get("a/b/c") == b"deep" and objects.get("top") == b"" and objects.get("big") == big
    assert objects.get("from") == b"of a file" and objects.get("view") == b"view"
    assert objects.head("a/b/c") == 4 and objects.head("top") == 0 and objects.head("big") == len(big)
    objects.put("a/b/c", b"replaced")
    assert objects.get("a/b/c") == b"replaced" and objects.head("a/b/c") == 8


def test_what_is_absent(objects: Objects) -> None:
    assert objects.head("nothing") is None
    assert objects.list() == objects.list("nothing")
    with pytest.raises(MissingObjectError, match="nothing"):
        objects.get("nothing")
    objects.put("a/b", b"1")
    assert objects.head("a") is None
    objects.delete(["nothing", "a/b", "a/c"])
    assert objects.list().objects == {} and objects.list(deep=False).folders == ()


def test_listings(objects: Objects) -> None:
    keys = {"chk-1/metadata": 3, "chk-1/task-1": 2, "chk-10/metadata": 1, "shared/x": 4, "top": 5}
    for key, size in keys.items():
        objects.put(key, b"z" * size)
    assert objects.list().objects == keys
    # A prefix ends with a part: chk-1 is not the start of chk-10.
    assert objects.list("chk-1").objects == {"chk-1/metadata": 3, "chk-1/task-1": 2}
    shallow = objects.list(deep=False)
    assert shallow.objects == {"top": 5} and shallow.folders == ("chk-1", "chk-10", "shared")
    assert objects.list("shared", deep=False).objects == {"shared/x": 4}


@pytest.mark.heavy
def test_more_objects_than_one_answer_holds(objects: Objects) -> None:
    keys = {f"many/{number:05}" for number in range(1005)}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: objects.put(key, b"."), keys))
    assert set(objects.list("many").objects) == keys
    objects.delete(keys)
    assert objects.list("many").objects == {}


def test_azure_removes_as_many_at_a_time_as_it_allows(azure_container: str, azure_server: AzureServer) -> None:
    """256 in one request."""
    store = RemoteObjects(place_at(azure_container, "p"), 5.0)
    keys = [f"{number:03}" for number in range(600)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put(key, b"."), keys))
    before = azure_server.batches()
    store.delete(keys)
    assert store.list().objects == {} and azure_server.batches() - before == 3


def test_azure_says_what_is_wrong(azure_container: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"store az://nowhere/x does not exist .*create it"):
        check_objects(RemoteObjects(Url("az", "nowhere", ("x",)), 2.0), "The store")
    remote_module.open_client.cache_clear()
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "dmVyeS1zZWNyZXQ=")
    with pytest.raises(ConfigError, match=r"403") as caught:
        check_objects(RemoteObjects(place_at(azure_container, "x"), 2.0), "The store")
    assert "dmVye" not in str(caught.value)


def test_put_if_absent(objects: Objects) -> None:
    assert objects.put_if_absent("claim", b"one")
    assert not objects.put_if_absent("claim", b"two")
    assert objects.put_if_absent("claim", b"one"), "it is there, as wished"
    assert objects.get("claim") == b"one"
    objects.delete(["claim"])
    assert objects.put_if_absent("claim", b"two") and objects.get("claim") == b"two"


def test_a_claim_that_another_had_and_has_removed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(source: Path, target: Path) -> None:
        raise FileExistsError

    monkeypatch.setattr("heronpy.storage.objects.folder.os.link", link)
    assert not FolderObjects(tmp_path).put_if_absent("claim", b"mine")
    assert list(tmp_path.iterdir()) == []


def test_one_of_many_creators_wins(objects: Objects) -> None:
    for round_ in range(5):
        start = threading.Barrier(8)

        def create(number: int, key: str = f"race/{round_}", start: threading.Barrier = start) -> bool:
            start.wait()
            return objects.put_if_absent(key, b"%d" % number)

        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(create, range(8)))
        assert won.count(True) == 1
        assert objects.get(f"race/{round_}") == b"%d" % won.index(True)


def test_a_store_that_works_passes_the_check_and_keeps_nothing_of_it(objects: Objects) -> None:
    check_objects(objects, "The store")
    assert objects.list().objects == {}


def test_an_overloaded_store_is_asked_again(remote: RemoteObjects, object_server: ObjectServer) -> None:
    object_server.set(busy=3)
    remote.put("a", b"1")
    object_server.set(busy=2)
    assert remote.get("a") == b"1"
    object_server.set(busy=2)
    assert remote.put_if_absent("b", b"2") and remote.list().objects == {"a": 1, "b": 1}


def test_patience_ends(bucket: str, object_server: ObjectServer) -> None:
    hurried = RemoteObjects(place_at(bucket, "p"), 0.5)
    object_server.set(busy=1000)
    before = sum(object_server.requests().values())
    with pytest.raises(ObjectsError) as caught:
        hurried.put("a", b"1")
    assert caught.value.trouble is Trouble.BUSY and "503 SlowDown" in str(caught.value)
    assert sum(object_server.requests().values()) - before < 20


def test_a_lost_answer_does_not_make_two_winners(remote: RemoteObjects, object_server: ObjectServer) -> None:
    object_server.set(lose=1)
    assert remote.put_if_absent("claim", b"mine"), "the first attempt was ours, though its answer was lost"
    object_server.set(lose=1)
    assert not remote.put_if_absent("claim", b"another")
    assert remote.get("claim") == b"mine"
    object_server.set(lose=2)
    remote.put("plain", b"again")
    assert remote.get("plain") == b"again"


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ({"refuse": "AccessDenied"}, "is read-only for these credentials"),
        ({"refuse": "AccessDenied", "refuse_all": True}, "does not permit this request (403 AccessDenied)"),
        ({"refuse": "InvalidAccessKeyId", "refuse_all": True}, "refuses the credentials (403 InvalidAccessKeyId)"),
        ({"refuse": "SignatureDoesNotMatch", "refuse_all": True}, "refuses the credentials"),
        ({"ignore_conditions": True}, "has no put-if-absent"),
    ],
)
def test_a_store_that_cannot_be_used_is_refused_in_one_sentence(
    remote: RemoteObjects, object_server: ObjectServer, faults: dict[str, object], words: str
) -> None:
    object_server.set(**faults)
    with pytest.raises(ConfigError) as caught:
        check_objects(remote, "Checkpoint store")
    text = str(caught.value)
    assert words in text and text.startswith(f"Checkpoint store {remote.name} ") and "\n" not in text
    assert "very-secret-word" not in text and "testkey" not in text
    object_server.set()
    assert remote.list().objects == {}


def test_a_bucket_that_is_not_there(bucket: str) -> None:
    with pytest.raises(ConfigError, match=r"store s3://no-such-bucket/x does not exist .*create it"):
        check_objects(RemoteObjects(Url("s3", "no-such-bucket", ("x",)), 2.0), "The store")


def test_a_store_that_is_away(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"cannot be reached: check AWS_ENDPOINT_URL"):
        check_objects(RemoteObjects(place_at(bucket, "x"), 0.5), "The store")


def test_the_variables_of_each_kind_of_store_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed")
    for name in [name for name in os.environ if name.startswith(("AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    with pytest.raises(ConfigError, match=r"az://container cannot be opened .*AZURE_STORAGE_ACCOUNT_NAME"):
        RemoteObjects(Url("az", "container", ("x",)), 0.5)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "someone")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "dmVyeS1zZWNyZXQ=")
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("AZURE_ALLOW_HTTP", "true")
    with pytest.raises(ConfigError, match="cannot be reached: check AZURE_STORAGE_ENDPOINT") as caught:
        check_objects(RemoteObjects(Url("az", "container", ("x",)), 0.5), "The store")
    assert "dmVye" not in str(caught.value)
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", "/no such file")
    with pytest.raises(ConfigError, match=r"gs://bucket cannot be opened .*GOOGLE_APPLICATION_CREDENTIALS"):
        RemoteObjects(Url("gs", "bucket", ("x",)), 0.5)


# ---- names -------------------------------------------------------------------------------------------


def test_places() -> None:
    url = place_of("s3://bucket/some/prefix/")
    assert url == Url("s3", "bucket", ("some", "prefix")) and str(url) == "s3://bucket/some/prefix"
    assert str(url / "wc/chk-7") == "s3://bucket/some/prefix/wc/chk-7" and (url / "wc/chk-7").parent == url / "wc"
    assert (url / "wc/chk-7").name == "chk-7" and place_of("gs://bbb").name == "bbb"
    assert place_of("file:///some/a%20folder") == Path("/some/a folder")
    assert place_of("/some/folder") == Path("/some/folder") and place_of("plain") == Path.cwd() / "plain"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("s4://bucket/x", "unknown scheme s4://; use one of s3://, gs://, az://, file://"),
        ("s3://", "does not name a bucket"),
        ("az:///x", "does not name a container"),
        ("file://host/x", "names a host"),
        ("s3://key:secret@bucket/x", "credentials and options in the environment"),
        ("s3://bucket/x?endpoint=y", "credentials and options in the environment"),
        ("s3://bucket/a/../b", "'..'"),
        ("s3://bucket/a//b", "''"),
    ],
)
def test_what_is_no_place(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        place_of(text)
    assert words in str(caught.value) and "secret" not in str(caught.value)


def test_a_missing_library_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "obstore.store", None)
    with pytest.raises(ConfigError, match=r"s3://b needs the library obstore; run: pip install 'heronpy\[objects\]'"):
        RemoteObjects(Url("s3", "b", ("x",)), 1.0)
