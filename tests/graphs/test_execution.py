"""A graph means what a few lines of plain numpy say: the decoder, its heads and losses, and every kind of operation."""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np
import pytest
import sympy

import graphs.ops
from graphs.axes import Axis, Causal, Prefix, Restriction, Role, Tensor, TopK, Window
from graphs.blocks.decoder import DENSE, DISPATCHED, EXPERTS
from graphs.errors import GraphError
from graphs.execute import run
from graphs.ir import Array, Builder, Op
from graphs.models.roles import ROLES, UNTIED, forward
from graphs.ops.collective import Collective
from graphs.ops.constant import Broadcast, Constant
from graphs.ops.contraction import Contraction
from graphs.ops.cross_entropy import CrossEntropy, OneHot
from graphs.ops.discount import Discount
from graphs.ops.dispatch import Dispatch
from graphs.ops.dropout import Dropout
from graphs.ops.excerpt import Excerpt, Insert
from graphs.ops.fill import Fill
from graphs.ops.fold import Blocks, Fold, Unfold
from graphs.ops.foreign import Foreign
from graphs.ops.groups import Groups
from graphs.ops.lookup import Lookup, Scatter
from graphs.ops.norm import LayerNorm
from graphs.ops.pointwise import EPSILON, FUNCTIONS, Pointwise
from graphs.ops.positions import Positions
from graphs.ops.reduction import Reduction
from graphs.ops.relabel import Relabel
from graphs.ops.repeat import Repeat
from graphs.ops.rms_norm import RMSNorm
from graphs.ops.roll import Roll
from graphs.ops.rotary import Rotary
from graphs.ops.route import Route
from graphs.ops.sample import Sample
from graphs.ops.scan import Scan
from graphs.ops.select import Pad, Select
from graphs.ops.sink_softmax import SinkSoftmax
from graphs.ops.slice import Slice, Stack
from graphs.ops.softmax import MaskedExp, Softmax
from graphs.ops.write import Write
from graphs.sizes import Sizes
from graphs.symbols import size
from graphs.transforms.expand import expand_macros
from tests.strategies import arrays_for

SIZES = Sizes.canonical()
FFNS = {"dense": DENSE, "experts": EXPERTS, "dispatched": DISPATCHED}
N = {"B": 2, "m": 4, "L": 3, "d": 6, "h": 2, "d_ff": 5, "V": 7, "E": 4, "E_a": 2, "d_e": 3}


# -- the decoder by hand ----------------------------------------------------------------------------------------------
def norm(x: Array, gain: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return gain * centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)


def gelu(x: Array) -> Array:
    return x * 0.5 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(x: Array, w: dict[str, Array]) -> Array:
    """Every head and every query on its own: a query sees the keys up to its position."""
    out = np.zeros_like(x)
    for sequence, result in zip(x, out, strict=True):
        for head in range(w["W_q"].shape[1]):
            q, k, v = (sequence @ w[name][:, head] for name in ("W_q", "W_k", "W_v"))
            for s in range(len(sequence)):
                seen = k[: s + 1] @ q[s] / np.sqrt(q.shape[1])
                result[s] += softmax(seen) @ v[: s + 1] @ w["W_o"][head]
    return out


def dense_ffn(x: Array, w: dict[str, Array]) -> Array:
    return gelu(x @ w["W_1"]) @ w["W_2"]


def expert_ffn(x: Array, w: dict[str, Array]) -> Array:
    """Token by token: the two experts of highest score, weighted by the softmax over their scores."""
    out = np.zeros_like(x)
    for token in np.ndindex(x.shape[:-1]):
        scores = x[token] @ w["W_r"]
        chosen = np.argsort(scores)[-N["E_a"] :]
        for gate, e in zip(softmax(scores[chosen]), chosen, strict=True):
            out[token] += gate * (gelu(x[token] @ w["W_1e"][e]) @ w["W_2e"][e])
    return out


MODELS = {**ROLES, "untied": UNTIED}
OF_NO_LAYER = {"ids", "targets", "targets_values", "W_e", "W_u", "gain_f"}


def by_hand(inputs: dict[str, Array], ffn: str, role: str) -> tuple[dict[str, Array], float]:
    x = inputs["W_e"][inputs["ids"].astype(int)]
    for layer in range(N["L"]):
        w = {
            n: a[layer]
            for n, a in inputs.items()
            if n not in ("ids", "targets", "targets_values", "W_e", "gain_f") and a.ndim > 1
        }
        x = x + attention(norm(x, w["gain_1"]), w)
        x = x + {"dense": dense_ffn, "experts": expert_ffn, "dispatched": expert_ffn}[ffn](norm(x, w["gain_2"]), w)
    x = norm(x, inputs["gain_f"])
    loss, outs = 0.0, {}
    if role in ("policy", "reference", "shared", "untied"):
        outs["out"] = x @ inputs["W_u" if role == "untied" else "W_e"].T
        rows = np.log(softmax(outs["out"])).reshape(-1, N["V"])
        loss -= rows[np.arange(len(rows)), inputs["targets"].astype(int).ravel()].mean()
    if role in ("reward", "value"):
        outs["out"] = x[:, -1] @ inputs["w_reward"] if role == "reward" else x @ inputs["w_value"]
        loss += ((outs["out"] - inputs["targets"]) ** 2).mean()
    if role == "shared":
        outs["values"] = x @ inputs["w_value"]
        loss += ((outs["values"] - inputs["targets_values"]) ** 2).mean()
    return outs, float(loss)


@pytest.mark.parametrize("expand", [False, True], ids=["macros", "primitives"])
@pytest.mark.parametrize("ffn", FFNS)
@pytest.mark.parametrize("role", MODELS)
def test_a_model_is_what_plain_numpy_says(role: str, ffn: str, expand: bool) -> None:
    graph = forward(SIZES, MODELS[role], FFNS[ffn], loss=True)
    inputs = arrays_for(graph, N, seed=3)
    results = run(expand_macros(graph) if expand else graph, inputs, N)
    outs, loss = by_hand(inputs, ffn, role)
    assert results.keys() == {*outs, "loss"}
    for name, out in outs.items():
        np.testing.assert_allclose(results[name], out, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(results["loss"], loss, rtol=1e-10)


def test_a_query_does_not_see_later_tokens() -> None:
    graph = forward(SIZES)
    inputs = arrays_for(graph, N)
    changed = inputs | {"ids": inputs["ids"].copy()}
    changed["ids"][:, -1] = (changed["ids"][:, -1] + 1) % N["V"]
    before, after = run(graph, inputs, N)["out"], run(graph, changed, N)["out"]
    np.testing.assert_array_equal(before[:, :-1], after[:, :-1])
    assert not np.allclose(before[:, -1], after[:, -1])


# -- every kind of operation ------------------------------------------------------------------------------------------
def T(names: str, *domain: Restriction, role: Role = Role.ACTIVATION) -> Tensor:
    axes = SIZES.axes() | {"t": Axis("t", SIZES.m)}
    return Tensor(tuple(axes[n] for n in names.split()), role, domain)


RNG = np.random.default_rng(0)
M, D, F, VOCABULARY = N["m"], N["d"], N["d_ff"], N["V"]
CAUSAL, LOWER = Causal("s", "t"), np.tril(np.ones((M, M)))
X, Y, W, SQUARE, IDS = (
    RNG.normal(size=(M, D)),
    RNG.normal(size=(M, D)),
    RNG.normal(size=(D, F)),
    RNG.normal(size=(M, M)),
    RNG.integers(0, VOCABULARY, M).astype(float),
)
TABLE, AXES = RNG.normal(size=(VOCABULARY, D)), SIZES.axes()
MASKED = np.where(LOWER > 0, SQUARE, -np.inf)
ID = T("s", role=Role.INDEX)
GATES = np.where(RNG.permuted(np.tile(np.arange(4), (M, 1)), axis=1) < 2, RNG.uniform(1, 2, (M, 4)), 0.0)
HEADS = Blocks(*(AXES[n] for n in "chk"))
HELD, SHARES = Prefix("s", sympy.Integer(2)), np.array([0.0, 0.3, 0.77, 0.999])
KEPT = np.where(np.sort(X, 1)[:, -2:-1] <= X, X, -np.inf)
#: of each row the three neighbours whose two largest entries have the larger sum
BEST_HALF = np.array(
    [[x if (c < 3) == (sum(sorted(row[:3])[1:]) > sum(sorted(row[3:])[1:])) else -np.inf for c, x in enumerate(row)]
     for row in X]
)  # fmt: skip


def turned(x: Array) -> Array:
    """Channels i and i + 3 of position s are the parts of a complex number, times e^(i s 100^(-i/3))."""
    speeds = 100.0 ** (-np.arange(D // 2) / (D // 2))
    z = (x[:, : D // 2] + 1j * x[:, D // 2 :]) * np.exp(1j * np.arange(M)[:, None] * speeds)
    return np.concatenate((z.real, z.imag), axis=1)


#: operation, types and arrays of the operands, result
RUNS: dict[str, tuple[Op, list[tuple[Tensor, Array]], Array]] = {
    "contraction": (Contraction(("f", "s")), [(T("s c"), X), (T("c f"), W)], (X @ W).T),
    "contraction keeping an axis": (Contraction(("s",)), [(T("s c"), X), (T("s c"), Y)], (X * Y).sum(1)),
    "contraction summing an axis of one operand": (Contraction(("f",)), [(T("s c"), X), (T("c f"), W)], X.sum(0) @ W),
    "causal contraction": (Contraction(("s", "t"), (CAUSAL,)), [(T("s c"), X), (T("t c"), Y)], X @ Y.T * LOWER),
    "contraction of causal entries": (
        Contraction(("s", "c")),
        [(T("s t", CAUSAL), SQUARE), (T("t c"), Y)],
        (SQUARE * LOWER) @ Y,
    ),
    "sum": (Reduction("sum", ("c",)), [(T("s c"), X)], X.sum(1)),
    "sum of causal entries": (Reduction("sum", ("t",)), [(T("s t", CAUSAL), SQUARE)], (SQUARE * LOWER).sum(1)),
    "maximum": (Reduction("max", ("s", "c")), [(T("s c"), X)], X.max()),
    "maximum of causal entries": (Reduction("max", ("t",)), [(T("s t", CAUSAL), SQUARE)], MASKED.max(1)),
    "relabel": (Relabel("s", "t"), [(T("s c"), X)], X),
    "unfold": (Unfold(HEADS), [(T("s c"), X)], X.reshape(M, N["h"], -1)),
    "fold": (Fold(HEADS), [(T("s h k"), X.reshape(M, N["h"], -1))], X),
    "roll": (Roll("s"), [(T("s c"), X)], X[[M - 1, *range(M - 1)]]),
    "roll back two places": (Roll("c", -2), [(T("s c"), X)], X[:, [*range(2, D), 0, 1]]),
    "positions": (Positions(AXES["s"]), [], np.arange(float(M))),
    "constant": (Constant(2.5), [], np.asarray(2.5)),
    "broadcast": (Broadcast((AXES["c"], AXES["s"], AXES["f"])), [(T("s c"), X)], np.repeat(X.T[:, :, None], F, 2)),
    "lookup": (Lookup("v"), [(T("v c"), TABLE), (ID, IDS)], TABLE[IDS.astype(int)]),
    "lookup in columns": (Lookup("v"), [(T("c v"), TABLE.T), (ID, IDS)], TABLE[IDS.astype(int)]),
    "scatter": (
        Scatter((AXES["v"], AXES["c"])),
        [(T("s c"), X), (ID, IDS)],
        np.array([X[v == IDS].sum(0) for v in range(VOCABULARY)]),
    ),
    "select": (Select("s"), [(T("s c"), X)], X[-1]),
    "last entries": (Excerpt("s", Axis("s", sympy.Integer(2)), SIZES.m - 2), [(T("c s"), X.T)], X.T[:, -2:]),
    "pad": (Pad(AXES["s"], 1), [(T("c"), X[0])], np.eye(M)[-1] * X[0][:, None]),
    "slice": (Slice("s", 1), [(T("s c"), X)], X[1]),
    "softmax": (Softmax("c"), [(T("s c"), X)], softmax(X)),
    "causal softmax": (Softmax("t"), [(T("s t", CAUSAL), SQUARE)], softmax(MASKED)),
    "masked exponential": (MaskedExp(), [(T("s t", CAUSAL), SQUARE)], np.exp(SQUARE) * LOWER),
    "norm": (LayerNorm("c"), [(T("s c"), X), (T("c"), Y[0])], norm(X, Y[0])),
    "norm over the first axis": (LayerNorm("c"), [(T("c s"), X.T), (T("c"), Y[0])], norm(X, Y[0]).T),
    "cross-entropy": (
        CrossEntropy("c"),
        [(T("s c"), X), (ID, IDS % D)],
        -np.log(softmax(X))[np.arange(M), (IDS % D).astype(int)],
    ),
    "one-hot": (
        OneHot("v"),
        [(T("s v"), TABLE[:M, :1] * np.ones(VOCABULARY)), (ID, IDS)],
        np.eye(VOCABULARY)[IDS.astype(int)],
    ),
    "dispatch": (
        Dispatch("e"),
        [(T("s c"), X), (T("s e", TopK("e", ("s",), size("E_a"))), GATES)],
        np.where(GATES[:, :, None] > 0, X[:, None, :], 0.0),
    ),
    "root mean square": (
        RMSNorm("c"),
        [(T("s c"), X), (T("c"), Y[0])],
        X * Y[0] / np.sqrt((X**2).mean(1)[:, None] + EPSILON),
    ),
    "softmax with a sink": (
        SinkSoftmax("t"),
        [(T("s t", CAUSAL), SQUARE), (T("s"), Y[:, 0])],
        softmax(np.concatenate((MASKED, Y[:, :1]), axis=1))[:, :-1],
    ),
    "rotary positions": (Rotary("c", "s", 100.0), [(T("s c"), X)], turned(X)),
    "rotary positions, back": (Rotary("c", "s", 100.0, back=True), [(T("s c"), turned(X))], X),
    "fill": (Fill("e"), [(T("s e", TopK("e", ("s",), size("E_a"))), GATES)], GATES),
    "windowed softmax": (
        Softmax("t"),
        [(T("s t", Window("s", "t", sympy.Integer(2))), SQUARE)],
        softmax(np.where(np.triu(LOWER, -1) > 0, SQUARE, -np.inf)),
    ),
    "sum of what a cache holds": (Reduction("sum", ("s",)), [(T("s c", HELD), X)], X[:2].sum(0)),
    "softmax over what a cache holds": (Softmax("s"), [(T("s", HELD), X[:, 0])], np.pad(softmax(X[:2, 0]), (0, M - 2))),
    "contraction with what a cache holds": (
        Contraction(("c",)),
        [(T("s"), X[:, 1]), (T("s c", HELD), X)],
        X[:2, 1] @ X[:2],
    ),
    "write": (
        Write("s", "q", sympy.Integer(2)),
        [(T("c s", HELD), X.T), (Tensor((AXES["c"], Axis("q", sympy.Integer(1)))), Y[:1].T)],
        np.vstack([X[:2], Y[:1], X[3:]]).T,
    ),
    "write into an empty cache": (
        Write("s", "q", sympy.Integer(0)),
        [(T("s c"), X), (Tensor((Axis("q", sympy.Integer(3)), AXES["c"])), Y[:3])],
        np.vstack([Y[:3], X[3:]]),
    ),
    "greedy choice": (Sample("c"), [(T("s c"), X)], X.argmax(1)),
    "greedy choice along the first axis": (Sample("c"), [(T("c s"), X.T)], X.argmax(1)),
    "draw": (
        Sample("c"),
        [(T("s c"), X**2), (T("s"), SHARES)],
        np.array(
            [next(i for i in range(D) if (w[: i + 1]).sum() > u * w.sum()) for w, u in zip(X**2, SHARES, strict=True)]
        ),
    ),
    "top-k": (Route("c", sympy.Integer(2)), [(T("s c"), X)], KEPT),
    "top-k along the first axis": (Route("c", size("E_a")), [(T("c s"), X.T)], KEPT.T),
    "top-k by other scores": (
        Route("c", size("E_a")),
        [(T("s c"), Y), (T("s c"), X)],
        np.where(np.isfinite(KEPT), Y, -np.inf),
    ),
    "best groups": (Groups("c", 2, 1), [(T("s c"), X)], BEST_HALF),
    "best groups of the first axis": (Groups("c", 2, 1), [(T("c s"), X.T)], BEST_HALF.T),
    "excerpt": (Excerpt("c", Axis("i", sympy.Integer(3)), size("B")), [(T("s c"), X)], X[:, 2:5]),
    "excerpt of the same name": (
        Excerpt("s", Axis("s", sympy.Integer(2)), sympy.Integer(0)),
        [(T("s c"), X)],
        X[:2],
    ),
    "insert": (Insert("s", Axis("i", size("V")), size("B")), [(T("s c"), X)], np.pad(X, ((2, 1), (0, 0)))),
    "blocks that keep the name": (
        Unfold(Blocks.of(AXES["c"], Axis("i", sympy.Integer(2)))),
        [(T("c s"), X.T)],
        np.array([[X.T[2 * g + i] for i in range(2)] for g in range(D // 2)]),
    ),
    "blocks joined under their name": (
        Fold(Blocks.joined(AXES["s"], AXES["c"])),
        [(T("s c f"), X[:, :, None] * W[0])],
        np.array([x * W[0] for row in X for x in row]),
    ),
    "discount": (
        Discount(AXES["s"], Axis("t", SIZES.m), sympy.Rational(1, 2)),
        [],
        np.array([[0.5 ** (l - i) if l >= i else 0 for l in range(M)] for i in range(M)]),
    ),
}
#: kinds that run in other ways: in a mesh, as a loop, as parts of an unrolled loop, or at random (tests/memory)
ELSEWHERE = {Collective, Dropout, Foreign, Repeat, Scan, Stack, Pointwise}
#: kinds that run in other ways: in a mesh, as a loop, as parts of an unrolled loop, at random (tests/memory), or never


@pytest.mark.parametrize("name", RUNS)
def test_an_operation_is_what_plain_numpy_says(name: str) -> None:
    op, operands, expected = RUNS[name]
    build = Builder("single")
    values = [build.input(f"x{i}", t) for i, (t, _) in enumerate(operands)]
    build.output("y", build.add(op, *values)[0])
    result = run(build.graph(), {f"x{i}": a for i, (_, a) in enumerate(operands)}, N)["y"]
    np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)


def clamped_swish(x: Array) -> Array:
    low = np.where(x > 7, 7, x)
    return low / (1 + np.exp(-1.702 * low))


#: beyond the limits of what is clamped, on both sides
FAR = 9 * X
assert FAR.min() < -7 < 7 < FAR.max()
PLAIN = {
    "add": X + Y,
    "subtract": X - Y,
    "multiply": X * Y,
    "divide": X / Y,
    "exp": np.exp(X),
    "log": np.log(X**2),
    "square": X**2,
    "rsqrt": 1 / np.sqrt(X**2 + EPSILON),
    "gelu": gelu(X),
    "gelu_grad": Y * (gelu(X + 1e-6) - gelu(X - 1e-6)) / 2e-6,
    "silu": X / (1 + np.exp(-X)),
    "silu_grad": Y * ((X + 1e-6) / (1 + np.exp(-X - 1e-6)) - (X - 1e-6) / (1 + np.exp(-X + 1e-6))) / 2e-6,
    "log_sigmoid": np.log(1 / (1 + np.exp(-X))),
    "log_sigmoid_grad": Y / (1 + np.exp(X)),
    "clamped_swish": clamped_swish(FAR),
    "clamped_swish_grad": Y * (clamped_swish(FAR + 1e-6) - clamped_swish(FAR - 1e-6)) / 2e-6,
    "clamped_next": np.where(FAR > 7, 8, np.where(FAR < -7, -6, FAR + 1)),
    "clamped_next_grad": Y * (abs(FAR) < 7),
    "keep_finite": np.where(np.isfinite(KEPT), X, 0),
    "scale": X,
    "where_less": np.where(KEPT < Y, X, -np.inf),
    "where_less_grad": X * (KEPT < Y),
    "minimum": (X + Y - abs(X - Y)) / 2,
    "maximum": (X + Y + abs(X - Y)) / 2,
    "at_most": (X <= Y).astype(float),
}


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_a_pointwise_function_is_what_plain_numpy_says_times_its_factor(fn: str) -> None:
    first = X**2 if fn in ("log", "rsqrt") else FAR if fn.startswith("clamped") else X
    second = KEPT if fn in ("keep_finite", "where_less", "where_less_grad") else Y
    arrays = (first, second, Y)[: FUNCTIONS[fn][0]]
    build = Builder("single")
    values = [build.input(f"x{i}", T("s c")) for i in range(len(arrays))]
    build.output("y", build.add(Pointwise(fn, 1 / sympy.sqrt(size("h"))), *values)[0])
    result = run(build.graph(), {f"x{i}": a for i, a in enumerate(arrays)}, N)["y"]
    np.testing.assert_allclose(result, PLAIN[fn] / np.sqrt(N["h"]), rtol=1e-6, atol=1e-12)


def test_pointwise_operands_broadcast_by_name_whatever_their_order() -> None:
    build = Builder("single")
    values = build.input("x", T("s c")), build.input("y", T("f s"))
    build.output("y", build.add(Pointwise("multiply"), *values)[0])
    result = run(build.graph(), {"x": X, "y": W[:M].T}, N)["y"]
    np.testing.assert_allclose(result, X[:, :, None] * W[:M, None, :])


def test_a_loop_hands_on_what_is_carried_and_stacks_the_rest_forwards_and_in_reverse() -> None:
    """x <- 2 x + w_i, and each iteration's x w_i is kept."""
    body = Builder("body")
    x, w = body.input("x", T("c")), body.input("w", T("c"))
    body.output("x", body.add(Pointwise("add"), body.add(Pointwise("scale", sympy.Integer(2)), x)[0], w)[0])
    body.output("side", body.add(Pointwise("multiply"), x, w)[0])
    stack = RNG.normal(size=(N["L"], D))
    for reverse in (False, True):
        build = Builder("loop")
        operands = build.input("x", T("c")), build.input("w", T("layer c"))
        last, side = build.add(Repeat(body.graph(), AXES["layer"], 1, 1, reverse), *operands)
        build.output("x", last)
        build.output("side", side)
        expected, kept = X[0], np.empty_like(stack)
        for i in reversed(range(N["L"])) if reverse else range(N["L"]):
            kept[i] = expected * stack[i]
            expected = 2 * expected + stack[i]
        results = run(build.graph(), {"x": X[0], "w": stack}, N)
        np.testing.assert_allclose(results["x"], expected)
        np.testing.assert_allclose(results["side"], kept)


def kinds() -> set[type[Op]]:
    """Every kind of operation of the package."""
    for module in pkgutil.iter_modules(graphs.ops.__path__):
        importlib.import_module(f"graphs.ops.{module.name}")
    found, todo = set(), [Op]
    while todo:
        kind = todo.pop()
        todo += kind.__subclasses__()
        if kind.__module__.startswith("graphs.ops."):
            found.add(kind)
    return found


def test_every_kind_of_operation_is_executed_above() -> None:
    assert kinds() == {type(op) for op, _, _ in RUNS.values()} | ELSEWHERE
    assert PLAIN.keys() == FUNCTIONS.keys()


# -- what cannot run --------------------------------------------------------------------------------------------------
def single_sum() -> Builder:
    build = Builder("g")
    build.output("y", build.add(Reduction("sum", ("k",)), build.input("x", T("h k")))[0])
    return build


def test_an_operation_of_another_framework_does_not_run() -> None:
    build = Builder("g")
    build.output("y", build.add(Foreign("erf", "pointwise", (T("c"),)), build.input("x", T("c")))[0])
    with pytest.raises(GraphError, match="erf comes from another framework and has no meaning here; run it there"):
        run(build.graph(), {"x": X[0]}, N)


def test_an_operation_of_another_framework_is_of_a_known_nature() -> None:
    build = Builder("g")
    with pytest.raises(GraphError, match="erf is of unknown nature 'odd'; use one of pointwise, reduction, movement"):
        build.add(Foreign("erf", "odd", (T("c"),)), build.input("x", T("c")))


@pytest.mark.parametrize(
    ("arrays", "sizes", "sentence"),
    [
        ({}, N, "graph g: no array for the input 'x'; give one"),
        ({"x": X}, N, "input 'x' has shape (4, 6), its axes say (2, 3); change one"),
        ({"x": X}, {"h": 2}, "no value for d in d/h; give one with the sizes"),
        ({"x": X}, {"h": 4, "d": 6}, "axis 'k' has size d/h = 3/2, not a whole number; change the sizes"),
    ],
    ids=["missing array", "wrong shape", "unbound size", "heads that do not divide the width"],
)
def test_what_cannot_run_says_why(arrays: dict[str, Array], sizes: dict[str, int], sentence: str) -> None:
    with pytest.raises(GraphError) as caught:
        run(single_sum().graph(), arrays, sizes)
    assert str(caught.value) == sentence
