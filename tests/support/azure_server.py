"""Runs Azurite, Microsoft's emulator of Azure Blob Storage, on loopback.

Azurite is an npm package (`npm install -g azurite`). If it is not on the PATH, HERON_TEST_AZURITE names the program.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

from heronpy.procs.linux import die_with_parent
from heronpy.storage.objects.port import Objects
from tests.support.waiting import wait_for
from tests.support.zookeeper import free_ports

#: The default account of Azurite, and its published key.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
START_S = 60.0
_API = "2021-08-06"


def program() -> str:
    """Return the path of Azurite; "" if it is not installed."""
    return os.environ.get("HERON_TEST_AZURITE") or shutil.which("azurite-blob") or ""


def why_not() -> str:
    """Return why Azurite cannot run on this machine; "" if it can."""
    if shutil.which("node") is None:
        return "needs Azurite, which needs Node.js"
    return "" if program() else "needs Azurite; run npm install -g azurite, or set HERON_TEST_AZURITE to azurite-blob"


def connected(objects: Objects) -> Iterator[Objects]:
    """Yield the objects for a fixture, and close their connections at the end. pytest keeps the yielded value until
    after the leak check, and Azurite keeps idle connections open.
    """
    yield objects
    vars(objects).pop("_store", None)


class AzureServer:
    """The server, which keeps objects in memory; each user creates a container."""

    def __init__(self) -> None:
        [self.port] = free_ports(1)
        self._folder = Path(tempfile.mkdtemp(prefix="hpaz-", dir="/tmp"))
        self._log = self._folder / "log"
        parent = os.getpid()
        argv = ["node", program(), "--inMemoryPersistence", "--blobPort", str(self.port), "--disableTelemetry"]
        # Azurite may be older than the API version of the library.
        argv += ["--skipApiVersionCheck"]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                argv,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=lambda: die_with_parent(signal.SIGKILL, parent),
            )
        try:
            wait_for(lambda: "successfully listens" in self._said(), START_S, "Azurite listening")
        except BaseException:
            self.close()
            raise

    def _said(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that a process needs to use the server."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{self.port}/{ACCOUNT}",
            "AZURE_ALLOW_HTTP": "true",
        }

    def make_container(self, name: str) -> str:
        """Create a container; return its URL."""
        date = formatdate(usegmt=True)
        signed = "PUT" + "\n" * 12
        signed += f"x-ms-date:{date}\nx-ms-version:{_API}\n/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        signature = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
        headers = {"x-ms-date": date, "x-ms-version": _API, "Content-Length": "0"}
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}"
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=START_S)
        link.request("PUT", f"/{ACCOUNT}/{name}?restype=container", headers=headers)
        status = link.getresponse().status
        link.close()
        assert status == 201, status
        return f"az://{name}"

    def batches(self) -> int:
        """Return the number of batch requests so far."""
        return len(re.findall(r'"POST \S*comp=batch\S* HTTP', self._said()))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
