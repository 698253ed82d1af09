"""Times of the derivations, all from one run; ratios say more than seconds, which depend on the machine."""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import sympy

from derive.asymptotics.problem import Domain
from derive.asymptotics.prove import order
from derive.building_blocks import EXPANSIONS, Blocks
from derive.communication import communication
from derive.costs.model import PAPER
from derive.depth import DepthRule, as_max, depth
from derive.domains import factors_of
from derive.dominance import as_factors
from derive.forms import Form, Max, total
from derive.measure import Measured, Question, memory, training_depth, work
from derive.placements import StageQuestion, stage_depth, stage_memory, stage_work
from derive.work import work_terms
from graphs.axes import Axis
from graphs.blocks.decoder import DENSE, DISPATCHED, EXPERTS, decoder_block
from graphs.ir import Graph
from graphs.models.roles import POLICY, forward
from graphs.schemes import schemes
from graphs.sizes import Sizes
from graphs.stages import Options, StageGraph, stage_graph
from graphs.stages.stage import Invocation
from graphs.transforms.backward import training

REPEATS = 7
DERIVE = Path(sys.executable).with_name("derive")


def median(job: Callable[[], object], repeats: int = REPEATS) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        job()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure(graph: Graph, sizes: Sizes) -> str:
    """Work and depth of one graph, as text."""
    factors = as_factors(factors_of(sizes, schemes()["None"]))
    found = as_max(depth(graph, DepthRule(PAPER, factors)))
    return f"{total(t.amount for t in work_terms(graph, PAPER)).text} | {found.text}"


def derive_with(layers: sympy.Expr) -> str:
    """Build, differentiate and measure a model of so many layers."""
    sizes = replace(Sizes.canonical(), L=layers)
    return measure(training(forward(sizes, POLICY, loss=True)), sizes)


def first_time(code: str) -> float:
    """Seconds of one statement in a fresh process, after its imports."""
    program = (
        f"import time\nfrom benchmarks.bench import *\nt = time.perf_counter()\n{code}\nprint(time.perf_counter() - t)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return float(done.stdout)


def wide_question() -> tuple[Callable[[], object], int]:
    """Is the memory of two 5D parallel models bounded by its own monomials?  And over how many free factors that is."""
    asked = Question(scheme="5D", ffn=EXPERTS, blocks_only=True)
    found = memory(asked).value + memory(replace(asked, ffn=DENSE)).value
    bound = Max.of(Form({m: 1 for f in found.members for m in f.terms}))
    domain = Domain(dict(asked.factors), {"m": 2, "P_p": 2})
    factors = {s for n in found.symbols for s in (domain.factors[n].symbols if n in domain.factors else {n})}
    scale = itertools.count(1)  # answers are remembered, so every repetition asks a new question
    return lambda: order(found.scale(Form.constant(next(scale))), bound, domain), len(factors)


FIVE_D = Question(scheme="5D", ffn=DISPATCHED, over_all_ranks=True, collectives=True, blocks_only=True)


def five_d() -> list[object]:
    """Partition a decoder under 5D and derive all its measures, per rank and global; degrees stay symbols."""
    asked = [replace(FIVE_D, over_all_ranks=view, collectives=view) for view in (False, True)]
    return [f(q) for q in asked for f in (work, training_depth, memory)] + [communication(FIVE_D)]


def five_d_at(degree: int) -> list[object]:
    """The exchanges of 5D with numbers for the degrees."""
    return [communication(FIVE_D).at(dict.fromkeys(schemes()["5D"].meshes, degree))]


def iteration_of(prompts: int, rollouts: int) -> list[Measured]:
    """Derive work, depth and memory of a PPO iteration over so many samples, down to operation graphs."""
    sizes = {"prompt": sympy.Integer(prompts), "rollout": sympy.Integer(rollouts)}
    graph = stage_graph("PPO", Options())
    nodes = tuple(
        replace(n, samples=tuple(Axis(a.name, sizes[a.name]) for a in n.samples)) if isinstance(n, Invocation) else n
        for n in graph.nodes
    )
    q = StageQuestion(StageGraph("PPO", nodes), blocks=Blocks(frozenset(EXPANSIONS)))
    return [stage_work(q), stage_depth(q), stage_memory(q)]


def evaluated(name: str, *words: str) -> None:
    subprocess.run([DERIVE, "evaluate", "--config", name, "--json", *words], capture_output=True, check=True)


def stages() -> None:
    """Every cell of Tables IV and IX, in a process of its own."""
    for table in ("IV", "IX"):
        subprocess.run([DERIVE, "check", "--table", table], capture_output=True, check=False)


def main() -> None:
    sizes = Sizes.canonical()
    few, many = sympy.Integer(2), sympy.Integer(1_000_000)
    derive_with(few), derive_with(many)
    small, large = median(lambda: derive_with(few)), median(lambda: derive_with(many))
    block = first_time("measure(decoder_block(Sizes.canonical()), Sizes.canonical())")
    warm = median(lambda: measure(decoder_block(sizes), sizes))
    ask, factors = wide_question()
    wide = median(ask)
    check = median(lambda: subprocess.run([DERIVE, "check"], capture_output=True, check=False), 3)
    models = {name: median(partial(evaluated, name), 3) for name in ("llama-3-8b", "llama-3.1-405b")}
    small_batch, large_batch = (first_time(f"iteration_of({n}, {n})") for n in (2, 10**12))
    short, long = (median(partial(evaluated, "llama-3-8b", "--set", f"T={t}"), 3) for t in (2, 10**12))
    both = median(stages, 3)
    five, narrow, broad = first_time("five_d()"), median(lambda: five_d_at(2)), median(lambda: five_d_at(65536))
    rows = {
        "training step, L = 2": small,
        "training step, L = 1,000,000": large,
        "decoder block, work and depth, first time": block,
        "decoder block, work and depth, again": warm,
        "derive check, cold process, all cells": check,
        "5D: partition and all measures, first time": five,
        "5D: exchanges, degrees 2": narrow,
        "5D: exchanges, degrees 65,536": broad,
        "derive check, Tables IV and IX": both,
        "PPO iteration, B = K = 2, first time": small_batch,
        "PPO iteration, B = K = 10^12, first time": large_batch,
        "derive evaluate, T = 2": short,
        "derive evaluate, T = 10^12": long,
        **{f"derive evaluate, cold process, {name}": seconds for name, seconds in models.items()},
        f"one O-question over {factors} free factors": wide,
    }
    for name, seconds in rows.items():
        print(f"{name:<45} {seconds:8.4f} s")
    print(f"{'L = 1,000,000 against L = 2':<45} {large / small:8.2f} x   (1 is ideal)")
    print(f"{'PPO iteration, B and K 10^12 against 2':<45} {large_batch / small_batch:8.2f} x   (1 is ideal)")
    print(f"{'derive evaluate, T 10^12 against 2':<45} {long / short:8.2f} x   (1 is ideal)")
    print(f"{'Tables IV and IX against their 5 s budget':<45} {both / 5:8.2f} x   (at most 1)")
    print(f"{'derive check against its 10 s budget':<45} {check / 10:8.2f} x   (at most 1)")
    print(f"{'one O-question against its 0.2 s budget':<45} {wide / 0.2:8.2f} x   (at most 1)")
    print(f"{'5D against its 2 s budget':<45} {five / 2:8.2f} x   (at most 1)")
    print(f"{'derive evaluate, 405B, against its 2 s budget':<45} {models['llama-3.1-405b'] / 2:8.2f} x   (at most 1)")
    print(f"{'5D, degrees 65,536 against 2':<45} {broad / narrow:8.2f} x   (1 is ideal)")
    print(f"{'decoder block against its 0.5 s budget':<45} {block / 0.5:8.2f} x   (at most 1)")
    if "--json" in sys.argv:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
