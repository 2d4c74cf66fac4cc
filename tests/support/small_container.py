"""A container on another host whose executor is `tests.support.small_executor`."""

from __future__ import annotations

from heronpy.executor.bootstrap import leave, main

if __name__ == "__main__":
    leave(main(executor_module="tests.support.small_executor"))
