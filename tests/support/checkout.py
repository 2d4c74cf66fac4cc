"""This checkout in namespaces with a /tmp of their own: one that lies below /tmp has to be shown there, too."""

from __future__ import annotations

import shlex

from tests.support.command import REPO

_AT = shlex.quote(str(REPO))
_IS_HIDDEN = REPO.is_relative_to("/tmp")
#: Lines of a shell script, before and after something is mounted at /tmp; `{root}`: what stands for / there.
HOLD = (f"exec 9< {_AT}",) if _IS_HIDDEN else ()
SHOW = (f"mkdir -p {{root}}{_AT}", f"mount -c --bind /proc/self/fd/9 {{root}}{_AT}") if _IS_HIDDEN else ()
