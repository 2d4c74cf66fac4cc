"""A finding as a sentence, and the next step. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from heronpy.common.units import counted, format_bytes, format_duration, listed
from heronpy.views.findings import SCHEDULER_DOWN, Finding, Verdict


def sentence(finding: Finding, topology: str) -> str:
    """Return the finding and its figures as a sentence without a full stop."""
    return _SENTENCES[finding.verdict](finding, topology)


def advice(finding: Finding, cluster: str, topology: str, job: bool = False) -> str:
    """Return the next step; "" if no action is needed. A `job` that controls the topology refuses `heron update`."""
    give, where = _ADVICE.get(finding.verdict), f"{cluster} {topology}"
    text = give(finding, where) if give is not None else ""
    verb = "show" if finding.verdict is Verdict.BAD_UPDATE else "explain"
    return _UPDATE.sub(f"heron job {verb} {where}", text) if job else text


#: A command that changes numbers of tasks, in a next step.
_UPDATE: Final = re.compile(r"heron update \S+ \S+( --component-parallelism \S+:\d+)*")


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}/s" if per_s >= 10 or not per_s else f"{per_s:.1f}/s"


def _healthy(f: Finding, topology: str) -> str:
    busiest = f", busiest task {f.task} at {_percent(f.figures['busy'])}" if f.task else ""
    n = f.figures
    rate = "" if "backlog" in n and not n["arrival"] else f"{_rate(n['arrival'])}, "
    units = f"{_of_units(n)}, " if "backlog" in n else ""
    ended = f"; the input of {listed(f.names)} has ended" if f.names else ""
    return f"{topology} is healthy: {rate}{units}spouts held back {_percent(n['held'])} of the time{busiest}{ended}"


def _of_units(n: Mapping[str, float]) -> str:
    """Return the figures of a pipeline of work units, whose workers emit nothing when they write a table."""
    waiting = (
        f"{format_bytes(int(n['backlog']))} of log files are waiting"
        if n["backlog"]
        else "no bytes of log files are waiting"
    )
    return f"{waiting}, {format_bytes(int(n['published']))}/s are published" if n["published"] else waiting


def _catching_up(f: Finding, topology: str) -> str:
    n = f.figures
    if "backlog" not in n:
        return f"{f.component} is catching up: its queues empty in {format_duration(round(n['left_s']))}"
    if n["published"]:
        return f"{topology} is catching up: {_of_units(n)}"
    window = format_duration(round(n["window_s"]))
    return f"{topology} is processing work units: {_of_units(n)}; nothing was published in the last {window}"


def _changing(f: Finding, topology: str) -> str:
    if f.names:
        if f.names[0] == "finishing":
            return f"the input of {topology} has ended, and the remaining tuples are being processed{_quoted(f)}"
        return f"{topology} is {f.names[0]}" + _quoted(f)
    if "young_s" in f.figures:
        left = format_duration(max(1, round(f.figures["young_s"])))
        return f"{topology} has just started; the doctor can judge it in {left}"
    left = format_duration(round(f.figures["left_s"]))
    what = f" ({f.quote})" if f.quote else ""
    return f"{topology} has changed{what}; its rates can be judged in {left}"


def _down(f: Finding, topology: str) -> str:
    if f == SCHEDULER_DOWN:
        return f"the scheduler of {topology} is not running, so a container that ends is not replaced"
    if "down" not in f.figures:
        return f"{f.names[0]} is {f.names[1]}{_quoted(f)}"
    down, tasks = int(f.figures["down"]), int(f.figures["tasks"])
    which = f"{down} of {tasks} tasks" if tasks > 1 else "the only task"
    return f"{which} of {f.component} {'is' if down == 1 else 'are'} down ({listed(f.names)}){_quoted(f)}"


def _quoted(f: Finding) -> str:
    """Return the last message, which may contain users' values; "" for readers who may not see values."""
    return f": {f.quote}" if f.quote else ""


def _dependency(f: Finding, topology: str) -> str:
    n = f.figures
    if "tuple_s" not in n:
        none = f"no tuple was processed in the last {format_duration(round(n['window_s']))}"
        return f"{f.component} is waiting, not computing: {none}{_in_line(f)}{_lasting(f)}"
    wall, cpu = format_duration(n["tuple_s"]), format_duration(n["cpu_s"])
    usual = f" (usually {format_duration(n['usual_s'])})" if "usual_s" in n else ""
    return (
        f"{f.component} is waiting, not computing: {wall} per tuple{usual}, {cpu} of it CPU{_in_line(f)}{_lasting(f)}"
    )


def _skew(f: Finding, topology: str) -> str:
    n = f.figures
    return (
        f"data skew: {f.task}, one of {n['tasks']:.0f} tasks, gets {_percent(n['share'])} of the tuples"
        f" (an even share is {_percent(n['even'])}) and is {_percent(n['busy'])} busy,"
        f" the others {_percent(n['median'])}{_of_key(f)}{_lasting(f)}"
    )


def _memory(f: Finding, topology: str) -> str:
    if "per_h" in f.figures:
        return _leak(f)
    if "limit" in f.figures:
        used, limit = format_bytes(int(f.figures["used"])), format_bytes(int(f.figures["limit"]))
        return f"{f.task} is close to its memory limit: {used} of {limit}"
    every = f", every {format_duration(round(f.figures['lasts_s'], 1))}" if "lasts_s" in f.figures else ""
    per_min = format_bytes(int(f.figures.get("grows_per_h", 0) / 60))
    grows = f"{every}, growing by {per_min} per minute" if "grows_per_h" in f.figures else ""
    return f"{f.task} ran out of memory {_times(f)}{grows}{_quoted(f)}"


def _leak(f: Finding) -> str:
    n = {name: format_bytes(int(value)) for name, value in f.figures.items()}
    others = f", its siblings have {n['median']}" if "median" in n else ""
    left_s, grew_s = round(f.figures["left_s"]), round(f.figures.get("grew_s", 0.0))
    since = f", for {format_duration(grew_s)}" if grew_s else ""
    grows = f"memory of {f.task} grows by {format_bytes(int(f.figures['per_h'] / 60))} per minute{since}"
    limit = f"its limit of {n['limit']}"
    end = f"at this rate it reaches {limit} in {format_duration(left_s)}" if left_s else f"it is at {limit}"
    return f"{grows}: {n['used']} now{others}; {end}"


def _keep_less(f: Finding, where: str) -> str:
    # Size alone does not distinguish steady growth that ends from growth that does not end.
    fills = "a cache may stop growing before that; otherwise " if round(f.figures.get("left_s", 0.0)) else ""
    return (
        f"heron heap {where} {f.task} shows its objects; {fills}keep fewer objects, or raise the limit of its tasks"
        " (heron.instance.memory_soft_limit_bytes)"
    )


def _in_line(f: Finding) -> str:
    """Return the code line in which the task spends most time, from one sample per second."""
    return f"; {_percent(f.figures['at_line'])} of the time in {f.quote}" if "at_line" in f.figures else ""


def _of_key(f: Finding) -> str:
    if "of_key" not in f.figures:
        return ""
    # The key is a user's value; readers without the permission see only its share.
    return f"; {_percent(f.figures['of_key'])} of its tuples have {f.quote or 'one key'}"


def _lasting(f: Finding) -> str:
    return f", for {format_duration(f.figures['for_s'])}" if "for_s" in f.figures else ""


def _crashing(f: Finding, topology: str) -> str:
    n = f.figures
    # The count is only useful together with the quoted message.
    share = f" ({n['alike']:.0f} of {n['raised']:.0f} times)" if "raised" in n and f.quote else ""
    at = f", in {f.names[0]}" if f.names else ""
    # A process that is down has not been restarted after its last end.
    what = f"ended {_times(f)} and is down" if "down" in n else f"was restarted {_times(f)}"
    return f"{f.task} {what}{_quoted(f)}{share}{at}"


def _hung(f: Finding, topology: str) -> str:
    at = f": {f.quote}" if f.quote else ""
    return f"{f.task} has been in one call for {format_duration(round(f.figures['silent_s']))}{at}"


def _bad_update(f: Finding, topology: str) -> str:
    n = f.figures
    what = f" ({f.quote})" if f.quote else ""
    plan = f" to physical plan {n['plan']:.0f}" if "plan" in n else ""
    return (
        f"{f.component} processes {_percent(n['less'])} less per busy second since the update{plan}"
        f" {format_duration(round(n['ago_s']))} ago{what}: {_rate(n['after'])} per task instead of {_rate(n['before'])}"
    )


def _slow_host(f: Finding, topology: str) -> str:
    n = f.figures
    return (
        f"the {n['tasks']:.0f} tasks of {f.component} on {f.names[0]} are slow: while busy, each handles"
        f" {_rate(n['rate'])}, and the tasks on other machines {_rate(n['usual'])}"
    )


def _machine(f: Finding, topology: str) -> str:
    n = f.figures
    spark = f", {n['spark']:.1f} of them for Spark" if _takes_spark(f) else ""
    busy = f"; {f.task} is {_percent(n['busy'])} busy" if f.task else ""
    return (
        f"{f.names[0]} has no free CPU: {topology} uses {n['own']:.1f} of {n['cores']:.0f} cores{spark},"
        f" other processes {n['others']:.1f}{busy}"
    )


def _go_back(f: Finding, where: str) -> str:
    if "plan_before" not in f.figures:
        back = "undo the update"
    elif f.names:
        tasks = " ".join(f"--component-parallelism {name}" for name in f.names)
        back = f"go back to physical plan {f.figures['plan_before']:.0f}: heron update {where} {tasks}"
    else:
        back = (
            f"go back to physical plan {f.figures['plan_before']:.0f}, which had the same tasks: heron update {where}"
            " with its settings (--runtime-config) or containers (--container-number)"
        )
    return f"if the slowdown was not intended, {back}; heron events {where}"


def _takes_spark(f: Finding) -> bool:
    """Whether Spark uses most of the topology's CPU."""
    return 2 * f.figures.get("spark", 0.0) >= f.figures["own"] > 0


def _free_cpu(f: Finding, where: str) -> str:
    n = f.figures
    stop = f"stop other programs on {f.names[0]}, or " if n["others"] >= n["own"] else ""
    if _takes_spark(f):
        return (
            f"{stop}give Spark fewer of these cores (heron.spark.master, such as local[1]), or larger and fewer batches"
            " (heron.spark.batch_rows, heron.spark.batch_interval_s), or run Spark elsewhere (spark://HOST:PORT)"
        )
    profile = f" (heron profile {where} {f.task})" if f.task else ""
    # Tasks that wait for something else are not limited by the CPU alone.
    more = ": more tasks will not help" if "computes" in n else ""
    return f"{stop}give the topology more cores, or reduce its work{profile}{more}"


def _spark(f: Finding, topology: str) -> str:
    n = f.figures
    if "raised" in n:
        return (
            f"the function of a Spark sink raises exceptions: {n['raised']:,.0f} times in the last"
            f" {format_duration(round(n['window_s']))}; of the sink's batches, {n['failed']:,.0f} failed permanently"
            f" and {n['committed']:,.0f} were committed"
        )
    if "batch_s" not in n:
        takes = f"no batch was completed in the last {format_duration(round(n['window_s']))}"
    elif "comes_s" in n:
        takes = f"batches come every {format_duration(n['comes_s'])} and take {format_duration(n['batch_s'])} each"
    else:
        takes = f"a batch takes {format_duration(n['batch_s'])}"
    waits = "1 batch waits" if n["waiting"] == 1 else f"{n['waiting']:.0f} batches wait"
    return f"Spark is behind: {waits}, the oldest for {format_duration(round(n['lag_s']))}; {takes}"


def _over_provisioned(f: Finding, topology: str) -> str:
    n = f.figures
    return (
        f"{n['needed']:.0f} of the {n['tasks']:.0f} tasks of {f.component} suffice:"
        f" in the last hour they were at most {_percent(n['busy'])} busy"
    )


def _slow_task(f: Finding, topology: str) -> str:
    n, rate = f.figures, _rate(f.figures["rate"])
    if "usual" in n:
        others = f"and the other tasks of {f.component} handle {_rate(n['usual'])} each"
    else:
        others = f"and the other tasks of {f.component} wait for tuples: they are at most {_percent(n['others'])} busy"
    says = f"{f.task} is slow: while busy, it handles {rate}, {others}"
    return says + _taken_over(f) + _in_line(f) + _lasting(f)


def _taken_over(f: Finding) -> str:
    """Return the effect of a slow task if other tasks take over its tuples."""
    n = f.figures
    if "take_over" not in n:
        return ""
    waits = ", but are full as well" if "all_full" in n else ", so no spout waits for it" if "no_wait" in n else ""
    says = f"; they take over its share{waits}"
    if "usual" not in n:
        return says
    others = n["take_over"] * n["usual"]
    return f"{says}: {f.component} can handle {_rate(others + n['rate'])} instead of {_rate(others + n['usual'])}"


def _too_few(f: Finding, topology: str) -> str:
    n = f.figures
    tasks, rate, busy = int(n["tasks"]), _rate(n.get("rate", 0.0)), _percent(n["busy"])
    handled = f"its only task handles {rate}" if tasks == 1 else f"its {tasks} tasks together handle {rate}"
    full = f"{busy} busy" if tasks == 1 or n["busy"] >= 0.995 else f"each at least {busy} busy"
    if "behind_s" in n:
        behind, within = format_duration(round(n["behind_s"])), format_duration(n["drain_s"])
        return (
            f"{f.component} needs more tasks: at the current rate, the backlog at its source takes {behind}, more"
            f" than {within}; its {counted(tasks, 'task')} {'is' if tasks == 1 else 'are'} {full}"
        )
    told = (
        f"; the required number of tasks will be known in {format_duration(round(n['known_in_s']))}"
        if "known_in_s" in n
        else ""
    )
    return f"{f.component} needs more tasks: about {_rate(n['arrival'])} arrive; {handled}, {full}{told}"


def _limit(f: Finding, topology: str) -> str:
    n = f.figures
    if f.names and "window_s" in n:
        since = format_duration(round(n["window_s"]))
        return (
            f"tuples are not acked: {listed(f.names)} processed tuples and acked none in the last {since};"
            f" the spouts wait for acks at topology.max.spout.pending ({n['limit']:.0f})"
        )
    share = f" {_percent(n['waits'])} of the time" if "waits" in n else ""
    return (
        f"topology.max.spout.pending ({n['limit']:.0f}) limits the rate: the spouts wait for acks{share}, and no bolt"
        f" is busier than {_percent(n['busy'])}"
    )


def _add_tasks(f: Finding, where: str) -> str:
    if "needed" not in f.figures:
        return f"wait until then: it may only be processing tuples that queued up before its start; heron top {where}"
    return f"heron update {where} --component-parallelism {f.component}:{f.figures['needed']:.0f}"


def _checkpoints(f: Finding, topology: str) -> str:
    age = f.figures["age_s"]
    since = f"no checkpoint for {format_duration(round(age))}" if age >= 0 else "no checkpoint yet"
    waits = f"; a checkpoint is waiting for {listed(f.names)}" if f.names else ""
    last = f"; the last checkpoint did not complete: {f.quote}" if f.quote else ""
    return f"{since} (one is due every {format_duration(f.figures['every_s'])}){waits}{last}"


def _losses(f: Finding, topology: str) -> str:
    n, window = f.figures, format_duration(round(f.figures["window_s"]))
    if "dropped" in n:
        tasks = counted(int(n["tasks"]), "task")
        if "now" in n:
            rate = _rate(n["dropped"])
            return f"{f.component} has too few tasks for its input: {rate} find no space in the queues of its {tasks}"
        lacks = f"{counted(round(n['dropped'] * n['window_s']), 'tuple')} found no space in the queues of its {tasks}"
        return f"{f.component} had too few tasks for its input: {lacks} in the last {window}, so they were discarded"
    if "lost" in n:
        again = "; tuples with an id are replayed" if n.get("sent_again") else ""
        # The tuples held by a killed process are estimated, but the tuples in a stream manager have no bound.
        lost = "an unknown number of tuples" if n.get("unknown") else f"about {counted(int(n['lost']), 'tuple')}"
        return f"{lost} lost in transit in the last {window}{again}"
    return f"{counted(int(n['dead_letters']), 'tuple')} of {f.component} became dead letters in the last {window}"


def _stopped(f: Finding, topology: str) -> str:
    n = f.figures
    before = f" ({_rate(n['before'])} before)" if "before" in n else ""
    says = f"{f.component} has stopped: it has emitted nothing for {format_duration(round(n['still_s']))}{before}"
    if "hung" in n:
        return f"{says}; its user code does not return from a call"
    if "held" in n:
        return f"{says}; held back by {listed(f.names) if f.names else 'spout backpressure'}"
    if "pending" in n:
        waits = f"; {n['spark']:.0f} of Spark's batches wait" if "spark" in n else ""
        none = f"; {listed(f.names)} acked no tuple" if f.names else ""
        return f"{says}; {counted(int(n['pending']), 'tuple')} wait for acks, which is the limit{waits}{none}"
    if "checkpoint" in n:
        return f"{says}; a checkpoint waits for {listed(f.names)}"
    return f"{says}; nothing holds the spout back, so its source delivers no data"


_AWAITED = "if the task waits for a service, an AsyncBolt can wait for many calls at once"


def _ack(f: Finding) -> str:
    return (
        f"make {listed(f.names)} ack each processed tuple; for a bolt that acks in batches, topology.max.spout.pending"
        " must exceed the batch size"
    )


def _start_again(f: Finding, where: str) -> str:
    if "hung" in f.figures:
        return f"heron stacks {where} {f.task}" if f.task else f"heron top {where}"
    if "held" in f.figures or "checkpoint" in f.figures:
        task = next((name for name in f.names if " " not in name), "")  # the name may be a link
        return f"heron top {where}" + (f"; heron stacks {where} {task}; {_AWAITED}" if task else "")
    if "pending" in f.figures and f.names:
        return _ack(f)
    if "pending" in f.figures:
        return f"find the bolt that does not ack: heron top {where}; heron exceptions {where}"
    return f"check the source of {f.component}; heron logs {where}" + (f" {f.task}" if f.task else "")


def _processes(f: Finding, topology: str) -> str:
    n = f.figures
    if "threads" in n:
        return f"{f.task} has {n['threads']:,.0f} threads"
    below = "1 descendant process" if n["processes"] == 1 else f"{n['processes']:,.0f} descendant processes"
    return f"{f.task} has {below} with about {format_bytes(int(n['bytes']))} of memory"


def _fewer_processes(f: Finding, where: str) -> str:
    what = "threads" if "threads" in f.figures else "processes"
    return f"make {f.component} stop the {what} that it starts, or use a pool; heron stacks {where} {f.task}"


def _descriptors(f: Finding, topology: str) -> str:
    n = f.figures
    return f"{f.task} is close to its limit of file descriptors: {n['descriptors']:,.0f} of {n['limit']:,.0f} are open"


def _logging(f: Finding, topology: str) -> str:
    return f"{f.task} writes {format_bytes(int(60 * f.figures['log_per_s']))} of log per minute"


def _disk(f: Finding, topology: str) -> str:
    free, size = format_bytes(int(f.figures["free"])), format_bytes(int(f.figures["size"]))
    return f"the disk with the folder of {topology} on {f.names[0]} is nearly full: {free} of {size} are left"


def _untriaged(f: Finding, topology: str) -> str:
    n, late = f.figures, ""
    if "p99_s" in n:
        late = f"p99 {format_duration(n['p99_s'])} (usually {format_duration(n['usual_s'])})"
    if f.component:
        held = f", spouts are held back {_percent(n['held'])} of the time" if n["held"] else ""
        end = f"the full ack at {f.component}" if "acked" in n else f.component
        return f"{topology} is slower than usual: from emit to {end}, {late}{held}; cause unknown"
    by = f" by {listed(f.names)}" if f.names else ""
    return f"spouts are held back {_percent(n['held'])} of the time{by}{f', {late}' if late else ''}; cause unknown"


_SENTENCES: dict[Verdict, Callable[[Finding, str], str]] = {
    Verdict.HEALTHY: _healthy,
    Verdict.FAILED: lambda f, topology: f"{topology} has failed{_quoted(f)}",
    Verdict.CHANGING: _changing,
    Verdict.DOWN: _down,
    Verdict.HUNG: _hung,
    Verdict.MEMORY: _memory,
    Verdict.CRASHING: _crashing,
    Verdict.DEPENDENCY: _dependency,
    Verdict.SKEW: _skew,
    Verdict.SLOW_TASK: _slow_task,
    Verdict.UNDER_PROVISIONED: _too_few,
    Verdict.LIMIT: _limit,
    Verdict.CHECKPOINTS: _checkpoints,
    Verdict.SPARK: _spark,
    Verdict.LOSSES: _losses,
    Verdict.NO_INPUT: lambda f, _: (
        f"no input: {listed(sorted(set(f.names)))} emitted nothing in the last"
        f" {format_duration(round(f.figures['window_s']))}"
    ),
    Verdict.UNTRIAGED: _untriaged,
    Verdict.STOPPED: _stopped,
    Verdict.PROCESSES: _processes,
    Verdict.DESCRIPTORS: _descriptors,
    Verdict.LOGGING: _logging,
    Verdict.DISK: _disk,
    Verdict.BAD_UPDATE: _bad_update,
    Verdict.SLOW_HOST: _slow_host,
    Verdict.MACHINE: _machine,
    Verdict.CATCHING_UP: _catching_up,
    Verdict.OVER_PROVISIONED: _over_provisioned,
}

_ADVICE: dict[Verdict, Callable[[Finding, str], str]] = {
    Verdict.FAILED: lambda f, where: (
        f"heron exceptions {where}; then heron restart {where}, or submit a corrected program"
    ),
    Verdict.DOWN: lambda f, where: (
        f"heron scheduler start {where}"
        if f == SCHEDULER_DOWN
        else f"heron status {where}"
        if "down" not in f.figures
        else f"heron status {where}; heron exceptions {where}; heron logs {where} {f.names[0]}"
    ),
    Verdict.HUNG: lambda f, where: f"heron stacks {where} {f.task} shows its current line; {_AWAITED}",
    Verdict.MEMORY: _keep_less,
    Verdict.CRASHING: lambda f, where: f"heron exceptions {where}; heron logs {where} {f.task}",
    Verdict.DEPENDENCY: lambda f, where: (
        f"check the calls of {f.component} (heron profile {where} {f.task});"
        " an AsyncBolt can wait for many calls at once"
        + (
            f"; heron update {where} --component-parallelism {f.component}:{f.figures['needed']:.0f} shows whether more"
            " tasks help"
            if "needed" in f.figures
            else ""
        )
    ),
    Verdict.SKEW: lambda f, where: (
        "more tasks will not help: aggregate before the fields grouping, or group by one more field"
    ),
    Verdict.SLOW_TASK: lambda f, where: f"heron profile {where} {f.task}; heron restart {where} {f.task}",
    Verdict.UNDER_PROVISIONED: _add_tasks,
    Verdict.LIMIT: lambda f, where: (
        _ack(f) if f.names else "raise topology.max.spout.pending, or make the sinks ack sooner"
    ),
    Verdict.CHECKPOINTS: lambda f, where: f"heron checkpoints list {where}",
    Verdict.SPARK: lambda f, where: (
        f"heron exceptions {where} shows the exception; heron batches {where} lists the batches whose rows are kept"
        if "raised" in f.figures
        else "Spark's machine has no free CPU: use larger and fewer batches (heron.spark.batch_rows), or run Spark on"
        " another machine (heron.spark.master)"
        if "starved" in f.figures
        else "give Spark more cores (heron.spark.master), or run batches in parallel (heron.spark.parallel_batches)"
    ),
    Verdict.LOSSES: lambda f, where: (
        f"heron update {where} --component-parallelism {f.component}:{f.figures['needed']:.0f}"
        if "needed" in f.figures
        else f"heron update {where} --component-parallelism {f.component}:{f.figures['tasks'] + 1:.0f}, or more"
        if "dropped" in f.figures
        else f"heron dead-letters {where}"
        if "lost" not in f.figures
        else f"heron events {where} shows the processes that ended; heron status {where}"
    ),
    Verdict.UNTRIAGED: lambda f, where: (
        f"heron top {where}; heron profile {where} TASK; heron doctor {where} --evidence FILE packs all evidence"
    ),
    Verdict.STOPPED: _start_again,
    Verdict.PROCESSES: _fewer_processes,
    Verdict.DESCRIPTORS: lambda f, where: (
        f"close the files and sockets that {f.component} opens, or submit with a higher limit (ulimit -n)"
    ),
    Verdict.LOGGING: lambda f, where: (
        f"log less in {f.component}, or at level DEBUG: only its newest files are kept (heron.logging.files_max of"
        " heron.logging.file_max_bytes)"
    ),
    Verdict.DISK: lambda f, where: (
        "free disk space on that machine: logs, checkpoints and batches stop when the disk is full; the folder is in"
        " HERON_HOME"
    ),
    Verdict.BAD_UPDATE: _go_back,
    Verdict.SLOW_HOST: lambda f, where: (
        f"check other programs on {f.names[0]}, and its system log for failing hardware"
    ),
    Verdict.MACHINE: _free_cpu,
    Verdict.OVER_PROVISIONED: lambda f, where: (
        f"heron update {where} --component-parallelism {f.component}:{f.figures['needed']:.0f}"
    ),
}


def _times(finding: Finding) -> str:
    times = int(finding.figures["times"])
    return "once" if times == 1 else f"{times} times"
