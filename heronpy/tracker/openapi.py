"""Builds the OpenAPI 3.1 document of `/api/v1` from the routes and the structs. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from heronpy.common.version import VERSION
from heronpy.tracker.calls import Param, Route
from heronpy.tracker.guard import SAFE, Scope
from heronpy.views.overview import Problem

_TYPES = {int: "integer", float: "number", str: "string"}
_REFERENCES = "#/components/schemas/{name}"


def document(routes: Sequence[Route]) -> dict[str, Any]:
    types = [kind for route in routes for kind in (route.returns, route.takes) if kind is not None]
    shapes, schemas = msgspec.json.schema_components([*types, Problem], ref_template=_REFERENCES)
    schema_of = {str(kind): shape for kind, shape in zip([*types, Problem], shapes, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "heronpy tracker",
            "version": VERSION,
            "description": "Topologies of the tracker's clusters. null means unknown; times are in seconds since 1970.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "heron ui token"},
            },
        },
    }


def _operation(route: Route, schema_of: dict[str, Any]) -> dict[str, Any]:
    names = re.findall(r"\{(\w+)\}", route.path)
    schema = schema_of[str(route.returns)] if route.returns is not None else {}
    problem = {"application/problem+json": {"schema": schema_of[str(Problem)]}}
    found: dict[str, Any] = {
        "operationId": route.answer.__name__,
        "summary": route.summary,
        "x-scope": route.scope.value,
        # Without a token, only the tracker's own user has access.
        "security": [] if route.scope is Scope.OPEN else [{"token": []}, {}],
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names),
            *map(_parameter, route.params),
        ],
        "responses": {
            "200": {"description": route.summary, "content": {route.media: {"schema": schema}}},
            "default": {"description": "one sentence, with the fix", "content": problem},
        },
    }
    if route.takes is not None:
        found["requestBody"] = {"content": {"application/json": {"schema": schema_of[str(route.takes)]}}}
    if route.method not in SAFE:
        proof = {"name": "X-Heron", "in": "header", "required": True, "schema": {"const": "1"}}
        found["parameters"].append(proof)
    if "/actions/" in route.path or "/layers/" in route.path:
        found["parameters"] += [
            {
                "name": "If-Match", "in": "header", "required": False, "schema": {"type": "string"},
                "description": "the version of the plan or of the layer that the client has read",
            },
        ]  # fmt: skip
    return found


def _parameter(param: Param) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": _TYPES.get(param.kind, "string")}
    if param.choices:
        schema["enum"] = list(param.choices)
    if param.low is not None:
        schema["minimum"] = param.low
    if param.high is not None:
        schema["maximum"] = param.high
    if param.default is not None and param.kind is not list:
        schema["default"] = param.default
    if param.kind is list:
        schema = {"type": "array", "items": {"type": "string"}}
    return {
        "name": param.name, "in": "query", "required": param.required, "description": param.help, "schema": schema,
    }  # fmt: skip
