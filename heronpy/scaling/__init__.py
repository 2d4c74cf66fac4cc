"""Decides how many tasks and simultaneous calls, and how much memory, a job's components need, and why. Pure.

Only `history` does I/O: it stores the minutes of a job. The process that scales a job makes these calls:

1. At its start: `times = Times.of(scale.day_s)`, `history = History(file, times)`, and load the stored `State`, or
   create a new one. `history.notice` is a sentence if a damaged file was set aside.
2. Every `times.look_s` seconds: make an `Observation` from the topology master's answers, with the findings of
   `heronpy.health`, the `Figures` of each component, and `past=history.past(components, now)`. Without an answer, make
   an `Observation` without components. `Figures.fixed` is the reason why a component cannot be
   scaled, and `Figures.pinned` names the value that layer oncall sets for it.
3. `outcome = decide(state, look, goal, times)`, where `goal` comes from `slo` and `scale` of the merged document.
4. Store `outcome.state` first (`msgspec.json`), then write `outcome.changes` into layer scaler in one compare-and-set.
   If the write is refused, store `withdrawn(outcome.state)`.
5. Write each of `outcome.decisions` with its `text` into the job's log.
6. `history.add(now, outcome.rates)`.
"""
