"""Fake topology masters, stream managers, instances and gateways: a file defines the behaviour of `main(argv)`.

`<working_dir>/behaviour.json` maps a process name to {"do": ..., ...}; without an entry the process runs
until SIGTERM. Each start appends a line "name pid epoch" to `<working_dir>/starts`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from heronpy.common.ids import instance_id, stmgr_id
from heronpy.plan.launch import LaunchSpec
from heronpy.procs import exit_notice
from heronpy.proto import plan_pb2


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--launch")
    parser.add_argument("--container", type=int)
    parser.add_argument("--task", type=int)
    parser.add_argument("--epoch", type=int)
    parser.add_argument("--after", default="")
    parser.add_argument("--name", default="")
    arguments = parser.parse_args(argv)
    launch = LaunchSpec.load(arguments.launch)
    name = _name(launch, arguments)
    folder = Path(launch.working_dir)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    exit_notice.claim()
    print(f"{name} starts with epoch {arguments.epoch}", flush=True)
    with open(folder / "afters", "a") as afters:
        afters.write(f"{name} {arguments.after or '-'}\n")
    with open(folder / "starts", "a") as starts:  # last, because a test may end the child as soon as it sees this
        starts.write(f"{name} {os.getpid()} {arguments.epoch}\n")
    behaviour = {}
    if (folder / "behaviour.json").exists():
        behaviour = json.loads((folder / "behaviour.json").read_text()).get(name, {})
    code = _behave(behaviour, launch, name, arguments)
    exit_notice.announce(code)
    return code


def _name(launch: LaunchSpec, arguments: argparse.Namespace) -> str:
    if arguments.container is None:
        return arguments.name or "tmaster"
    if arguments.task is None:
        return stmgr_id(arguments.container)
    plan = plan_pb2.PackingPlan.FromString((Path(launch.working_dir) / "plan.pb").read_bytes())
    for container in plan.containers:
        for instance in container.instances:
            if instance.task_id == arguments.task:
                return instance_id(arguments.container, instance.component, instance.task_id)
    raise SystemExit(3)


def _behave(behaviour: dict[str, Any], launch: LaunchSpec, name: str, arguments: argparse.Namespace) -> int:
    what = behaviour.get("do", "run")
    if "times" in behaviour:
        text = (Path(launch.working_dir) / "starts").read_text()
        if sum(line.startswith(f"{name} ") for line in text.splitlines()) > behaviour["times"]:
            what = "run"
    if what == "exit":
        print(behaviour.get("says", "bye"), flush=True)
        return int(behaviour["code"])
    if what == "leave":  # as user code does
        os._exit(behaviour["code"])
    if what == "raise":
        _report_exception(launch, name, arguments)
        return 4
    if what == "daemon":
        # A user's subprocess that tries to escape, with a new session and without its parent.
        child = subprocess.Popen(["sleep", "300"], start_new_session=True)
        (Path(launch.working_dir) / "escaped").write_text(str(child.pid))
    if what == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if what == "hang":
        _report_hang(launch, name, arguments, behaviour["loop_age_s"])
    if what == "chat":
        for number in range(behaviour["lines"]):
            print(f"line {number} " + "x" * 100)
        sys.stdout.flush()
    while True:
        time.sleep(60)


def _push(launch: LaunchSpec, arguments: argparse.Namespace, body: Any) -> None:
    import zmq

    from heronpy.net.rpc import wrap

    sock = zmq.Context.instance().socket(zmq.PUSH)
    sock.setsockopt(zmq.LINGER, 1000)
    sock.connect(f"ipc://{launch.sockets_dir}/executor-{arguments.container or 0}.metrics")
    sock.send(wrap(body).SerializeToString())
    sock.close()
    if body.DESCRIPTOR.name == "ExceptionReport":
        zmq.Context.instance().term()


def _report_exception(launch: LaunchSpec, name: str, arguments: argparse.Namespace) -> None:
    from heronpy.proto import control_pb2

    _push(
        launch,
        arguments,
        control_pb2.ExceptionReport(process=name, type="ValueError", message="bad tuple", traceback="Traceback ..."),
    )


def _report_hang(launch: LaunchSpec, name: str, arguments: argparse.Namespace, loop_age_s: float) -> None:
    from heronpy.proto import control_pb2

    report = control_pb2.MetricsReport(
        process=name,
        task_id=arguments.task or 0,
        component="word",
        epoch=arguments.epoch,
        pid=os.getpid(),
        loop_age_s=loop_age_s,
        state=control_pb2.TASK_RUNNING,
    )
    report.samples.add(name="__emit-count", label="default", type=control_pb2.Sample.COUNTER, value=7)
    _push(launch, arguments, report)


if __name__ == "__main__":
    sys.exit(main())
