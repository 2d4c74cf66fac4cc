"""`heron job apply` and `heron job schema`: write a layer of several jobs from a file, and list a layer's keys."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, BinaryIO, Final

import msgspec

from heronpy.cli.change import jobs
from heronpy.cli.output import moment, print_json, say
from heronpy.clusters.errors import ClusterError, RequestError
from heronpy.clusters.target import Common, Target
from heronpy.common.errors import ConfigError, HeronError
from heronpy.common.nearest import did_you_mean
from heronpy.common.units import format_bytes
from heronpy.jobs.documents import check_by_hand, keys, name_of
from heronpy.jobs.merge import Change, Entry

FILE_BYTES_MAX: Final = 1 << 20
#: Texts that `heron job schema` shows as defaults of keys that have no default value and are not set by the program.
_DEFAULTS: Final = {
    "scale.max.COMPONENT": "none, so the component is not scaled",
    "scale.min.COMPONENT": "1",
    "place.pool": "no pool",
    "role": "no role",
}


def apply(
    target: Target, file: BinaryIO, layer: str, dry_run: bool, why: str, detach: bool, timeout_s: float, common: Common
) -> None:
    """Replace a layer of each job in a file with the file's content; if the file is invalid, change nothing.

    If another user changes a key during the write, raises an error that lists the jobs written so far.
    """
    check_by_hand(layer)
    session, store = jobs.opened(target, common)
    documents, seen = _documents(file), dict[str, int]()
    changed: list[str] = []
    why = why or f"applied {file.name}"
    for job, given in documents.items():
        if job not in store.names():
            what = f"{file.name}: there is no job '{job:.200}'{did_you_mean(job, store.names())}"
            raise RequestError(f"{what}; create the job first: heron job create {target} PROGRAM")
        try:
            check_by_hand(layer, given)
            seen[job] = store.get(job).versions[layer]
            store.apply(job, layer, given, seen[job], jobs.writer(), why, write=False)
        except (ConfigError, RequestError) as error:
            raise RequestError(f"{file.name}: job '{job}': {error}") from None
    for number, (job, given) in enumerate(documents.items()):
        try:
            view, change = store.apply(job, layer, given, seen[job], jobs.writer(), why, write=not dry_run)
        except HeronError as error:
            left = ", ".join([*documents][number:])
            what = f"written: {', '.join(changed)}; " if changed else "nothing was written; "
            raise ClusterError(f"{file.name}: job '{job}': {error}; {what}not applied: {left}") from None
        lines = _lines(change)
        version = "file and layer differ; nothing was written" if dry_run else f"{layer} v{view.versions[layer]}"
        say(f"job {job}: {version if lines else 'no differences'}")
        for line in lines:
            say(f"  {line}")
        changed += [job] if lines else []
    if dry_run or not changed:
        return
    jobs.ensure_manager(session)
    for job in [] if detach else changed:
        jobs.say_outcome(session, store, job, timeout_s)


def schema(as_json: bool) -> None:
    """Print each key that a layer may currently have."""
    found = [*keys()]
    for one in found:
        one["layers"] = [name for name in one["layers"] if name != "scaler"]
    if as_json:
        print_json(found)
        return
    for one in found:
        usual = _DEFAULTS.get(one["key"], "as in the program")
        default = usual if one["default"] is None else _text(one["default"], one["unit"])
        say(f"{one['key']}  {one['meaning'].removesuffix('.')}")
        say(f"  {one['range']}; default: {default}; layers: {', '.join(one['layers'])}")


def _documents(file: BinaryIO) -> dict[str, dict[str, Any]]:
    """Return the keys of each job in a file; raises RequestError if the file is invalid."""
    content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise RequestError(f"{file.name} is larger than {format_bytes(FILE_BYTES_MAX)}; split the file")
    documents: dict[str, dict[str, Any]] = {}
    for number, given in enumerate(_parsed(content, file.name), 1):
        job = given.pop("job", None) if isinstance(given, dict) else None
        if not isinstance(job, str):
            raise RequestError(f"{file.name}: document {number} names no job; begin it with job: NAME, then the keys")
        if job in documents:
            raise RequestError(f"{file.name}: job '{job:.200}' has two documents; merge them")
        documents[job] = given
    if not documents:
        raise RequestError(f"{file.name} contains no document; write job: NAME, and below that the keys of the layer")
    return documents


def _parsed(content: bytes, name: str) -> list[Any]:
    """Return the documents of a YAML or JSON file, except empty ones."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            return _once(self.construct_pairs(node, deep))

    try:
        try:
            found = json.loads(content, object_pairs_hook=_once)
            found = found if isinstance(found, list) else [found]
        except json.JSONDecodeError:
            found = list(yaml.load_all(content, Loader))
    except (yaml.YAMLError, ConfigError, ValueError, TypeError, RecursionError) as error:
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise RequestError(f"{name} cannot be read as YAML or JSON: {what}{where}") from None
    return [one for one in found if one is not None]


def _once(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return a dict of these keys and values; raises ConfigError for a duplicate key."""
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = next(key for at, (key, _) in enumerate(pairs) if key in dict(pairs[:at]))
        raise ConfigError(f"the key {twice!r:.200} is given twice; remove one of them")
    return made


def _lines(change: Change) -> list[str]:
    """Return the differences, one line per key."""
    before, after = ({entry.path: _shown(entry) for entry in side} for side in (change.before, change.after))
    paths = sorted({*before, *after})
    return [f"{name_of(path)}: {before.get(path, 'not set')} -> {after.get(path, 'not set')}" for path in paths]


def _shown(entry: Entry) -> str:
    unit = "bytes" if entry.path[0] == "resources" and entry.path[-1] == "ram" else ""
    return _text(entry.value, unit) + (f" until {moment(entry.stamp.until)}" if entry.stamp.until else "")


def _text(value: Any, unit: str) -> str:
    """Return a value as JSON or, if its unit is bytes, as an amount of bytes."""
    return format_bytes(value) if unit == "bytes" else msgspec.json.encode(value).decode()
