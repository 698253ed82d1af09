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

from derive.check import Cell, check
from derive.claims import load
from derive.report import record_of
from tests.mutants import KINDS, Judge, Mutant, cases_of, mutants_of, reprinted

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
    after = check(cell, book=book)
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
PATCHES: tuple[tuple[str, str, str], ...] = (
    # how much work an operation is
    ("derive/costs/contraction.py", "Cost(2 * points, steps)", "Cost(3 * points, steps)"),
    ("derive/costs/contraction.py", "2 * points - volume(", "2 * points + volume("),
    ("derive/costs/contraction.py", "if n not in result.names]", "]"),
    ("derive/costs/contraction.py", "site.chain(length) + 1", "site.chain(length)"),
    ("derive/costs/contraction.py", "if site.model.gemm_only else site.chain", "if False else site.chain"),
    ("derive/costs/lookup.py", "longest_row(ids.axes, (), site.model)", "longest_row(ids.axes[:1], (), site.model)"),
    ("derive/costs/lookup.py", "site.model) - row, steps)", "site.model), steps)"),
    ("derive/costs/lookup.py", "return Cost(ZERO, steps)", "return FREE"),
    ("derive/costs/macro.py", "if not site.model.gemm_only:", "if False:"),
    ("derive/costs/movement.py", "return FREE", "return Cost(Cost().work + 1)"),
    ("derive/costs/collective.py", "return FREE", "return Cost(Cost().work + 1)"),
    ("derive/costs/pointwise.py", " + (op.factor != 1)", ""),
    ("derive/costs/pointwise.py", '(op.fn != "scale") + ', "1 + "),
    ("derive/costs/pointwise.py", "if site.model.gemm_only:", "if False:"),
    ("derive/costs/pointwise.py", "return per_point(site, 1)", "return per_point(site, 2)"),
    ("derive/costs/pointwise.py", "Form.constant(steps))", "Form.constant(1))"),
    ("derive/costs/reduction.py", "steps if site.accumulates_parameter_gradient else ZERO", "steps"),
    ("derive/costs/reduction.py", "steps if site.accumulates_parameter_gradient else ZERO", "ZERO"),
    ("derive/costs/reduction.py", "points - volume(result.axes, result.domain, site.model)", "points"),
    ("derive/costs/reduction.py", "if a.name not in result.names]", "]"),
    ("derive/costs/route.py", "every - 1", "every"),
    ("derive/costs/route.py", "kept * site.chain(every)", "site.chain(every)"),
    ("derive/costs/rule.py", "ceil_log2(length) if self.model.exact_depth else log2(length)", "log2(length)"),
    ("derive/costs/rule.py", "is Role.PARAMETER_GRADIENT", "is Role.GRADIENT"),
    # what is counted
    ("derive/costs/counting.py", '1 if model.causal == "exact" else 0', "0"),
    ("derive/costs/counting.py", "part * (side + extra) / 2", "part * (side + extra)"),
    ("derive/costs/counting.py", "2 * side - part + extra", "2 * side - 2 * part + extra"),
    ("derive/costs/counting.py", "2 * side - part + extra", "side + extra"),
    ("derive/costs/counting.py", "(key, query) if key.splits else (query, key)", "(query, key)"),
    ("derive/costs/counting.py", "if not model.balanced_routing:", "if model.balanced_routing:"),
    ("derive/costs/counting.py", "* axis.extent / axis.size", ""),
    ("derive/costs/counting.py", "isinstance(r, TopK) and r.axis in axes", "False"),
    ("derive/costs/counting.py", "isinstance(r, Causal) and r.axes <= axes.keys()", "False"),
    ("derive/costs/counting.py", "for a in extents.values()", "for a in list(extents.values())[:3]"),
    (
        "derive/costs/counting.py",
        "product(from_sympy(a.extent) for a in axes",
        "product(from_sympy(a.size) for a in axes",
    ),
    (
        "derive/costs/counting.py",
        "product(from_sympy(a.extent) for a in ext",
        "product(from_sympy(a.size) for a in ext",
    ),
    # work and memory
    ("derive/work.py", "trips * t.amount", "t.amount"),
    ("derive/work.py", "node.op.axis.extent", "node.op.axis.size"),
    ("derive/memory.py", "ADAM_COPIES = 4", "ADAM_COPIES = 3"),
    ("derive/memory.py", "if storage not in seen:", "if True:"),
    ("derive/memory.py", "while value.node in graph.by_name and", "while False and"),
    ("derive/memory.py", 'causal="dense"', 'causal="half"'),
    ("derive/memory.py", "volume(tensor.axes, tensor.domain,", "volume(tensor.axes, (),"),
    ("derive/memory.py", "if not looped else [None]", "if False else [None]"),
    ("derive/measure.py", "if not (term.stage and mesh == PIPELINE):", "if True:"),
    ("derive/measure.py", "if t.stage in (None, s))", "if True)"),
    # depth and collectives
    ("derive/depth.py", "if not self.collectives or op.action not in REDUCING", "if op.action not in REDUCING"),
    ("derive/depth.py", "if not any(self.counts_towards_depth(graph, origin)", "if not all(True"),
    ("derive/depth.py", "degree = symbol(op.mesh)", "degree = symbol(op.mesh) ** 2"),
    ("derive/depth.py", "ceil_log2(degree) if self.model.exact_depth else log2(degree)", "log2(degree)"),
    ("derive/depth.py", " or role is Role.PARAMETER_GRADIENT", ""),
    (
        "derive/depth.py",
        "not self.model.gemm_only or isinstance(origin.op, Contraction)",
        "isinstance(origin.op, Contraction)",
    ),
    ("derive/depth.py", "loop.axis.size if self.over_all_ranks else loop.axis.extent", "loop.axis.extent"),
    ("derive/depth.py", "loop.axis.size if self.over_all_ranks else loop.axis.extent", "loop.axis.size"),
    (
        "derive/depth.py",
        "for v in node.operands for a in at.get(v, ())]",
        "for v in node.operands[:1] for a in at.get(v, ())]",
    ),
    ("derive/depth.py", "reach.append(arrivals(op.body, rule, {}))", "reach.append({})"),
    ("derive/loops.py", "used = spent + course.length", "used = spent"),
    (
        "derive/loops.py",
        "self._through(self._late[k], course, START, 1)",
        "self._through(self._late[k], course, START, 0)",
    ),
    ("derive/loops.py", "course, self._to(i, o), 1)", "course, self._to(i, o), 0)"),
    ("derive/loops.py", "course, self._to(i, o), 2)", "course, self._to(i, o), 1)"),
    ("derive/loops.py", "for k in way for a in self._to(k, k)", "for k in way[-1:] for a in self._to(k, k)"),
    ("derive/loops.py", "for n in range(1, path.least):", "for n in range(1, 1):"),
    (
        "derive/maxplus.py",
        "Arrival(self.form + other.form,",
        "Arrival(max(self.form, other.form, key=lambda f: f.text),",
    ),
    (
        "derive/dominance.py",
        "if all(c > 0 for c in free.terms.values()):",
        "if any(c > 0 for c in free.terms.values()):",
    ),
    ("graphs/ops/collective.py", 'REDUCING = ("all_reduce", "reduce_scatter")', 'REDUCING = ("all_reduce",)'),
    ("graphs/transforms/partition/spmd.py", "if op.action in REDUCING else ()", "if False else ()"),
    (
        "graphs/transforms/partition/spmd.py",
        "n for p in partials for n in p.origins",
        "n for p in partials[:1] for n in p.origins",
    ),
    ("graphs/transforms/partition/spmd.py", "if axis not in result.names for s in splits]", "for s in splits]"),
    ("graphs/transforms/partition/spmd.py", "frozenset(set.intersection(*sums))", "frozenset()"),
    ("graphs/transforms/partition/forms.py", "self._cut() or self._reduce() or", "self._reduce() or self._cut() or"),
    ("graphs/transforms/partition/forms.py", '"all_reduce": 2}', '"all_reduce": 0}'),
    ("graphs/transforms/partition/forms.py", 'in ("all_gather", "all_to_all"):', 'in ("all_gather",):'),
    # the backward pass
    ("graphs/ops/contraction.py", "tape.operand(node, 1 - i)", "tape.operand(node, i)"),
    ("graphs/transforms/backward.py", "Contraction(names, like.domain)", "Contraction(names)"),
    ("graphs/transforms/backward.py", "return piece if names == like.names else", "return piece if True else"),
    (
        "graphs/transforms/backward.py",
        'value = self.apply(Reduction("sum", extra), value, role=role)',
        'value = self.apply(Reduction("max", extra), value, role=role)',
    ),
    (
        "graphs/transforms/backward.py",
        "Role.PARAMETER_GRADIENT if tensor.role is Role.PARAMETER else Role.GRADIENT",
        "Role.GRADIENT",
    ),
    ("graphs/transforms/backward.py", "both = piece if before is None else", "both = piece if True else"),
    ("graphs/transforms/backward.py", "tape.apply(Constant(1.0)", "tape.apply(Constant(2.0)"),
    ("graphs/transforms/backward.py", "not self.forward.reverse", "self.forward.reverse"),
    ("graphs/transforms/backward.py", "return prune(build.graph())", "return build.graph()"),
    ("graphs/transforms/backward.py", "graph = prune(build.graph())", "graph = build.graph()"),
    ("graphs/transforms/backward.py", "if self.recompute is Recompute.LAYER_BOUNDARY and", "if False and"),
    ("graphs/transforms/backward.py", 'phase="recompute"', 'phase="forward"'),
    (
        "graphs/transforms/backward.py",
        "not in (Role.PARAMETER, Role.INDEX):\n                    out",
        "not in (Role.INDEX,):\n                    out",
    ),
    ("graphs/ops/softmax.py", 'tape.pointwise("subtract", dy, inner)', "dy"),
    ("graphs/ops/softmax.py", 'tape.pointwise("multiply", dy, y))', "dy)"),
    ("graphs/ops/softmax.py", "y = tape.output(node, 0)\n        inner", "y = tape.operand(node, 0)\n        inner"),
    ("graphs/ops/norm.py", 'inner = tape.pointwise("subtract", g, bias)', "inner = g"),
    ("graphs/ops/norm.py", 'tape.pointwise("multiply", unit, slope))', "slope)"),
    ("graphs/ops/norm.py", 'tape.pointwise("multiply", dy, unit), tape', "dy, tape"),
    ("graphs/ops/norm.py", 'g = tape.pointwise("multiply", dy, gain)', "g = dy"),
    ("graphs/ops/cross_entropy.py", 'tape.pointwise("subtract", probabilities, hot)', "probabilities"),
    ("graphs/ops/cross_entropy.py", "probabilities, hot), dloss)", "probabilities, hot), hot)"),
    ("graphs/ops/pointwise.py", 'dy = tape.pointwise("scale", dy, factor=self.factor)', "pass"),
    ("graphs/ops/pointwise.py", "factor=sympy.Integer(-1)", "factor=sympy.Integer(1)"),
    ("graphs/ops/pointwise.py", "dy, tape.operand(node, 0), factor=sympy.Integer(2)", "dy, tape.operand(node, 0)"),
    ("graphs/ops/pointwise.py", "dy, tape.operand(node, 1 - i))", "dy, tape.operand(node, i))"),
    ("graphs/ops/pointwise.py", "(1 + 3 * 0.044715", "(1 + 2 * 0.044715"),
    ("graphs/ops/pointwise.py", "np.where(np.isfinite(x), dy, 0.0)", "dy"),
    ("graphs/ops/route.py", 'tape.pointwise("keep_finite", dy, tape.output(node, 0))', "dy"),
    ("graphs/ops/lookup.py", ", role=tape.gradient_role(table)", ""),
    ("graphs/ops/lookup.py", "np.add.at(out, slot[found], values[found])", "out[slot[found]] = values[found]"),
    ("graphs/ops/select.py", "tensor.names.index(self.axis)), dy)", "0), dy)"),
    ("graphs/ops/select.py", "place.value(axis.size) - 1)", "0)"),
    ("graphs/ops/constant.py", "tape.sum_to(dy, tape.operand_type(node, 0))", "dy"),
)


#: which tests are asked first, by where the patch is; all the others follow
ASKED = {
    "derive/costs": "derive/test_costs derive/test_work_memory derive/test_measure",
    "derive/depth": "derive/test_measure derive/test_survivors derive/test_depth",
    "derive/loops": "derive/test_depth",
    "derive/maxplus": "derive/test_depth",
    "derive": "derive/test_work_memory derive/test_survivors derive/test_measure derive/test_dominance",
    "graphs/ops/collective": "derive/test_survivors graphs/test_partition",
    "graphs/ops": "graphs/test_backward graphs/test_execution",
    "graphs/transforms/backward": "graphs/test_backward derive/test_survivors",
    "graphs": "graphs/test_partition derive/test_measure",
}
EVERY = """
    graphs/test_backward graphs/test_execution graphs/test_unroll derive/test_work_memory derive/test_measure test_check
    derive/test_survivors graphs/test_schemes derive/test_dominance graphs/test_partition graphs/test_ir
    derive/test_costs derive/test_depth derive/test_forms
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
