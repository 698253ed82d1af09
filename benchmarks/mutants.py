"""Break things on purpose and see who notices: printed cells against the verdicts, rules against the tests.

``--cells-only`` and ``--rules-only`` do one half, ``--limit N`` looks at N mutants of each half.  Exit code 1 where a
mutant that changes the truth went unnoticed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from queue import Queue

from benchmarks.patches import PATCHES
from derive.cell import Cell
from derive.check import check
from derive.claims import Book, Claim, load
from derive.records import ClaimError
from derive.report import record_of
from tests.judge import Judge, cases_of
from tests.mutants import KINDS, Mutant, mutants_of, reprinted

ROOT = Path(__file__).resolve().parents[1]
JOBS = 2
PRINTED = "as printed"
PER_KIND = {
    "coefficient": 1,
    "exponent": 1,
    "symbol": 2,
    "dropped term": 1,
    "added term": 2,
    "log argument": 2,
    "degree": 1,
}


# -- printed cells ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Outcome:
    """What became of one perturbed cell."""

    cell: str
    kind: str
    what: str
    changed: bool
    caught: bool
    recognised: bool
    differences: str
    objections: tuple[str, ...]
    seconds: float

    @property
    def missed(self) -> bool:
        return self.changed and not self.caught


@lru_cache(maxsize=4)
def original(cell: str) -> tuple[Cell, Judge]:
    return check(cell), Judge(load().claim(cell), load())


def sample(cell: str) -> list[Mutant]:
    claim, left = load().claim(cell), dict(PER_KIND)
    out = []
    for mutant in mutants_of(claim, load(), max(PER_KIND.values())):
        if left[mutant.kind]:
            left[mutant.kind] -= 1
            out.append(mutant)
    return out


def outcomes(cell: str, chosen: Sequence[Mutant]) -> list[Outcome]:
    """The cell as printed, on which judge and verdict must agree too, and its perturbations."""
    found, judge = original(cell)
    objections = tuple(judge.objections(found, load().claim(cell), load()))
    printed = Outcome(
        cell,
        PRINTED,
        "as printed",
        changed=False,
        caught=False,
        recognised=True,
        differences="",
        objections=objections,
        seconds=0.0,
    )
    return [printed, *(outcome(cell, mutant) for mutant in chosen)]


def outcome(cell: str, mutant: Mutant) -> Outcome:
    before, judge = original(cell)
    claim, book = reprinted(load().claim(cell), mutant, load())
    start = time.perf_counter()
    try:
        after = check(cell, book=book)
    except ClaimError as error:  # outside the class of claims, and refused as that
        return _refused(before, judge, mutant, claim, book, str(error))
    seconds = time.perf_counter() - start
    was, now = record_of(before), record_of(after)
    keys = [k for k in sorted({*was, *now}) if was.get(k) != now.get(k)]
    same = all(was.get(k) == now.get(k) for k in ("verdict", "regime", "regime_verdict"))
    return Outcome(
        cell=cell,
        kind=mutant.kind,
        what=mutant.what,
        changed=judge.changes_truth(claim, book, [*cases_of(before), *cases_of(after)]),
        caught=bool(keys),
        recognised=same,
        differences="; ".join(f"{k}: {was.get(k, 'none')} -> {now.get(k, 'none')}" for k in keys),
        objections=tuple(judge.objections(after, claim, book)),
        seconds=seconds,
    )


def _refused(before: Cell, judge: Judge, mutant: Mutant, claim: Claim, book: Book, why: str) -> Outcome:
    return Outcome(
        cell=before.id,
        kind=mutant.kind,
        what=mutant.what,
        changed=judge.changes_truth(claim, book, cases_of(before)),
        caught=True,
        recognised=False,
        differences=f"refused: {why}",
        objections=(),
        seconds=0.0,
    )


def perturbed_cells(limit: int | None) -> list[Outcome]:
    groups = [(cell, sample(cell)) for cell in load().claims]
    if limit is not None:
        groups = list(first(groups, limit))
    slow_first = sorted(range(len(groups)), key=lambda i: ("Expert" not in groups[i][0], "III" not in groups[i][0], i))
    found: dict[int, list[Outcome]] = {}
    with ProcessPoolExecutor(JOBS, multiprocessing.get_context("fork")) as pool:
        jobs = {i: pool.submit(outcomes, *groups[i]) for i in slow_first}
        for i, job in jobs.items():
            found[i] = job.result()
            progress(len(found), len(groups), "cells")
    return [o for i in range(len(groups)) for o in found[i]]


def first(groups: Iterable[tuple[str, list[Mutant]]], limit: int) -> Iterable[tuple[str, list[Mutant]]]:
    for cell, chosen in groups:
        if limit > 0:
            yield cell, chosen[:limit]
        limit -= len(chosen)


def progress(done: int, of: int, what: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{done}/{of} {what} ", end="" if done < of else "\n", file=sys.stderr, flush=True)


COLUMNS = ("total", "truth changed", "caught", "missed", "unchanged", "recognised")


def counts(found: Sequence[Outcome]) -> tuple[int, ...]:
    found = [o for o in found if o.kind != PRINTED]
    changed = [o for o in found if o.changed]
    still = [o for o in found if not o.changed]
    caught = sum(o.caught for o in changed)
    return len(found), len(changed), caught, len(changed) - caught, len(still), sum(o.recognised for o in still)


def show_cells(found: Sequence[Outcome]) -> None:
    print(f"{'perturbation':<14} {'table':<6}" + "".join(f"{c:>15}" for c in COLUMNS))
    tables = list(dict.fromkeys(o.cell.split("/")[0] for o in found))
    for kind in KINDS:
        for table in tables:
            some = [o for o in found if o.kind == kind and o.cell.split("/")[0] == table]
            if some:
                print(f"{kind:<14} {table:<6}" + "".join(f"{n:>15}" for n in counts(some)))
    print(f"{'all':<14} {'':<6}" + "".join(f"{n:>15}" for n in counts(found)))
    report("missed", [o for o in found if o.missed])
    report("not recognised as unchanged", [o for o in found if not o.changed and not o.recognised])
    report("the judge objects to the verdict", [o for o in found if o.objections])


def report(title: str, some: Sequence[Outcome]) -> None:
    print(f"{title}: {len(some)}")
    for o in some:
        print(f"  {o.cell}: {o.what} | {'; '.join(o.objections) or o.differences or 'the record is the same'}")


# -- rules ------------------------------------------------------------------------------------------------------------
#: file, what it says, what it says instead

#: which tests are asked first, by where the patch is; all the others follow
ASKED = {
    "derive/costs/traffic": "communication/test_traffic communication/test_exchanges",
    "derive/costs": "derive/test_costs derive/test_work_memory derive/test_measure",
    "derive/communication": "communication/test_exchanges",
    "derive/answers": "claims/test_published_forms",
    "derive/memory": "memory/test_published derive/test_work_memory derive/test_survivors",
    "derive/depth": "derive/test_measure derive/test_survivors derive/test_depth",
    "derive/loops": "derive/test_depth",
    "derive/maxplus": "derive/test_depth",
    "derive": "derive/test_work_memory derive/test_survivors derive/test_measure derive/test_dominance",
    "graphs/ops/collective": "derive/test_survivors graphs/test_partition",
    "graphs/ops": "graphs/test_backward graphs/test_execution",
    "graphs/transforms/backward": "graphs/test_backward derive/test_survivors",
    "graphs/transforms/reversed_loops": "graphs/test_backward derive/test_survivors",
    "graphs/transforms/tape": "graphs/test_backward derive/test_survivors",
    "graphs/transforms/optimizer": "graphs/test_optimizer",
    "graphs/transforms/accumulate": "graphs/test_accumulate",
    "graphs/transforms/partition": "graphs/test_schemes graphs/test_accumulate graphs/test_partition",
    "graphs": "graphs/test_partition derive/test_measure",
}
EVERY = """
    graphs/test_backward graphs/test_execution graphs/test_unroll derive/test_work_memory derive/test_measure test_check
    derive/test_survivors graphs/test_schemes derive/test_dominance graphs/test_partition graphs/test_ir
    derive/test_costs derive/test_depth derive/test_forms graphs/test_optimizer graphs/test_accumulate graphs/test_ring
    communication/test_traffic communication/test_exchanges communication/test_zero memory/test_saved
    memory/test_published claims/test_published_forms
"""
SECONDS = 300
SURVIVED, STALE = "survived", "the text is not there exactly once"


@dataclass(frozen=True)
class Fate:
    """What became of one patched rule: the test that failed first, or why there is none."""

    patch: int
    killer: str
    seconds: float


def fates(limit: int | None) -> list[Fate]:
    """Each patch in a copy of the working tree of its own worker; the tree itself is never touched."""
    wanted = range(len(PATCHES) if limit is None else min(limit, len(PATCHES)))
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(JOBS) as pool:
        copies: Queue[Path] = Queue()
        for i in range(JOBS):
            copies.put(copied(Path(folder) / str(i)))

        def job(patch: int) -> Fate:
            here = copies.get()
            try:
                return fate(patch, here)
            finally:
                copies.put(here)

        out = []
        for end in pool.map(job, wanted):
            out.append(end)
            show_fate(end)
        return out


def copied(to: Path) -> Path:
    for part in ("derive", "graphs", "tables", "tests", "benchmarks"):
        shutil.copytree(ROOT / part, to / part)
    for file in (*ROOT.glob("*.toml"), *ROOT.glob("*.md")):
        shutil.copy2(file, to)
    return to


def fate(patch: int, here: Path) -> Fate:
    name, old, new = PATCHES[patch]
    file, start = here / name, time.perf_counter()
    text = file.read_text(encoding="utf-8")
    if text.count(old) != 1:
        return Fate(patch, STALE, 0.0)
    try:
        file.write_text(text.replace(old, new), encoding="utf-8")
        return Fate(patch, killer(name, here), time.perf_counter() - start)
    finally:
        file.write_text(text, encoding="utf-8")


def killer(name: str, here: Path) -> str:
    near = next(tests for start, tests in ASKED.items() if name.startswith(start))
    files = [f"tests/{t}.py" for t in dict.fromkeys(f"{near} {EVERY}".split()) if (here / f"tests/{t}.py").exists()]
    options = ["-x", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", "-p", "no:xdist"]
    place = {"PYTHONPATH": str(here), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", *options, *files]
    try:
        done = subprocess.run(
            command, cwd=here, env=os.environ | place, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no end within {SECONDS} s"
    for line in done.stdout.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split(" ", 1)[1].split(" - ")[0]
    return SURVIVED if done.returncode == 0 else f"pytest: {done.stdout[-300:]}{done.stderr[-300:]}"


def show_fate(end: Fate) -> None:
    name, old, new = PATCHES[end.patch]
    what = f"{name}: {short(old)} -> {short(new) or 'nothing'}"
    print(f"{end.seconds:5.1f} s  {what}\n         {end.killer}", flush=True)


def show_rules(found: Sequence[Fate]) -> None:
    killers = Counter(f.killer.split("::")[0] for f in found)
    for name, count in sorted(killers.items()):
        print(f"{count:5}  {name}")
    lost = [f for f in found if f.killer in (SURVIVED, STALE)]
    for end in lost:
        show_fate(end)
    print(f"{len(found)} rules patched, {len(found) - len(lost)} killed, {len(lost)} not")


def short(text: str) -> str:
    return " ".join(text.split())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells-only", action="store_true")
    parser.add_argument("--rules-only", action="store_true")
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    bad = False
    if not options.rules_only:
        start = time.perf_counter()
        found = perturbed_cells(options.limit)
        show_cells(found)
        print(f"{time.perf_counter() - start:.0f} s for {counts(found)[0]} perturbed cells\n")
        bad = any(o.missed for o in found)
    if not options.cells_only:
        start = time.perf_counter()
        ends = fates(options.limit)
        show_rules(ends)
        print(f"{time.perf_counter() - start:.0f} s for {len(ends)} patched rules")
        bad |= any(f.killer in (SURVIVED, STALE) for f in ends)
    sys.exit(bad)


if __name__ == "__main__":
    main()
