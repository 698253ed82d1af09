"""Random sizes, forms and loops for the property tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from derive.forms import Form, Log, ceil_log2, log2, symbol, total
from graphs.axes import Axis, Role, Tensor
from graphs.execute import Machine
from graphs.ir import Builder, Graph, Value
from graphs.ops.constant import Broadcast, Constant
from graphs.ops.contraction import Contraction
from graphs.ops.pointwise import Pointwise
from graphs.ops.repeat import Repeat
from graphs.symbols import size

#: d = h d_h is how widths are configured, and what lets log(d/h) be known nonnegative
FACTORS = (("d", symbol("h") * symbol("d_h")),)


# -- sizes ------------------------------------------------------------------------------------------------------------
@st.composite
def model_sizes(draw: st.DrawFn, largest: int = 9, layers: int = 4) -> dict[str, int]:
    """Sizes of a decoder with d = h d_h, 1 <= E_a <= E, m >= 2, and at least one token for each expert."""
    one = st.integers(1, largest)
    sizes = {name: draw(one) for name in ("B", "d_ff", "V", "d_e", "h", "d_h", "E")}
    sizes |= {"m": draw(st.integers(2, largest)), "L": draw(st.integers(1, layers)), "d": sizes["h"] * sizes["d_h"]}
    sizes["E_a"] = draw(st.integers(1, sizes["E"]))
    while sizes["B"] * sizes["m"] * sizes["E_a"] < sizes["E"]:
        sizes["m"] += 1
    return sizes


def arrays_for(graph: Graph, sizes: Mapping[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs of a graph; index data lies within the vocabulary, gains are near one."""
    rng, machine = np.random.default_rng(seed), Machine(sizes)
    out: dict[str, np.ndarray] = {}
    for name, tensor in graph.inputs.items():
        shape = [machine.count(a) for a in tensor.axes]
        if tensor.role is Role.INDEX:
            out[name] = rng.integers(0, sizes["V"], shape)
        else:
            out[name] = rng.normal(size=shape) * 0.7 + ("gain" in name)
    return out


# -- forms ------------------------------------------------------------------------------------------------------------
NAMES = ("B", "L", "d", "h")
coefficients = st.fractions(min_value=-4, max_value=4, max_denominator=3)
monomials = st.dictionaries(st.sampled_from(NAMES), st.integers(-2, 3), max_size=3)
log_monomials = st.dictionaries(st.sampled_from([Log(symbol(n)) for n in NAMES]), st.integers(1, 2), max_size=1)


def _form(terms: Iterable[tuple[Fraction, Mapping[str, int], Mapping[Log, int]]]) -> Form:
    parts = []
    for coefficient, sizes, logs in terms:
        part = Form.constant(coefficient)
        for name, power in sizes.items():
            part = part * Form.atom(name, power)
        for log, power in logs.items():
            part = part * Form.atom(log, power)
        parts.append(part)
    return total(parts)


forms = st.lists(st.tuples(coefficients, monomials, log_monomials), max_size=4).map(_form)
polynomials = st.lists(st.tuples(coefficients, monomials), max_size=4).map(
    lambda terms: _form([(c, m, {}) for c, m in terms])
)
products = st.builds(
    lambda c, m: _form([(c, m, {})]), st.fractions(min_value=Fraction(1, 4), max_value=9, max_denominator=4), monomials
)
positive_sums = st.lists(products, min_size=1, max_size=3).map(total)
reductions = st.sampled_from(NAMES).map(lambda n: log2(symbol(n))) | st.sampled_from(NAMES).map(
    lambda n: ceil_log2(symbol(n))
)
powers_of_two = st.fixed_dictionaries({n: st.integers(0, 12).map(lambda k: 2**k) for n in NAMES})
any_sizes = st.fixed_dictionaries({n: st.integers(1, 50) for n in NAMES})


# -- loops ------------------------------------------------------------------------------------------------------------
C, F, G = Axis("c", size("d")), Axis("f", size("d_ff")), Axis("v", size("V"))
LAYER = Axis("layer", size("L"))
VECTOR = Tensor((C,))
#: through a narrow or a wide hidden axis: log d + log d_ff and log d + log V are incomparable
HIDDEN = {"W_f": F, "W_v": G}


def step(build: Builder, kind: str, x: Value, y: Value) -> Value:
    """One step of a loop body; every value is a vector over c."""
    if kind == "gelu":
        return build.add(Pointwise("gelu"), x)[0]
    if kind == "slow":
        return build.add(Pointwise("gelu", size("h")), x)[0]
    if kind == "constant":
        (one,) = build.add(Broadcast((C,)), build.add(Constant(1.0))[0])
        return build.add(Pointwise("gelu"), one)[0]
    if kind == "add":
        return build.add(Pointwise("add"), x, y)[0]
    hidden = HIDDEN[kind]
    (u,) = build.add(Contraction((hidden.name,)), x, Value(kind))
    return build.add(Contraction(("c",)), u, Value(kind))[0]


KINDS = ("gelu", "slow", "constant", "add", "add", *HIDDEN)
Steps = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Recipe:
    """A loop: its body's steps (kind and which earlier values it reads), its outputs, and how late its inputs come."""

    carried: int
    stacked: int
    steps: Steps
    outputs: tuple[int, ...]
    late: tuple[int, ...]
    reverse: bool = False

    def graph(self, name: str = "loop", kind: type[Repeat] = Repeat) -> Graph:
        """The loop between steps that delay its inputs and an addition that joins nothing it does not read."""
        build = Builder(name)
        for w, hidden in HIDDEN.items():
            build.input(w, Tensor((C, hidden), Role.PARAMETER))
        operands = []
        for i, late in enumerate(self.late):
            is_stacked = i >= self.carried
            x = build.input(f"in{i}", VECTOR.prepend(LAYER) if is_stacked else VECTOR)
            for _ in range(late):
                (x,) = build.add(Pointwise("gelu"), x)
            operands.append(x)
        loop = kind(self._body(), LAYER, self.carried, self.stacked, self.reverse)
        for i, value in enumerate(build.add(loop, *operands, *(Value(w) for w in HIDDEN), name="loop")):
            build.output(f"out{i}", value)
        return build.graph()

    def _body(self) -> Graph:
        build = Builder("body")
        values = [build.input(f"x{i}", VECTOR) for i in range(self.carried + self.stacked)]
        for w, hidden in HIDDEN.items():
            build.input(w, Tensor((C, hidden), Role.PARAMETER))
        for kind, i, j in self.steps:
            values.append(step(build, kind, values[i % len(values)], values[j % len(values)]))
        for i, position in enumerate(self.outputs):
            build.output(f"out{i}", values[-1 - position % len(values)])
        return build.graph()


def recipes(carried: int | tuple[int, int] = (1, 3), late: int = 3) -> st.SearchStrategy[Recipe]:
    low, high = (carried, carried) if isinstance(carried, int) else carried

    @st.composite
    def draw_recipe(draw: st.DrawFn) -> Recipe:
        n, stacked = draw(st.integers(low, high)), draw(st.integers(0, 2))
        steps = draw(
            st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=7)
        )
        outputs = draw(st.lists(st.integers(0, 9), min_size=n, max_size=n + 2))
        delays = draw(st.lists(st.integers(0, late), min_size=n + stacked, max_size=n + stacked))
        return Recipe(n, stacked, tuple(steps), tuple(outputs), tuple(delays), draw(st.booleans()))

    return draw_recipe()
