"""`cluster[/role[/environ]]`, topology names and the flags that most verbs share, as click pieces."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click


def _settings(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    from heronpy.cli.complete import settings  # which needs this module

    return settings(ctx, param, incomplete)


F = TypeVar("F", bound=Callable[..., Any])

#: Clusters, roles and environs.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,99}")
NAME_RULE = "use 1 to 100 letters, digits, '_', '-' and '.', not starting with '-' or '.'"


def topology_name_problem(name: str) -> str | None:
    """What is wrong with the name of a topology to submit, as the end of a sentence."""
    from heronpy.common import ids

    return ids.topology_name_problem(name)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a verb acts. role and environ are None when the user named none: then any matches."""

    cluster: str
    role: str | None = None
    environ: str | None = None

    @property
    def role_or_user(self) -> str:
        return self.role or unix_user()

    @property
    def environ_or_default(self) -> str:
        return self.environ or "default"

    def __str__(self) -> str:
        return "/".join(part for part in (self.cluster, self.role, self.environ) if part)


def unix_user() -> str:
    """Name of the user who runs the command, as the system knows it: never what $USER or $LOGNAME say.

    It becomes the role, a folder's name and part of commands, so a name that is none of those, and a user
    without an entry (containers), become uid<number>.
    """
    import os
    import pwd

    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = ""
    return name if NAME.fullmatch(name) else f"uid{os.getuid()}"


class TargetType(click.ParamType):  # type: ignore[type-arg]
    """Parses `cluster[/role[/environ]]`."""

    name = "cluster[/role[/environ]]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Target:
        if isinstance(value, Target):
            return value
        if str(value).startswith("-"):
            self.fail(f"no such option: {value}; give the cluster first, and flags of a program behind the program")
        parts = str(value).split("/")
        if len(parts) > 3 or not all(NAME.fullmatch(part) for part in parts):
            self.fail(f"'{value}' is no cluster[/role[/environ]]; for example 'local' or 'local/ads/prod'", param, ctx)
        return Target(*parts)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        from heronpy.cli.session import known_clusters

        return [CompletionItem(name) for name in known_clusters() if name.startswith(incomplete)]


class TopologyName(click.ParamType):  # type: ignore[type-arg]
    """A topology's name."""

    name = "topology"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from heronpy.common.ids import name_problem

        # Not the rule for new names: what an older release has submitted can still be killed.
        problem = name_problem(str(value))
        if problem:
            self.fail(f"topology name '{value}' {problem}; use letters, digits, '_', '-' and '.'", param, ctx)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        from heronpy.cli.session import Session

        target = ctx.params.get("target")
        if target is None:
            return []
        try:
            names = Session(target).names()
        except Exception:  # completion must never print an error into the user's prompt
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@dataclass(frozen=True, slots=True)
class Common:
    """Values of the flags that every verb has."""

    config_path: str | None = None
    config_property: tuple[str, ...] = ()
    verbose: bool = False


def common_flags(function: F) -> F:
    """--config-path, --config-property and --verbose, collected into one `common` argument."""

    @click.option("--config-path", metavar="DIR", help="Folder with <cluster>/<room>.yaml files of settings.")
    @click.option("--config-property", metavar="K=V", multiple=True, help="Override one setting; may be repeated.",
                  shell_complete=_settings)  # fmt: skip
    @click.option("--verbose", is_flag=True, help="Say more; show heron's own traceback when it fails.")
    @functools.wraps(function)
    def collect(
        *args: Any, config_path: str | None, config_property: tuple[str, ...], verbose: bool, **kwargs: Any
    ) -> Any:
        return function(*args, common=Common(config_path, config_property, verbose), **kwargs)

    return collect  # type: ignore[return-value]


target_argument = click.argument("target", type=TargetType(), metavar="CLUSTER[/ROLE[/ENVIRON]]")
topology_argument = click.argument("topology", type=TopologyName())
optional_topology_argument = click.argument("topology", type=TopologyName(), required=False)
json_flag = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
