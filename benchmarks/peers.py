"""The same computations through this project and through DaCe's work-depth analysis, as ratios from one run.

One sequence of m tokens, sizes symbolic and of one name on both sides, every operation counted, attention dense (DaCe
has no causal mask).  Our seconds contain building the graph; DaCe's parsing stands apart, and the ratios leave it out.
Stacked layers share their weights on both sides.  DaCe knows neither GELU nor a norm: they are written out for it.

Seconds are CPU seconds of one thread: on a busy machine wall time would flatter the shorter side, which is ours.
"""

# No postponed annotations: DaCe reads those of its programs as objects.
import argparse
import inspect
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = {"ours": ROOT / ".venv/bin/python", "dace": ROOT / ".venv-peers/bin/python"}
NEEDS = {"ours": "derive.depth, graphs", "dace": "dace.sdfg.performance_evaluation.work_depth"}
HASH_SEED = "0"  # DaCe crashes under some seeds
COLD_RUNS = 3  # of ours; one of DaCe's takes long enough to be steady
SAMPLE = {"m": 2048, "d": 12288, "h": 96, "d_h": 128, "d_ff": 49152}
SHAPES = {"x": "m d", "g1": "d", "g2": "d", "w1": "d d_ff", "w2": "d_ff d", "scale": ""}
#: a head is the first axis of the weights: DaCe's product of 4-D arrays loses batch dimensions
SHAPES |= {"wq": "h d d_h", "wk": "h d_h d", "wv": "h d d_h", "wo": "h d_h d"}
CASES = ("GEMM", "attention, 1 head", "attention, h heads", "decoder block", "1 FFN", "2 FFNs", "3 FFNs")

PHASES = ("parse", "cold", "warm")

Found = dict[str, Any]
Measures = tuple[Any, Any] | None
Phases = dict[str, Callable[[], Measures]]


# -- our side, in .venv ------------------------------------------------------------------------------------------------
def our_graph(case: str) -> Any:
    """The graph of one case, macros expanded."""
    from dataclasses import replace

    import sympy

    from graphs.axes import Role
    from graphs.blocks import attention, feedforward
    from graphs.blocks.decoder import decoder_block
    from graphs.ir import Builder, Value
    from graphs.ops.contraction import Contraction
    from graphs.ops.pointwise import Pointwise
    from graphs.sizes import Sizes
    from graphs.symbols import size
    from graphs.transforms.expand import expand_macros

    sizes = replace(Sizes.canonical(), B=sympy.Integer(1), d_h=size("d_h"))
    if case == "decoder block":
        return expand_macros(decoder_block(sizes))
    if case == "attention, 1 head":
        sizes = replace(sizes, h=sympy.Integer(1))
    build = Builder("peer")
    x = build.input("x", sizes.tensor("b s c"))
    for name, axes in (attention if "head" in case else feedforward).PARAMETERS.items():
        build.input(name, sizes.tensor(axes, Role.PARAMETER))
    if case == "GEMM":
        (x,) = build.add(Contraction(("b", "s", "f")), x, Value("W_1"))
    elif "head" in case:
        x = attention.attention(build, x, sizes)
    else:
        for _ in range(int(case[0])):
            (x,) = build.add(Pointwise("add"), x, feedforward.feedforward(build, x, sizes))
    build.output("x", x)
    return expand_macros(build.graph())


def our_phases(case: str) -> Phases:
    from dataclasses import replace

    from derive.costs.model import FULL
    from derive.costs.rule import load_rules
    from derive.depth import DepthRule, as_max, depth
    from derive.forms import total
    from derive.interchange import to_sympy
    from derive.work import work_terms

    load_rules(), our_graph("GEMM")  # imports are not the measurement
    model = replace(FULL, dot_product="2k", causal="dense")

    def derive() -> Measures:
        graph = our_graph(case)
        work = total(t.amount for t in work_terms(graph, model))
        return to_sympy(work), to_sympy(as_max(depth(graph, DepthRule(model))))

    return {"cold": derive, "warm": derive}


# -- DaCe's side, in .venv-peers ---------------------------------------------------------------------------------------
def softmax(scores: Any) -> Any:
    e = np.exp(scores - np.max(scores, axis=-1)[..., np.newaxis])
    return e / np.sum(e, axis=-1)[..., np.newaxis]


def norm(x: Any, gain: Any) -> Any:
    centred = x - np.mean(x, axis=-1)[:, np.newaxis]
    rstd = 1 / np.sqrt(np.mean(centred * centred, axis=-1) + 1e-5)
    return centred * rstd[:, np.newaxis] * gain


def head(x: Any, wq: Any, wk: Any, wv: Any, wo: Any, scale: Any) -> Any:
    p = softmax((x @ wq) @ (wk @ np.transpose(x)) * scale)
    return (p @ (x @ wv)) @ wo


def heads(x: Any, wq: Any, wk: Any, wv: Any, wo: Any, scale: Any) -> Any:
    return np.sum(head(x, wq, wk, wv, wo, scale), axis=0)


def ffn(x: Any, w1: Any, w2: Any) -> Any:
    u = x @ w1
    return (0.5 * u * (1 + np.tanh(0.7978845608 * (u + 0.044715 * u * u * u)))) @ w2


def gemm(x: Any, w1: Any) -> Any:
    return x @ w1


def block(x: Any, g1: Any, wq: Any, wk: Any, wv: Any, wo: Any, scale: Any, g2: Any, w1: Any, w2: Any) -> Any:
    y = x + heads(norm(x, g1), wq, wk, wv, wo, scale)
    return y + ffn(norm(y, g2), w1, w2)


def ffn_1(x: Any, w1: Any, w2: Any) -> Any:
    return x + ffn(x, w1, w2)


def ffn_2(x: Any, w1: Any, w2: Any) -> Any:
    return ffn_1(ffn_1(x, w1, w2), w1, w2)


def ffn_3(x: Any, w1: Any, w2: Any) -> Any:
    return ffn_1(ffn_2(x, w1, w2), w1, w2)


def dace_program(case: str) -> Any:
    """The function of one case with its arguments declared as arrays of symbolic shape."""
    import dace

    function: Any = dict(zip(CASES, (gemm, head, heads, block, ffn_1, ffn_2, ffn_3), strict=True))[case]
    symbols = {name: dace.symbol(name) for name in SAMPLE}
    for name in inspect.signature(function).parameters:
        axes = [a for a in SHAPES[name].split() if a != "h" or function is not head]
        function.__annotations__[name] = dace.float64[tuple(symbols[a] for a in axes)] if axes else dace.float64
    del function.__annotations__["return"]
    return dace.program(function)


def dace_phases(case: str) -> Phases:
    from dace.sdfg.performance_evaluation.work_depth import analyze_sdfg, get_tasklet_work_depth

    program = dace_program(case)
    parsed: list[Any] = []

    def analyse() -> Measures:
        # No assumptions: m > 1, d > 1, ... removes a fifth of a block's depth expression and takes half as long again.
        return analyze_sdfg(parsed[0], {}, get_tasklet_work_depth, [])

    return {"parse": lambda: parsed.append(program.to_sdfg()), "cold": analyse, "warm": analyse}


# -- the comparison ----------------------------------------------------------------------------------------------------
def worker(side: str, case: str, limit: int) -> None:
    """One line of JSON per phase; the timer's default action kills the process, whatever the phase might catch."""
    for phase, job in (our_phases if side == "ours" else dace_phases)(case).items():
        signal.setitimer(signal.ITIMER_PROF, limit)
        start = time.thread_time()  # the process's clock is coarse while its timer runs
        measures = job()
        found: Found = {phase: time.thread_time() - start}
        signal.setitimer(signal.ITIMER_PROF, 0)
        if measures is not None:
            work, depth = measures
            at = {s: SAMPLE[s.name] for s in work.free_symbols}
            found |= {"work": float(work.subs(at)), "operations": int(depth.count_ops())}
        print(json.dumps(found), flush=True)


# -- the comparison ----------------------------------------------------------------------------------------------------
def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONHASHSEED": HASH_SEED, "PYTHONWARNINGS": "ignore"}


def complain_if_missing(side: str) -> None:
    python, module = PYTHONS[side], NEEDS[side]
    try:
        done = subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False, env=environment())
        complete = done.returncode == 0
    except OSError:
        complete = False
    if not complete:
        name = python.parents[1].name
        sys.exit(f"{name} cannot import {module}: delete {name} and run make bench-peers, which installs it.")


def run(side: str, case: str, limit: int) -> Found:
    """What one fresh process measured; ``failure`` says why it stopped early."""
    command = [str(PYTHONS[side]), __file__, "--worker", side, "--case", case, "--limit", str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    found: Found = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            found |= json.loads(line)
    if done.returncode not in (0, -signal.SIGPROF):
        found["failure"] = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
    return found


def cell(found: Found, key: str, limit: int) -> str:
    """Seconds; else what kept the phase from ending, or - where an earlier phase did."""
    if key in found:
        return f"{found[key]:.3f}"
    if key != PHASES[sum(phase in found for phase in PHASES)]:
        return "-"
    return "failed" if "failure" in found else f"> {limit}"


def ratio(theirs: Found, ours: Found, key: str, limit: int) -> str:
    text = cell(theirs, key, limit)
    if text.startswith(">"):
        return f"> {limit / ours[key]:.0f}"
    return f"{theirs[key] / ours[key]:.0f}" if key in theirs else "-"


def our_side(case: str, limit: int) -> Found:
    """The median over fresh processes."""
    runs = [run("ours", case, limit) for _ in range(COLD_RUNS)]
    for found in runs:
        if "warm" not in found:
            sys.exit(f"our side did not finish {case}: {found.get('failure', f'more than {limit} s')}")
    return {**runs[0], **{key: statistics.median(found[key] for found in runs) for key in ("cold", "warm")}}


def columns(case: str, ours: Found, theirs: Found, limit: int) -> list[str]:
    seconds = [cell(theirs, phase, limit) for phase in PHASES]
    ratios = [ratio(theirs, ours, key, limit) for key in ("cold", "warm")]
    work = f"{theirs['work'] / ours['work']:.4f}" if "work" in theirs else "-"
    operations = [str(found.get("operations", "-")) for found in (ours, theirs)]
    return [case, f"{ours['cold']:.3f}", f"{ours['warm']:.3f}", *seconds, *ratios, *operations, work]


def show(texts: Sequence[str]) -> None:
    print(f"{texts[0]:<19}" + "".join(f"{text:>9}" for text in texts[1:]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time this project's derivations against DaCe's work-depth analysis.")
    parser.add_argument("--limit", type=int, default=120, help="seconds for each phase of a case (default: 120)")
    parser.add_argument("--case", choices=CASES, help="one case only")
    parser.add_argument("--worker", choices=PYTHONS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.case, options.limit)
        return
    for side in PYTHONS:
        complain_if_missing(side)
    print(f"CPU seconds after imports, a fresh process per case, at most {options.limit} s, hash seed {HASH_SEED}.")
    print(
        "Ratios: DaCe's analysis without parsing / ours with building the graph. Operations: of the depth expression."
    )
    print(f"Work: DaCe's / ours at {', '.join(f'{k} = {v}' for k, v in SAMPLE.items())}.\n")
    show(("", "ours", "ours", "DaCe", "DaCe", "DaCe", "ratio", "ratio", "ours", "DaCe", "ratio"))
    show(("case", "cold s", "warm s", "parse s", "cold s", "warm s", "cold", "warm", "ops", "ops", "work"))
    for case in [options.case] if options.case else CASES:
        ours, theirs = our_side(case, options.limit), run("dace", case, options.limit)
        show(columns(case, ours, theirs, options.limit))
        if "failure" in theirs:
            print(f"  DaCe failed on {case}: {theirs['failure']}", flush=True)


if __name__ == "__main__":
    main()
