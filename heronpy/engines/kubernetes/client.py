"""Calls the API server with kubectl's credentials and with deadlines; raises the errors of the engine contract.

The PyPI package `kubernetes` (extra `kubernetes`), imported by the first call, handles credentials and TLS. It reads a
kubeconfig with its contexts, certificates, tokens and login commands or, inside a pod, the service account. Requests
and answers are plain JSON.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from heronpy.engines.contract import EngineAwayError, EngineFatalError
from heronpy.engines.kubernetes.api_server import refusal

CONNECT_S = 4.0
DEADLINE_S = 10.0
#: Larger answers are refused: a pod has some kilobytes.
ANSWER_MAX = 64 << 20
LINE_MAX = 4 << 20
#: Files with the service account of a pod.
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MISSING = "the package kubernetes is not installed"
INSTALL = "run: pip install 'heronpy[kubernetes]'"
JSON = "application/json"
APPLIED = "application/apply-patch+yaml"


class Api:
    """Calls the API server with the credentials of a kubeconfig's context or of a pod; safe to use from any thread."""

    def __init__(self, context: str = "", namespace: str = "", deadline_s: float = DEADLINE_S) -> None:
        self._context = context
        self._given = namespace
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        #: The package's configuration, its connections, and the namespace; None before the first call.
        self._opened: tuple[Any, Any, str] | None = None

    # ---- identity -------------------------------------------------------------------------------
    def _open(self) -> tuple[Any, Any, str]:
        with self._lock:
            if self._opened is not None:
                return self._opened
            try:
                import urllib3
                from kubernetes import client, config
            except ImportError:
                raise EngineFatalError(f"{MISSING}; {INSTALL}") from None
            # An answer that requests a retry is passed to the caller, which repeats the request.
            configuration = client.Configuration()
            configuration.retries = False
            try:
                found = self._load(config, configuration)
            except config.ConfigException as error:
                raise EngineFatalError(f"the kubeconfig cannot be used: {_line(error)}") from None
            except EngineFatalError:
                raise
            except Exception as error:  # a user's file may cause any exception in its readers
                raise EngineFatalError(
                    f"the kubeconfig cannot be used: {_line(error) or type(error).__name__}"
                ) from None
            try:
                pool = client.ApiClient(configuration).rest_client.pool_manager
            except (OSError, ValueError, urllib3.exceptions.HTTPError) as error:
                raise EngineFatalError(f"the certificates in the kubeconfig cannot be used: {_line(error)}") from None
            self._opened = configuration, pool, self._given or found or "default"
            return self._opened

    def _load(self, config: Any, configuration: Any) -> str:
        """Load the credentials into `configuration`; returns the namespace of their context."""
        if not self._context and not os.environ.get("KUBECONFIG") and (ACCOUNT / "token").exists():
            config.load_incluster_config(client_configuration=configuration)
            return (ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
        file = os.environ.get("KUBECONFIG") or "~/.kube/config"
        if any(part and not os.path.isabs(os.path.expanduser(part)) for part in file.split(os.pathsep)):
            raise EngineFatalError(
                f"KUBECONFIG is {file!r}, but the scheduler runs in another folder; use an absolute path"
            )
        parts = [part for part in file.split(os.pathsep) if part]
        if not any(os.path.exists(os.path.expanduser(part)) for part in parts):
            fix = "set KUBECONFIG to a kubeconfig, or ask the cluster's administrator for one"
            raise EngineFatalError(f"there is no kubeconfig {' or '.join(parts)}; {fix}")
        contexts, active = config.list_kube_config_contexts(config_file=file)
        named = {one["name"]: one for one in contexts}
        if self._context and self._context not in named:
            known = ", ".join(sorted(named))
            raise EngineFatalError(
                f"heron.kubernetes.context is {self._context!r}, but the kubeconfig has {known or 'no contexts'}"
            )
        config.load_kube_config(config_file=file, context=self._context or None, client_configuration=configuration)
        chosen = named[self._context] if self._context else active
        self._context = str(chosen["name"])
        return str((chosen.get("context") or {}).get("namespace") or "")

    @property
    def namespace(self) -> str:
        """The namespace of the pods: the given one, else the one of the context or the pod, else `default`."""
        return self._open()[2]

    @property
    def configuration(self) -> Any:
        """Server, credentials and certificates, as a `Configuration` of the package `kubernetes`."""
        return self._open()[0]

    @property
    def context(self) -> str:
        """The context of the kubeconfig; empty in a pod."""
        self._open()
        return self._context

    @property
    def server(self) -> str:
        return str(self._open()[0].host)

    # ---- requests -------------------------------------------------------------------------------
    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
        kind: str = JSON,
    ) -> dict[str, Any]:
        """The API server's answer as JSON. Raises EngineAwayError if it does not answer or temporarily refuses."""
        text = self.text(method, path, query, body, kind)
        try:
            found = json.loads(text)
        except ValueError:
            raise EngineAwayError(f"the API server answered {method} {path} with something other than JSON") from None
        if not isinstance(found, dict):
            raise EngineAwayError(f"the API server answered {method} {path} with JSON that is not an object")
        return found

    def text(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
        kind: str = JSON,
    ) -> bytes:
        """The API server's answer as bytes; raises the same errors as `call`."""
        with self._asked(method, path, query, body, kind, self._deadline_s) as answer:
            try:
                found: bytes = answer.read(ANSWER_MAX + 1, decode_content=True)
            except Exception as error:
                raise _away(method, path, error) from None
            if len(found) > ANSWER_MAX:
                raise EngineAwayError(f"the API server answered {method} {path} with more than {ANSWER_MAX >> 20} MB")
            if answer.status >= 300:
                if answer.status == 401:
                    self._forget()
                raise refusal(_VERBS[method], _object(path), answer.status, found)
        return found

    def lines(self, path: str, query: Mapping[str, str | int], idle_s: float, opened: list[Any]) -> Iterator[bytes]:
        """The lines of an answer as they arrive; `opened` receives the answer, so that another thread can `shut` it."""
        with self._asked("GET", path, query, None, JSON, idle_s) as answer:
            if answer.status >= 300:
                raise refusal("watch", _object(path), answer.status, answer.read(LINE_MAX))
            opened.append(answer)
            rest = b""
            try:
                for piece in answer.stream(65536, decode_content=True):
                    *lines, rest = (rest + piece).split(b"\n")
                    yield from (line for line in lines if line)
                    if len(rest) > LINE_MAX:
                        raise EngineAwayError("the API server sent an incomplete line to a watch")
            except EngineAwayError:
                raise
            except Exception as error:
                raise _away("watch", path, error) from None

    def _asked(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int] | None,
        body: Mapping[str, Any] | None,
        kind: str,
        read_s: float,
    ) -> Any:
        configuration, pool, _ = self._open()
        import urllib3

        headers = {"Accept": "application/json, */*", "User-Agent": "heronpy"}
        url = f"{configuration.host}{quote(path, safe='/')}" + (f"?{urlencode(query)}" if query else "")
        try:
            # This renews a token that is about to expire.
            for one in configuration.auth_settings().values():
                if one["in"] == "header" and one["value"]:
                    headers[one["key"]] = one["value"]
            data = None if body is None else json.dumps(body).encode()
            if data is not None:
                headers["Content-Type"] = kind
            return pool.request(
                method,
                url,
                body=data,
                headers=headers,
                timeout=urllib3.Timeout(connect=min(CONNECT_S, read_s), read=read_s),
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except Exception as error:  # the login command or the connection may raise any exception
            raise _away(method, path, error) from None

    def _forget(self) -> None:
        with self._lock:
            self._opened = None


_VERBS = {"GET": "read", "POST": "create", "DELETE": "delete", "PATCH": "patch"}


def shut(opened: list[Any]) -> None:
    """Close an answer that another thread is reading with `lines`."""
    for answer in opened:
        try:
            answer.shutdown()
        except Exception:  # the answer has ended already
            continue


def _object(path: str) -> str:
    before, _, after = path.partition("/namespaces/")
    namespace, _, rest = after.partition("/")
    if not rest:
        return f"namespaces {namespace}" if after else before.rpartition("/")[2]
    return f"{rest.replace('/', ' ')} in namespace {namespace}"


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def _away(method: str, path: str, error: BaseException) -> EngineAwayError:
    return EngineAwayError(f"the API server does not answer {method} {path}: {_line(error) or type(error).__name__}")
