"""Makes this checkout visible in namespaces with a separate /tmp, for a checkout below /tmp."""

from __future__ import annotations

import shlex

from tests.support.command import REPO

_AT = shlex.quote(str(REPO))
_IS_HIDDEN = REPO.is_relative_to("/tmp")
#: Lines of a shell script, before and after a mount at /tmp; `{root}` is the root folder in the namespace.
HOLD = (f"exec 9< {_AT}",) if _IS_HIDDEN else ()
SHOW = (f"mkdir -p {{root}}{_AT}", f"mount -c --bind /proc/self/fd/9 {{root}}{_AT}") if _IS_HIDDEN else ()
