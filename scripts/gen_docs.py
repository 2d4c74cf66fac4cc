#!/usr/bin/env python3
"""Writes docs/reference/ and conf/local/ from the source: commands, settings, metrics, faults and REST.

python scripts/gen_docs.py            write the pages
python scripts/gen_docs.py --check    fail if a page is out of date
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import click  # noqa: E402
import msgspec  # noqa: E402

from heronpy.cli import exits  # noqa: E402
from heronpy.cli.main import VERBS, heron  # noqa: E402
from heronpy.common.folders import make_output  # noqa: E402
from heronpy.common.setting_types import ALIASES, ROOMS  # noqa: E402
from heronpy.common.settings import conf_text, describe  # noqa: E402
from heronpy.common.topology_keys import (  # noqa: E402
    KINDS,
    OTHER_NAMES,
    TOPOLOGY_KEYS,
)
from heronpy.metrics import prometheus  # noqa: E402
from heronpy.metrics.names import METRICS, Kind, Metric  # noqa: E402
from heronpy.metrics.sums import SUMS  # noqa: E402
from heronpy.plan.component_config import unsupported_problems  # noqa: E402
from heronpy.proto import control_pb2  # noqa: E402
from heronpy.tracker.app import routes  # noqa: E402
from heronpy.tracker.calls import Param  # noqa: E402
from heronpy.tracker.reading import TOPOLOGY  # noqa: E402
from heronpy.verify.scenarios import scenarios  # noqa: E402
from heronpy.views.advice import ActionBody  # noqa: E402
from heronpy.views.evidence import EvidenceBody  # noqa: E402

FOLDER = ROOT / "docs" / "reference"
NOTE = "<!-- written by scripts/gen_docs.py; do not edit -->\n"

# ---- what a topology.* key does -----------------------------------------------------------------

#: Map from key without "topology." to its effect. Every other known key is accepted and has no effect.
EFFECTS = {
    "stmgrs": "Number of containers (`heron update --container-number` changes it).",
    "component.parallelism": "Number of tasks of a component; set by `par`.",
    "reliability.mode": "`ATMOST_ONCE` (default), `ATLEAST_ONCE` or `EFFECTIVELY_ONCE`.",
    "message.timeout.secs": "At least once: an unfinished tuple tree fails after this; default 30.",
    "enable.message.timeouts": "`false`: trees never time out; default true.",
    "max.spout.pending": "At least once: maximum number of unfinished tuples with an id per spout task; default 100.",
    "droptuples.upon.backpressure": "At most once: tuples for a full task are discarded, and no spout is stopped. `true` or `drop_newest`: all these tuples are discarded; `sample`: a share is kept. See [backpressure](../backpressure.md).",
    "tick.tuple.freq.secs": "Interval between calls of `process_tick`. Read once, after `initialize`.",
    "tick.tuple.freq.ms": "The same interval in milliseconds; overrides `.secs`.",
    "serializer.classname": "Class path of an `IHeronSerializer` for the values of tuples.",
    "auto.task.hooks": "List of class paths of task hooks, for every task.",
    "name": "Set by heronpy to the topology's name.",
    "container.cpu.requested": "Cores of a container; limits the tasks that packing puts into it.",
    "container.ram.requested": "Memory of a container; limits the tasks that packing puts into it.",
    "container.disk.requested": "Disk of a container; limits the tasks that packing puts into it.",
    "container.max.cpu.hint": "Upper bound on the cores of a container.",
    "container.max.ram.hint": "Upper bound on the memory of a container.",
    "container.max.disk.hint": "Upper bound on the disk of a container.",
    "container.padding.percentage": "Share for the runtime; overrides `heron.packing.container_padding_percent`.",
    "container.ram.padding": "Memory of a container kept free, in addition to the percentage.",
    "container.max.num.instances": "Maximum number of tasks of a container.",
    "component.cpumap": "Cores of a task by component: `count:0.5,split:2`.",
    "component.cpu": "In the configuration of a component: cores of each of its tasks; overrides the cpumap; `heron update` changes it.",
    "component.ram": "In the configuration of a component: memory of each of its tasks, and the limit above which a task is restarted; overrides the rammap; `heron update` changes it.",
    "component.rammap": "Memory of a task by component: `count:512MB`. For planning only, not a limit; the requests of all containers must fit the machine.",
    "component.diskmap": "Disk of a task by component.",
    "packing.ffd.sorting.strategy": "`RAM_FIRST` (default) or `CPU_FIRST`, for first_fit_decreasing.",
}

#: Modules that report metrics; other modules only read them.
REPORTERS = (
    "stmgr/*.py",
    "instance/*.py",
    "heronpy/executor/*.py",
    "heronpy/batch/worker.py",
    "heronpy/ingest/figures.py",
    "heronpy/metrics/prometheus.py",
    "heronpy/spark/*.py",
    "heronpy/tmaster/*.py",
)
#: Metric names that the code composes from parts.
COMPOSED = re.compile(r"__py-generation-\d-(count|collection-threshold)|__replica/__\w+")

ENVIRONMENT = (
    ("HERON_HOME", "State, packages, logs and working folders of topologies; default `~/.herondata`."),
    ("HERON_CONF", "Folder with `<cluster>/<room>.yaml` files, which override the shipped files."),
    ("HERON_CONFIG_HOME", "Folder of the client's defaults; default `~/.config/heron`."),
    ("JAVA_HOME", "The Java that runs Spark; default: the `java` in PATH."),
    ("PYTHONPATH", "Module search path, also of tasks; entries are made absolute at submit."),
)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


# ---- commands -----------------------------------------------------------------------------------


def cli_page() -> str:
    """Return the page about the commands of `heron`."""
    context = click.Context(heron, info_name="heron")
    parts = [
        NOTE,
        "# The heron command\n",
        "`heron <verb> cluster[/role[/environ]] <topology> [flags]`. `heron help <verb>` shows this page's text.\n",
        "Verbs that only read need no cluster if exactly one cluster has settings:\n"
        "`heron status word_count`. A first word that is a cluster's name, or has a `/`, is always the cluster. Verbs that\n"
        "change something require the cluster.\n",
        "## Exit codes\n",
        table(("code", "meaning"), ((str(code), text) for code, text in exits.MEANINGS.items())),
        "Verbs that change something return after the change. With `--json`, stdout contains only JSON; errors are\n"
        "one sentence on stderr.\n",
        "## Flags of most verbs\n",
        table(("flag", "meaning"), (_option_row(option)[:2] for option in _common_options(context))),
    ]
    for section, verbs in VERBS.items():
        parts.append(f"## {section}\n")
        for verb in verbs:
            command = heron.get_command(context, verb)
            assert command is not None
            parts += _command(command, context, verb, level=3)
    return "\n".join(parts)


def _common_options(context: click.Context) -> list[click.Option]:
    kill = heron.get_command(context, "kill")
    assert kill is not None
    names = ("config_path", "config_property", "verbose")
    return [param for param in kill.params if isinstance(param, click.Option) and param.name in names]


def _command(command: click.Command, parent: click.Context, name: str, level: int) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    yield f"{'#' * level} {context.command_path}\n"
    yield f"`{context.command_path} {' '.join(command.collect_usage_pieces(context))}`\n"
    yield _prose(command.help or "")
    common = {"config_path", "config_property", "verbose", "help"}
    options = [p for p in command.params if isinstance(p, click.Option) and p.name not in common]
    if options:
        yield table(("flag", "meaning", "default"), map(_option_row, options))
    if not isinstance(command, click.Group):
        return
    names = command.list_commands(context)
    # All profiles of the load test have the same flags, so the page describes one profile.
    profiles = [n for n in names if name == "load-test" and n not in command.commands]
    if profiles:
        yield "Profiles: " + ", ".join(f"`{n}`" for n in profiles) + ". They have the same flags:\n"
    for child in names:
        if child not in profiles[1:]:
            found = command.get_command(context, child)
            assert found is not None
            yield from _command(found, context, child, level + 1)


def _prose(text: str) -> str:
    """Return click's help text as Markdown; paragraphs that must not be wrapped become code blocks."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", re.sub(r"(?m)^ +", "", _dedent(text)).strip("\n")):
        if paragraph.startswith("\b\n"):
            parts.append(f"```text\n{paragraph[2:]}\n```\n")
        else:
            parts.append(plain(paragraph) + "\n")
    return "\n".join(parts)


def plain(text: str) -> str:
    """Escape a text of the source, so that Markdown shows it unchanged."""
    return re.sub(r"([<*_])", r"\\\1", text)


def _dedent(text: str) -> str:
    import inspect

    return inspect.cleandoc(text)


def _option_row(option: click.Option) -> tuple[str, str, str]:
    value = "" if option.is_flag else option.metavar or ""
    if isinstance(option.type, click.Choice):
        value = "|".join(map(str, option.type.choices))
    flags = ", ".join([*option.opts, *option.secondary_opts])
    text, said, default = (option.help or "").partition("  [default: ")
    if said:
        default = default.rstrip("]")
    elif option.show_default and option.default is not None:
        default = str(option.default)
    return f"`{flags} {value}".rstrip() + "`", plain(text) or "Form of the output.", f"`{default}`" if default else ""


# ---- settings -----------------------------------------------------------------------------------


def config_page() -> str:
    """Return the page about the settings of the rooms and the keys of topologies."""
    parts = [
        NOTE,
        "# Settings\n",
        "Later sources override earlier ones: defaults, `conf/<cluster>/<room>.yaml`, the topology's or a component's config\n"
        "(`heron.instance.*` only), the client's defaults (`heron config set`), `--config-property`. In a YAML file the key\n"
        "is the field's name; elsewhere, it is `heron.<room>.<field>`. `heron config show local --origin` prints each\n"
        "value and its source. Sizes are written like `512KB`, `64MB`; durations like `250ms`, `2s`. A bare number\n"
        "has the unit at the end of the field's name. Values of the wrong kind and unknown `heron.` or `topology.` keys are refused\n"
        "at submit; a key that only Apache Heron has is reported and ignored. Any other key is yours, and is passed unchanged to `initialize(config, context)`.\n",
    ]
    for room, cls in ROOMS.items():
        parts.append(f"## heron.{room}\n")
        parts.append(f"{cls.__doc__}\n")
        rows = (
            (f"`{item.name}`", f"`{item.default_text}`", f"{item.doc} {_range(item.expected)}".rstrip())
            for item in describe()
            if item.room == room
        )
        parts.append(table(("field", "default", "meaning"), rows))
    parts += _topology_keys()
    parts += ["## Environment variables\n", table(("variable", "meaning"), ((f"`{n}`", t) for n, t in ENVIRONMENT))]
    return "\n".join(parts)


def _range(expected: str) -> str:
    """Return the limits in a setting's description, without the unit that the page already states."""
    if expected.startswith("one of "):
        return f"O{expected[1:]}."
    match = re.search(r", (at least|from) (.*)", expected)
    return f"{match[1].capitalize()} {match[2]}." if match else ""


def _topology_keys() -> Iterator[str]:
    unknown = sorted(name for name in EFFECTS if f"topology.{name}" not in KINDS)
    if unknown:
        raise SystemExit(f"EFFECTS of gen_docs.py names keys that do not exist: {', '.join(unknown)}")
    yield "## topology.*\n"
    yield (
        "Names are Apache Heron's; `heronpy.api.api_constants` has most as constants. Set them with\n"
        "`TopologyBuilder.set_config`, in a Topology's `config`, or in a component's `config`, which wins there.\n"
    )
    rows = ((f"`topology.{name}`", KINDS[f"topology.{name}"].value, text) for name, text in EFFECTS.items())
    aliases = ((f"`{key}`", KINDS[key].value, f"Sets `{ours}`.") for key, ours in ALIASES.items())
    yield table(("key", "value", "effect"), (*rows, *aliases))
    refused = sorted(key for key in KINDS if unsupported_problems({key: 1}, ""))
    yield "Not supported by this release; `heron submit` names each one that is set:\n"
    yield ",\n".join(f"`{key}`" for key in refused) + ".\n"
    effects = {f"topology.{name}" for name in EFFECTS} | set(ALIASES) | set(refused)
    idle = sorted(key for key in {*KINDS, *TOPOLOGY_KEYS} if key not in effects | set(OTHER_NAMES))
    yield "Accepted without effect, so that existing topologies run:\n"
    yield ",\n".join(f"`{key}`" for key in idle) + ".\n"
    yield "Other names, which Apache Heron's constants use:\n"
    yield ",\n".join(f"`{key}` is `{name}`" for key, name in OTHER_NAMES.items()) + ".\n"


# ---- metrics ------------------------------------------------------------------------------------


def metrics_page() -> str:
    """Return the page about the metrics of the runtime."""
    sources = "".join(path.read_text(encoding="utf-8") for glob in REPORTERS for path in sorted(ROOT.glob(glob)))
    literals = set(re.findall(r'"((?:__(?:process/|executor/|tmaster/)?|spark-|units-|batch-)[\w-]+)["/]', sources))
    reported = [m for m in METRICS.values() if m.name in literals or COMPOSED.fullmatch(m.name)]
    silent = [m for m in METRICS.values() if m not in reported]
    titles = ("Tasks", "Stream managers", "Topology master", "Every process", "Spark", "Work units")
    groups: dict[str, list[Metric]] = {title: [] for title in titles}
    for metric in reported:
        groups[_group(metric.name)].append(metric)
    parts = [
        NOTE,
        "# Metrics\n",
        "`heron metrics` shows metrics by Heron name. Each executor serves its container's metrics to Prometheus at\n"
        "`http://127.0.0.1:<metrics_port>/metrics` (and `/health`); `heron status --json` shows the ports, and\n"
        "`heron.executor.metrics_port` fixes them. Prometheus gets seconds and bytes; the column `unit` applies to\n"
        "the Heron name. Every series has the labels `topology`, `container` and `process`; series\n"
        "of tasks also `component`, `task` and `instance_id`. Counters start at 0 when their process starts. A metric that\n"
        "your code registers appears as `heron_user_<name>`, with the label `key` when it has several values.\n",
    ]
    for title, metrics in groups.items():
        rows = ((f"`{m.name}`", f"`{_prometheus_name(m)}`", m.kind.value, m.unit, m.label, m.help) for m in metrics)
        parts += [f"## {title}\n", table(("metric", "Prometheus", "type", "unit", "label", "meaning"), rows)]
    parts += [
        "## The tracker's page\n",
        "Sums over the tasks of a component, computed by the topology masters; see\n"
        "[Alert with Prometheus](../howto/prometheus.md). Labels: `cluster`, `role`, `environ`, `topology`; series of\n"
        "components also have `component`, states `state`, and findings `verdict` and `component`.\n",
        table(("Prometheus", "type", "meaning"), ((f"`{s.shown}`", s.kind.value, s.help) for s in SUMS.values())),
    ]
    if silent:
        raise SystemExit(f"no process reports {', '.join(m.name for m in silent)}; remove or report them")
    return "\n".join(parts)


def _group(name: str) -> str:
    if name.startswith(("units-", "batch-")):
        return "Work units"
    if name.startswith("spark-"):
        return "Spark"
    if name.startswith("__tmaster/"):
        return "Topology master"
    if name.startswith(("__process/", "__executor/")):
        return "Every process"
    tasks = list(METRICS)[: list(METRICS).index("__tuples_to_workers")]
    return "Tasks" if name in tasks else "Stream managers"


def _prometheus_name(metric: Metric) -> str:
    kind = {
        Kind.COUNTER: control_pb2.Sample.COUNTER,
        Kind.GAUGE: control_pb2.Sample.GAUGE,
        Kind.HISTOGRAM: control_pb2.Sample.HISTOGRAM,
    }
    report = control_pb2.MetricsReport(
        process="p", samples=[control_pb2.Sample(name=metric.name, type=kind[metric.kind])]
    )
    return prometheus.Page("t").text([report]).split()[2]


# ---- faults -------------------------------------------------------------------------------------

#: Faults that only tests cause, not `heron verify`, with the folder of these tests.
TESTED_FAULTS = {
    "F07": (
        "The Spark driver, one of its Python workers or the sink is killed during a batch.",
        "tests/connectors",
    ),
    "F22": ("Writes are short, fail, or are not on the disk when the machine fails.", "tests/storage"),
    "F27": ("The wall clock jumps.", "tests/api"),
    "F28": ("ZooKeeper restarts, answers slowly, or is read-only.", "tests/statemgr"),
    "F31": ("Tasks are killed while a component is scaled up and down.", "tests/runtime"),
    "F33": ("Code is submitted whose state, fields or key groups do not match the checkpoint.", "tests/cli"),
    "F39": ("Any faults of a whole cluster in simulated time, in an order determined by a seed.", "tests/sim"),
}


def faults_page() -> str:
    """Return the page about the fault numbers that comments, tests and reports use."""
    lines = [
        "# Faults",
        "",
        NOTE,
        "The fault numbers in comments, tests and the report of `heron verify report`. `heron verify run --fault"
        " F01` injects one into a running topology; see [Prove it](../howto/verify.md).",
        "",
        "| fault | what happens | done by |",
        "|---|---|---|",
    ]
    rows = {name: (one.about, "`heron verify`") for name, one in scenarios().items() if name != "none"}
    rows |= {name: (about, f"`{tests}`") for name, (about, tests) in TESTED_FAULTS.items()}
    lines += [f"| {name} | {about} | {by} |" for name, (about, by) in sorted(rows.items())]
    return "\n".join(lines) + "\n"


def rest_page() -> str:
    """Return the page about the tracker's REST interface."""
    lines = [
        "# REST",
        "",
        NOTE,
        "The tracker's REST addresses; see [how to use them](../howto/tracker.md). `TOPOLOGY` is"
        " `/api/v1/topologies/{cluster}/{role}/{environ}/{name}`. `/api/v1/openapi.json` has the schemas of answers",
        " below `/api/v1`; the other addresses and their JSON are those of Apache Heron's tracker 0.20.5.",
        "",
    ]
    rows = []
    for route in routes():
        path = route.path.replace(TOPOLOGY, "TOPOLOGY")
        own = isinstance(route.returns, type) and issubclass(route.returns, msgspec.Struct)
        shape = route.returns.__name__ if own else "JSON" if route.returns is not None else route.media
        rows.append((f"`{route.method} {path}`", route.scope.value, f"`{shape}`", route.summary))
    lines += [table(("address", "scope", "answer", "what"), rows), ""]
    for route in routes():
        if route.params:
            lines += [f"## GET {route.path.replace(TOPOLOGY, 'TOPOLOGY')}", ""]
            lines += [table(("parameter", "meaning", "default"), map(_param_row, route.params)), ""]
    for title, body, needs in (
        ("an action", ActionBody, ""),
        ("stacks, profile, heap", EvidenceBody, ", except `pause` of a heap: true confirms that the process may pause"),
    ):
        lines += [f"## Body of {title}", "", f"All fields are optional{needs}.", ""]
        rows = [(f"`{field.name}`", _type_name(field.type)) for field in msgspec.structs.fields(body)]
        lines += [table(("field", "type"), rows), ""]
    lines += ["`/health` answers without a token."]
    return "\n".join(lines) + "\n"


def _type_name(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind).replace("|", "or")


def _param_row(param: Param) -> tuple[str, str, str]:
    choices = f" ({', '.join(param.choices)})" if param.choices else ""
    return f"`{param.name}`", param.help + choices, "" if param.default is None else f"`{param.default}`"


PAGES = {
    "cli.md": cli_page,
    "config.md": config_page,
    "faults.md": faults_page,
    "metrics.md": metrics_page,
    "rest.md": rest_page,
}


def main(argv: list[str] | None = None) -> int:
    """Write or check the pages; return 1 if a page is out of date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    check = parser.parse_args(argv).check
    stale = []
    files = {FOLDER / name: page for name, page in PAGES.items()}
    files |= {ROOT / "conf" / "local" / f"{room}.yaml": partial(conf_text, room) for room in ROOMS}
    for path, page in files.items():
        name, text = path.name, page()
        if (path.read_text(encoding="utf-8") if path.is_file() else "") == text:
            continue
        stale.append(name)
        if not check:
            make_output(path.parent)
            path.write_text(text, encoding="utf-8")
    if check and stale:
        print(f"these pages are out of date: {', '.join(stale)}; run: python scripts/gen_docs.py", file=sys.stderr)
    elif stale:
        print(f"wrote {', '.join(stale)}")
    return int(bool(check and stale))


if __name__ == "__main__":
    sys.exit(main())
