from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heronpy.connectors.spark.handover import parse_stem, stem_of
from heronpy.spark.lanes import Lanes, Ticket


def ticket(task: int, number: int, component: str = "c") -> Ticket:
    return Ticket(component, stem_of(task, number, 1))


def test_batches_of_a_task_come_in_order_and_tasks_in_turn():
    lanes = Lanes()
    for number in (2, 1, 3):
        lanes.add(ticket(1, number))
    lanes.add(ticket(2, 7))
    order = []
    while (taken := lanes.take(0.0)) is not None:
        order.append(parse_stem(taken.stem)[:2])
        lanes.finish(taken)
    assert order == [(1, 1), (2, 7), (1, 2), (1, 3)]
    assert len(lanes) == 0 and lanes.next_deadline(0.0) is None


def test_a_retry_holds_its_own_lane_only():
    lanes = Lanes()
    for item in (ticket(1, 1), ticket(1, 2), ticket(2, 1)):
        assert lanes.add(item)
    first = lanes.take(0.0)
    lanes.retry(first, 5.0)
    other = lanes.take(0.0)
    assert other == ticket(2, 1)
    lanes.finish(other)
    assert lanes.take(4.9) is None and lanes.next_deadline(4.9) == 5.0
    assert lanes.take(5.0) == first


def test_a_known_batch_and_a_strange_name_are_not_added():
    lanes = Lanes()
    assert lanes.add(ticket(1, 1))
    assert not lanes.add(ticket(1, 1))
    assert not lanes.add(Ticket("c", "../../etc/passwd"))


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 20)), max_size=40), st.data())
def test_every_batch_is_given_once_and_in_order_of_its_task_among_those_known(items, data):
    lanes = Lanes()
    waiting = [ticket(*item) for item in items]
    done: list[Ticket] = []
    retried: set[Ticket] = set()
    now = 0.0
    while waiting or len(lanes):
        if waiting and data.draw(st.booleans()):
            lanes.add(waiting.pop())
            continue
        taken = lanes.take(now)
        if taken is None:
            if len(lanes):
                now = max(now, lanes.next_deadline(now))
            elif waiting:
                lanes.add(waiting.pop())
            continue
        lower = [
            t
            for t in lanes
            if t.component == taken.component
            and parse_stem(t.stem)[0] == parse_stem(taken.stem)[0]
            and parse_stem(t.stem) < parse_stem(taken.stem)
        ]
        assert not lower
        if taken not in retried:
            retried.add(taken)
            lanes.retry(taken, now + 1)
        else:
            # A batch that comes again after it was finished would be a new one.
            retried.discard(taken)
            done.append(taken)
            lanes.finish(taken)
    assert set(done) == {ticket(*item) for item in items}


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9), st.booleans()), max_size=25),
    st.integers(1, 3),
    st.data(),
)
def test_side_by_side_tasks_keep_their_order_and_suspects_run_alone(
    items: list[tuple[int, int, bool]], parallel: int, data: st.DataObject
) -> None:
    lanes, suspects, retried, done, running = Lanes(), set(), set(), [], []
    for task, number, alone in items:
        if lanes.add(ticket(task, number), alone) and alone:
            suspects.add(ticket(task, number))
    now, steps = 0.0, 0
    while len(lanes):
        steps += 1
        assert steps < 200, "it never ends"
        while len(lanes.taken) < parallel and (taken := lanes.take(now)) is not None:
            assert all(parse_stem(taken.stem)[0] != parse_stem(other.stem)[0] for other in running), "one per task"
            running.append(taken)
            assert set(running) == lanes.taken and len(running) <= parallel
            assert len(running) == 1 or not suspects.intersection(running)
        if not running:
            deadline = lanes.next_deadline(now)
            assert deadline is not None and deadline > now
            now = deadline
            continue
        ended = running.pop(data.draw(st.integers(0, len(running) - 1)))
        if ended not in retried and data.draw(st.booleans()):
            retried.add(ended)
            lanes.retry(ended, now + 1)
        else:
            lanes.finish(ended)
            done.append(ended)
    for task in range(1, 5):
        mine = [parse_stem(t.stem)[1] for t in done if parse_stem(t.stem)[0] == task]
        assert mine == sorted(mine)
    assert set(done) == {ticket(task, number) for task, number, _ in items}


def test_nothing_is_due_while_a_suspect_waits_for_the_others_or_they_for_it():
    lanes = Lanes()
    lanes.add(ticket(1, 1))
    plain = lanes.take(0.0)
    lanes.add(ticket(2, 1), alone=True)
    lanes.add(ticket(3, 1))
    assert lanes.take(0.0) is None and lanes.next_deadline(0.0) is None
    lanes.finish(plain)
    suspect = lanes.take(0.0)
    assert suspect == ticket(2, 1) and lanes.take(0.0) is None and lanes.next_deadline(0.0) is None
    lanes.retry(suspect, 9.0)
    assert lanes.take(0.0) == ticket(3, 1), "its pause holds nobody"
