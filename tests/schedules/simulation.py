"""An event simulation of pipeline schedules with a ticking clock; it shares no code with the project.

Tasks are (letter, chunk, micro-batch); durations are whole ticks.
"""

from __future__ import annotations

Task = tuple[str, int, int]


class StuckError(Exception):
    pass


def needs(task, chunks):
    """What must have been done before, from what a pass reads."""
    letter, chunk, batch = task
    if letter == "F":
        return [("F", chunk - 1, batch)] if chunk else []
    if letter == "W":
        return [("I", chunk, batch)]
    return [("F", chunk, batch)] + ([(letter, chunk + 1, batch)] if chunk < chunks - 1 else [])


def simulate(orders, chunks, ticks, transfer=0):
    """(makespan, busy ticks per rank, most activations kept per rank); ``ticks(task)`` is a positive whole number."""
    ranks = range(len(orders))
    waiting = [list(order) for order in orders]
    running: list[tuple[Task, int] | None] = [None] * len(orders)  # until when
    finished: dict[Task, tuple[int, int]] = {}  # when, and on which rank
    busy, kept, most = [0] * len(orders), [0] * len(orders), [0] * len(orders)
    clock = 0
    last_news = 0
    while any(waiting) or any(running):
        for r in ranks:
            current = running[r]
            if current and current[1] == clock:
                task = current[0]
                finished[task] = (clock, r)
                running[r] = None
                last_news = clock
                kept[r] += {"F": 1, "B": -1, "W": -1, "I": 0}[task[0]]
                most[r] = max(most[r], kept[r])
        for r in ranks:
            if running[r] is None and waiting[r]:
                before = needs(waiting[r][0], chunks)
                if all(b in finished and clock >= finished[b][0] + transfer * (finished[b][1] != r) for b in before):
                    task = waiting[r].pop(0)
                    running[r] = (task, clock + ticks(task))
                    busy[r] += ticks(task)
        if not any(running) and clock > last_news + transfer and any(waiting):
            raise StuckError
        clock += 1
    return clock - 1, busy, most


def random_order(random, stages, batches, virtual, letters):
    """An order of every rank that can be run to its end: ready tasks in random succession."""
    chunks = stages * virtual
    left = [(x, c, i) for x in letters for c in range(chunks) for i in range(batches)]
    done = set()
    orders: list[list[Task]] = [[] for _ in range(stages)]
    while left:
        ready = [t for t in left if all(b in done for b in needs(t, chunks))]
        task = random.choice(ready)
        left.remove(task)
        done.add(task)
        orders[task[1] % stages].append(task)
    return orders
