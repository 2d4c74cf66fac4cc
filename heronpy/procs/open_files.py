"""The number of files that a process may open."""

from __future__ import annotations

import resource

#: Where there is no hard limit; the kernel's own for a process (fs.nr_open) is the same by default.
FILES_MAX = 1 << 20


def lift_files() -> int:
    """Raise the soft limit of this process, and of those it starts, to the hard one, which is returned.

    An estimate alone would not do: a client that connects and stays silent also holds a descriptor for a moment.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return hard
