"""Click arguments and flags that verbs share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from heronpy.cli.flags import complete
from heronpy.clusters.errors import RequestError
from heronpy.clusters.target import Common, Target
from heronpy.common.errors import ConfigError
from heronpy.common.ids import name_problem
from heronpy.common.units import parse_duration_s

F = TypeVar("F", bound=Callable[..., Any])

#: Key in a context's meta: whether the cluster was omitted because only one exists.
LEFT_OUT = "heronpy.cli.cluster_left_out"

#: How plans are printed.
FORMATS = ("table", "colored_table", "json", "raw")


class TargetType(click.ParamType):  # type: ignore[type-arg]
    """Parses `cluster[/role[/environ]]`."""

    name = "cluster[/role[/environ]]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Target:
        if isinstance(value, Target):
            return value
        if str(value).startswith("-"):
            self.fail(f"no such option: {value}; give the cluster first, and flags of a program after the program")
        try:
            return Target.parse(str(value), implied=ctx is not None and bool(ctx.meta.get(LEFT_OUT)))
        except RequestError as failure:
            self.fail(str(failure), param, ctx)


class UnitId(click.ParamType):  # type: ignore[type-arg]
    """The id of a work unit: 12, or u12 as `heron units bad` prints it."""

    name = "unit"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = str(value).removeprefix("u")
        if not number.isascii() or not number.isdecimal():
            self.fail(
                f"'{value}' is not a unit; give the number of a unit as the tables show it, such as 12 or u12",
                param,
                ctx,
            )
        if not int(number):
            self.fail(f"'{value}' is not a unit: ids start at 1; leave the id out for the whole pipeline", param, ctx)
        return int(number)


class TopologyName(click.ParamType):  # type: ignore[type-arg]
    name = "topology"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        # Less strict than the rule for new names, so that a topology of an older release can still be killed.
        problem = name_problem(str(value))
        if problem:
            self.fail(f"topology name '{value}' {problem}; use letters, digits, '_', '-' and '.'", param, ctx)
        return str(value)


class RunName(TopologyName):
    """The name of a topology, or of one of its batch runs, such as visits/3."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        super().convert(str(value).partition("/")[0], param, ctx)
        return str(value)


class Duration(click.ParamType):  # type: ignore[type-arg]
    """Converts a time such as 90s, 12h or 7d to seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return parse_duration_s(value)
        except ConfigError:
            self.fail(f"'{value}' is not a time; give a time such as '90s', '12h' or '7d'", param, ctx)


def common_flags(function: F) -> F:
    """Add --config-path, --config-property and --verbose, which are collected into one argument `common`."""

    @click.option("--config-path", metavar="DIR", help="Folder with the settings files <cluster>/<room>.yaml.")
    @click.option("--config-property", metavar="K=V", multiple=True, help="Override one setting; may be repeated.",
                  shell_complete=complete.settings)  # fmt: skip
    @click.option("--verbose", is_flag=True, help="Print more details; show heron's traceback when heron itself fails.")
    @functools.wraps(function)
    def collect(
        *args: Any, config_path: str | None, config_property: tuple[str, ...], verbose: bool, **kwargs: Any
    ) -> Any:
        return function(*args, common=Common(config_path, config_property, verbose), **kwargs)

    return collect  # type: ignore[return-value]


def timeout_flag(default: float | None, meaning: str) -> Callable[[F], F]:
    """Return the option --timeout S, whose parameter is `timeout_s`; the help shows the default if there is one."""
    return click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0.1),
        default=default,
        show_default=default is not None,
        metavar="S",
        help=meaning,
    )


target_argument = click.argument(
    "target", type=TargetType(), metavar="CLUSTER[/ROLE[/ENVIRON]]", shell_complete=complete.clusters
)
topology_argument = click.argument("topology", type=TopologyName(), shell_complete=complete.topologies)
run_argument = click.argument("topology", type=RunName(), shell_complete=complete.topologies)
optional_topology_argument = click.argument(
    "topology", type=TopologyName(), required=False, shell_complete=complete.topologies
)
json_flag = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def verb(
    name: str,
    group: click.Group | None = None,
    *,
    cls: type[click.Command] = click.Command,
    target: Callable[[Any], Any] = target_argument,
    topology: Callable[[Any], Any] | None = topology_argument,
    json: bool = True,
    common: bool = True,
    **settings: Any,
) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator that makes a function a command of a group, or of `heron` itself.

    The cluster and the topology come before the command's own parameters, --json and the common flags after them.
    """

    def declare(function: Callable[..., Any]) -> click.Command:
        own = function.__dict__.pop("__click_params__", [])
        function = common_flags(function) if common else function
        function = json_flag(function) if json else function
        function.__dict__.setdefault("__click_params__", []).extend(own)  # click lists options in reverse order
        function = target(topology(function) if topology is not None else function)
        made: click.Command = (click if group is None else group).command(name, cls=cls, **settings)(function)
        return made

    return declare


def component_flags(meaning: str) -> Callable[[F], F]:
    """Return a decorator that adds [COMPONENT] and its synonym --component as one parameter `component`."""

    def add(function: F) -> F:
        @click.argument("what", required=False, metavar="[COMPONENT]", shell_complete=complete.components)
        @click.option("--component", metavar="NAME", help=meaning, shell_complete=complete.components)
        @functools.wraps(function)
        def choose(*args: Any, what: str | None, component: str | None, **kwargs: Any) -> Any:
            if what is not None and component is not None and what != component:
                raise click.UsageError(f"two components are given, {what} and {component}; give one")
            return function(*args, component=what or component, **kwargs)

        return choose  # type: ignore[return-value]

    return add


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator for several options, which appear in this order in the help."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def cluster_flag(meaning: str) -> Callable[[F], F]:
    """Return the option --cluster, whose parameter is `target`, for verbs that otherwise create a temporary cluster."""
    return click.option(
        "--cluster", "target", type=TargetType(), metavar="CLUSTER", help=meaning, shell_complete=complete.clusters
    )
