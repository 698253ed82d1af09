"""The oracle: every operation written out as scalar operations, so that work is a count and depth a longest path.

It shares no code with the cost rules or with the numpy meaning of the operations; it reads an operation's attributes
and the axes of its operands, and decides by itself which entries a causal or a top-k restriction leaves.  A value is a
map from index tuples to scalar occurrences; entries that mean nothing are absent.  Sums and maxima are balanced binary
trees.  Inputs, moved data, one-hot entries and constants are scalars that cost nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import networkx as nx
import sympy

from graphs.axes import Axis, Causal, Prefix, Restriction, Tensor, TopK, Window
from graphs.ir import Graph, Node, Value
from graphs.ops.constant import Broadcast, Constant
from graphs.ops.contraction import Contraction
from graphs.ops.cross_entropy import OneHot
from graphs.ops.discount import Discount
from graphs.ops.dispatch import Dispatch
from graphs.ops.dropout import Dropout
from graphs.ops.excerpt import Excerpt, Insert
from graphs.ops.fill import Fill
from graphs.ops.fold import Fold, Unfold
from graphs.ops.groups import Groups
from graphs.ops.lookup import Lookup, Scatter
from graphs.ops.pointwise import Pointwise
from graphs.ops.positions import Positions
from graphs.ops.reduction import Reduction
from graphs.ops.relabel import Relabel
from graphs.ops.repeat import Repeat
from graphs.ops.roll import Roll
from graphs.ops.rotary import Rotary
from graphs.ops.route import Route
from graphs.ops.sample import Sample
from graphs.ops.scan import Scan
from graphs.ops.select import Pad, Select
from graphs.ops.slice import Slice, Stack
from graphs.ops.softmax import MaskedExp
from graphs.ops.write import Write

Sizes = Mapping[str, int]
Index = tuple[int, ...]
#: does token number ``token`` keep member ``member`` of ``count``, of which it keeps ``active``?
Router = Callable[[int, int, int, int], bool]


def balanced(token: int, member: int, active: int, count: int) -> bool:
    """Tokens take the members in turn, so that all members serve equally many (or one more)."""
    return (member - token * active) % count < active


def skewed(token: int, member: int, active: int, count: int) -> bool:
    """Every token keeps the same members: the longest possible rows."""
    return member < active


@dataclass
class Entries:
    """A value: its axis names, their lengths, and the scalar occurrence at each meaningful index."""

    names: tuple[str, ...]
    shape: tuple[int, ...]
    at: dict[Index, int]

    def named(self, index: Index) -> dict[str, int]:
        return dict(zip(self.names, index, strict=True))


@dataclass
class Scalars:
    """The scalar graph being written; ``router`` plays the data that decides which experts a token keeps."""

    sizes: Sizes
    router: Router = balanced
    graph: nx.DiGraph = field(default_factory=nx.DiGraph)
    known: dict[sympy.Expr, int] = field(default_factory=dict)

    # -- scalars ------------------------------------------------------------------------------------------------------
    def free(self, *sources: int) -> int:
        return self._new(0, sources)

    def operate(self, *sources: int) -> int:
        return self._new(1, sources)

    def _new(self, cost: int, sources: Iterable[int]) -> int:
        name = len(self.graph)
        self.graph.add_node(name, cost=cost)
        self.graph.add_edges_from((s, name) for s in sources)
        return name

    def tree(self, leaves: list[int]) -> int:
        """A balanced binary tree over the leaves."""
        while len(leaves) > 1:
            pairs = [leaves[i : i + 2] for i in range(0, len(leaves), 2)]
            leaves = [self.operate(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
        return leaves[0]

    @property
    def work(self) -> int:
        return sum(cost for _, cost in self.graph.nodes(data="cost"))

    @property
    def depth(self) -> int:
        longest: dict[int, int] = {}
        for node in nx.topological_sort(self.graph):
            before = max((longest[p] for p in self.graph.predecessors(node)), default=0)
            longest[node] = before + self.graph.nodes[node]["cost"]
        return max(longest.values(), default=0)

    # -- sizes and restrictions ---------------------------------------------------------------------------------------
    def number(self, expr: sympy.Expr) -> int:
        if expr not in self.known:
            value = expr.subs({s: self.sizes[s.name] for s in expr.free_symbols})
            assert value.is_Integer, f"{expr} is not whole at these sizes"
            self.known[expr] = int(value)
        return self.known[expr]

    def box(self, axes: Iterable[Axis]) -> tuple[tuple[str, ...], tuple[int, ...]]:
        axes = tuple(axes)
        return tuple(a.name for a in axes), tuple(self.number(a.size) for a in axes)

    def meaningful(self, index: Mapping[str, int], lengths: Mapping[str, int], domain: Iterable[Restriction]) -> bool:
        for r in domain:
            if isinstance(r, Causal):
                if index[r.key] > index[r.query]:
                    return False
                if isinstance(r, Window) and index[r.query] - index[r.key] >= self.number(r.width):
                    return False
            elif isinstance(r, Prefix):
                if index[r.axis] >= self.number(r.length):
                    return False
            elif not isinstance(r, TopK):
                raise TypeError(f"{r} is met on average, not entry by entry; count it over all steps of its loop")
            elif not self._kept(index, lengths, r.axis, r.per, self.number(r.active)):
                return False
        return True

    def _kept(
        self, index: Mapping[str, int], lengths: Mapping[str, int], axis: str, per: Iterable[str], k: int
    ) -> bool:
        token = 0
        for name in sorted(per):
            token = token * lengths[name] + index[name]
        return self.router(token, index[axis], k, lengths[axis])

    def leaves(self, tensor: Tensor) -> Entries:
        """Fresh free scalars for every meaningful entry of a tensor."""
        names, shape = self.box(tensor.axes)
        lengths = dict(zip(names, shape, strict=True))
        indices = itertools.product(*map(range, shape))
        kept = [i for i in indices if self.meaningful(dict(zip(names, i, strict=True)), lengths, tensor.domain)]
        return Entries(names, shape, {i: self.free() for i in kept})


def _lengths(*values: Entries) -> dict[str, int]:
    return {n: k for v in values for n, k in zip(v.names, v.shape, strict=True)}


def _pick(index: Mapping[str, int], names: Iterable[str]) -> Index:
    return tuple(index[n] for n in names)


def _fold(scalars: Scalars, x: Entries, out: tuple[str, ...], finish: Callable[[list[int]], int]) -> Entries:
    """Gather the entries that agree on the ``out`` axes and finish each group."""
    groups: dict[Index, list[int]] = {}
    for index, scalar in x.at.items():
        groups.setdefault(_pick(x.named(index), out), []).append(scalar)
    lengths = _lengths(x)
    return Entries(out, _pick(lengths, out), {i: finish(group) for i, group in groups.items()})


# -- one writer per kind of operation ---------------------------------------------------------------------------------
def _contraction(s: Scalars, op: Contraction, a: Entries, b: Entries) -> Entries:
    lengths = _lengths(a, b)
    names = tuple(lengths)
    products: dict[Index, int] = {}
    for index in itertools.product(*(range(k) for k in lengths.values())):
        here = dict(zip(names, index, strict=True))
        left, right = a.at.get(_pick(here, a.names)), b.at.get(_pick(here, b.names))
        if left is not None and right is not None and s.meaningful(here, lengths, op.domain):
            products[index] = s.operate(left, right)
    return _fold(s, Entries(names, tuple(lengths.values()), products), op.out, s.tree)


def _pointwise(s: Scalars, op: Pointwise, *operands: Entries) -> Entries:
    lengths = _lengths(*operands)
    names = tuple(lengths)
    out: dict[Index, int] = {}
    for index in itertools.product(*(range(k) for k in lengths.values())):
        here = dict(zip(names, index, strict=True))
        sources = [v.at.get(_pick(here, v.names)) for v in operands]
        if all(x is not None for x in sources):
            known = [x for x in sources if x is not None]
            value = known[0] if op.fn == "scale" else s.operate(*known)
            out[index] = value if op.factor == 1 else s.operate(value)
    return Entries(names, tuple(lengths.values()), out)


def _masked_exp(s: Scalars, op: MaskedExp, x: Entries) -> Entries:
    return Entries(x.names, x.shape, {i: s.operate(v) for i, v in x.at.items()})


def _dropout(s: Scalars, op: Dropout, x: Entries, seed: Entries) -> list[Entries]:
    """Times the mask, which is drawn at no cost, and times the factor."""
    mask = {i: s.free() for i in x.at}
    kept = {i: s.operate(s.operate(v, mask[i])) for i, v in x.at.items()}
    return [Entries(x.names, x.shape, kept), Entries(x.names, x.shape, mask)]


def _reduction(s: Scalars, op: Reduction, x: Entries) -> Entries:
    return _fold(s, x, tuple(n for n in x.names if n not in op.over), s.tree)


def _relabel(s: Scalars, op: Relabel, x: Entries) -> Entries:
    return Entries(tuple(op.new if n == op.old else n for n in x.names), x.shape, x.at)


def _select(s: Scalars, op: Select, x: Entries) -> Entries:
    last = _lengths(x)[op.axis] - 1
    kept = Entries(x.names, x.shape, {i: v for i, v in x.at.items() if x.named(i)[op.axis] == last})
    return _fold(s, kept, tuple(n for n in x.names if n != op.axis), s.tree)


def _unfold(s: Scalars, op: Unfold, x: Entries) -> Entries:
    at, length = x.names.index(op.blocks.whole.name), s.number(op.blocks.inner.size)
    names = (*x.names[:at], op.blocks.outer.name, op.blocks.inner.name, *x.names[at + 1 :])
    shape = (*x.shape[:at], x.shape[at] // length, length, *x.shape[at + 1 :])
    return Entries(names, shape, {(*i[:at], *divmod(i[at], length), *i[at + 1 :]): v for i, v in x.at.items()})


def _fold_blocks(s: Scalars, op: Fold, x: Entries) -> Entries:
    at = x.names.index(op.blocks.outer.name)
    blocks, length = x.shape[at : at + 2]
    names = (*x.names[:at], op.blocks.whole.name, *x.names[at + 2 :])
    shape = (*x.shape[:at], blocks * length, *x.shape[at + 2 :])
    return Entries(names, shape, {(*i[:at], i[at] * length + i[at + 1], *i[at + 2 :]): v for i, v in x.at.items()})


def _roll(s: Scalars, op: Roll, x: Entries) -> Entries:
    at = x.names.index(op.axis)
    moved = {(*i[:at], (i[at] + op.step) % x.shape[at], *i[at + 1 :]): v for i, v in x.at.items()}
    return Entries(x.names, x.shape, moved)


def _positions(s: Scalars, op: Positions) -> Entries:
    return _everywhere(s, (op.axis,), lambda here: s.free())


def _rotary(s: Scalars, op: Rotary, x: Entries) -> Entries:
    """Each channel times a cosine, plus or minus its partner times a sine."""
    at = x.names.index(op.axis)
    half = x.shape[at] // 2
    partner = {i: x.at[(*i[:at], (i[at] + half) % (2 * half), *i[at + 1 :])] for i in x.at}
    turned = {i: s.operate(s.operate(v, s.free()), s.operate(partner[i], s.free())) for i, v in x.at.items()}
    return Entries(x.names, x.shape, turned)


def _fill(s: Scalars, op: Fill, x: Entries) -> Entries:
    """Zeros where there was nothing."""
    return Entries(x.names, x.shape, {i: x.at.get(i, s.free()) for i in itertools.product(*map(range, x.shape))})


def _slice(s: Scalars, op: Slice, x: Entries) -> Entries:
    kept = Entries(x.names, x.shape, {i: v for i, v in x.at.items() if x.named(i)[op.axis] == op.index})
    return _fold(s, kept, tuple(n for n in x.names if n != op.axis), s.tree)


def _stack(s: Scalars, op: Stack, *entries: Entries) -> Entries:
    at = {(i, *index): v for i, x in enumerate(entries) for index, v in x.at.items()}
    return Entries((op.axis.name, *entries[0].names), (len(entries), *entries[0].shape), at)


def _window(s: Scalars, op: Excerpt, x: Entries) -> Entries:
    where, first, count = x.names.index(op.source), s.number(op.start), s.number(op.axis.size)
    kept = {(*i[:where], i[where] - first, *i[where + 1 :]): v for i, v in x.at.items()}
    names, shape = list(x.names), list(x.shape)
    names[where], shape[where] = op.axis.name, count
    return Entries(tuple(names), tuple(shape), {i: v for i, v in kept.items() if 0 <= i[where] < count})


def _insert(s: Scalars, op: Insert, x: Entries) -> Entries:
    """Zeros cost nothing."""
    where, first = x.names.index(op.source), s.number(op.start)
    names, shape = list(x.names), list(x.shape)
    names[where], shape[where] = op.axis.name, s.number(op.axis.size)
    at = {i: s.free() for i in itertools.product(*map(range, shape))}
    at |= {(*i[:where], i[where] + first, *i[where + 1 :]): v for i, v in x.at.items()}
    return Entries(tuple(names), tuple(shape), at)


def _discount(s: Scalars, op: Discount) -> Entries:
    now, later = op.now.name, op.later.name
    return _everywhere(s, (op.now, op.later), lambda here: s.free() if here[later] >= here[now] else None)


def _everywhere(s: Scalars, axes: Iterable[Axis], value: Callable[[dict[str, int]], int | None]) -> Entries:
    names, shape = s.box(axes)
    found = ((i, value(dict(zip(names, i, strict=True)))) for i in itertools.product(*map(range, shape)))
    return Entries(names, shape, {i: v for i, v in found if v is not None})


def _pad(s: Scalars, op: Pad, x: Entries) -> Entries:
    names = [*x.names]
    names.insert(op.position, op.axis.name)
    lengths = _lengths(x) | {op.axis.name: s.number(op.axis.size)}
    shape = _pick(lengths, names)
    last = lengths[op.axis.name] - 1
    at = {}
    for index in itertools.product(*map(range, shape)):
        here = dict(zip(names, index, strict=True))
        at[index] = x.at[_pick(here, x.names)] if here[op.axis.name] == last else s.free()
    return Entries(tuple(names), shape, at)


def _broadcast(s: Scalars, op: Broadcast, x: Entries) -> Entries:
    return _everywhere(s, op.axes, lambda here: x.at.get(_pick(here, x.names)))


def _constant(s: Scalars, op: Constant) -> Entries:
    return Entries((), (), {(): s.free()})


def _one_hot(s: Scalars, op: OneHot, like: Entries, ids: Entries) -> Entries:
    return Entries(like.names, like.shape, {i: s.free() for i in like.at})


def _dispatch(s: Scalars, op: Dispatch, tokens: Entries, gates: Entries) -> Entries:
    """A copy wherever the router keeps a gate, zero and so not there elsewhere."""
    names = (*gates.names, *(n for n in tokens.names if n not in gates.names))
    at = {}
    for token, scalar in tokens.at.items():
        here = tokens.named(token)
        for gate in gates.at:
            both = gates.named(gate)
            if all(here[n] == both[n] for n in gates.names if n in here):
                at[_pick(here | both, names)] = s.free(scalar)
    return Entries(names, _pick(_lengths(tokens, gates), names), at)


def _lookup(s: Scalars, op: Lookup, table: Entries, ids: Entries) -> Entries:
    """Which row is read does not matter to the count: always row 0."""
    lengths = _lengths(table, ids)
    names = (*ids.names, *(n for n in table.names if n != op.axis))
    shape = _pick(lengths, names)
    at = {}
    for index in itertools.product(*map(range, shape)):
        here = dict(zip(names, index, strict=True)) | {op.axis: 0}
        at[index] = s.free(table.at[_pick(here, table.names)])
    return Entries(names, shape, at)


def _scatter(s: Scalars, op: Scatter, rows: Entries, ids: Entries) -> Entries:
    """The worst case: all ids are 0, so that one row of the table sums every row given."""
    (axis,) = (a.name for a in op.table if a.name not in rows.names)
    summed = _fold(s, rows, tuple(a.name for a in op.table if a.name != axis), s.tree)
    return _everywhere(s, op.table, lambda here: s.free() if here[axis] else summed.at[_pick(here, summed.names)])


def _maxima(s: Scalars, scores: list[int], count: int) -> list[int]:
    """The largest ones, one after the other: each round waits for the winner before it and reads all scores."""
    winners: list[int] = []
    for _ in range(count):
        winners.append(s.tree(list(scores)))
        scores = [s.free(score, winners[-1]) for score in scores]
    return winners


def _groups(s: Scalars, op: Groups, x: Entries) -> Entries:
    """The two largest of each group are added; the groups with the largest sums are found in the same way."""
    out: dict[Index, int] = {}
    lengths, where = _lengths(x), x.names.index(op.axis)
    members = lengths[op.axis] // op.groups
    for token in {i[:where] + i[where + 1 :] for i in x.at}:
        row = {(*token[:where], e, *token[where:]): e // members for e in range(lengths[op.axis])}
        of_group = [[x.at[i] for i, g in row.items() if g == group] for group in range(op.groups)]
        last = _maxima(s, [s.operate(*_maxima(s, scores, 2)) for scores in of_group], op.kept)[-1]
        out |= {i: s.free(x.at[i], last) for i in row}
    return Entries(x.names, x.shape, out)


def _route(s: Scalars, op: Route, values: Entries, *choice: Entries) -> Entries:
    """Top-k as k maxima, one after the other."""
    x = choice[0] if choice else values
    out: dict[Index, int] = {}
    lengths, k = _lengths(x), s.number(op.active)
    per = tuple(n for n in x.names if n != op.axis)
    for token in itertools.product(*(range(lengths[n]) for n in per)):
        here = dict(zip(per, token, strict=True))
        row = {e: x.at[_pick(here | {op.axis: e}, x.names)] for e in range(lengths[op.axis])}
        winner = _maxima(s, list(row.values()), k)[-1]
        for e in row:
            if s._kept(here | {op.axis: e}, lengths, op.axis, per, k):
                index = _pick(here | {op.axis: e}, x.names)
                out[index] = s.free(winner, values.at[index])
    return Entries(x.names, x.shape, out)


def _sample(s: Scalars, op: Sample, scores: Entries, *uniform: Entries) -> Entries:
    """Greedy: a tree of comparisons.  A draw: a tree of sums, the number scaled by the whole, and a way down the tree,
    on each level a comparison with the left part and a number less that part for the right one.
    """
    rest = tuple(n for n in scores.names if n != op.axis)

    def chosen(row: list[int], number: int | None) -> int:
        levels = (len(row) - 1).bit_length()
        top = s.tree(list(row))
        if number is None:
            return s.free(top)
        here = s.operate(number, top)
        for _ in range(2 * levels):
            here = s.operate(here)
        return s.free(here)

    rows: dict[Index, list[int]] = {}
    for index, scalar in scores.at.items():
        rows.setdefault(_pick(scores.named(index), rest), []).append(scalar)
    lengths = _lengths(scores)
    at = {i: chosen(row, uniform[0].at[i] if uniform else None) for i, row in rows.items()}
    return Entries(rest, _pick(lengths, rest), at)


def _write_cache(s: Scalars, op: Write, cache: Entries, entries: Entries) -> Entries:
    """What lies before the start stays, the entries follow."""
    where, start = cache.names.index(op.axis), s.number(op.start)
    at = {i: scalar for i, scalar in cache.at.items() if i[where] < start}
    at |= {(*i[:where], i[where] + start, *i[where + 1 :]): scalar for i, scalar in entries.at.items()}
    return Entries(cache.names, cache.shape, at)


WRITERS: dict[type, Callable[..., Entries | list[Entries]]] = {
    Dropout: _dropout,
    Contraction: _contraction,
    Pointwise: _pointwise,
    MaskedExp: _masked_exp,
    Reduction: _reduction,
    Relabel: _relabel,
    Unfold: _unfold,
    Fold: _fold_blocks,
    Roll: _roll,
    Rotary: _rotary,
    Fill: _fill,
    Positions: _positions,
    Select: _select,
    Slice: _slice,
    Stack: _stack,
    Pad: _pad,
    Broadcast: _broadcast,
    Constant: _constant,
    OneHot: _one_hot,
    Lookup: _lookup,
    Scatter: _scatter,
    Groups: _groups,
    Route: _route,
    Dispatch: _dispatch,
    Sample: _sample,
    Write: _write_cache,
    Excerpt: _window,
    Insert: _insert,
    Discount: _discount,
}


def expand_node(graph: Graph, node: Node, sizes: Sizes, router: Router = balanced) -> Scalars:
    """The scalar graph of one occurrence whose operands are at hand."""
    scalars = Scalars(sizes, router)
    operands = [scalars.leaves(graph.type(v)) for v in node.operands]
    WRITERS[type(node.op)](scalars, node.op, *operands)
    return scalars


def expand_graph(graph: Graph, sizes: Sizes, router: Router = balanced) -> Scalars:
    """The scalar graph of a whole graph, its loops unrolled."""
    scalars = Scalars(sizes, router)
    _write(scalars, graph, {Value(n): scalars.leaves(t) for n, t in graph.inputs.items()})
    return scalars


def _write(s: Scalars, graph: Graph, known: dict[Value, Entries]) -> dict[Value, Entries]:
    for node in graph.nodes:
        operands = [known[v] for v in node.operands]
        if isinstance(node.op, Repeat):
            results = _repeat(s, node.op, operands)
        else:
            written = WRITERS[type(node.op)](s, node.op, *operands)
            results = written if isinstance(written, list) else [written]
        known.update({Value(node.name, i): r for i, r in enumerate(results)})
    return known


def _repeat(s: Scalars, op: Repeat, operands: list[Entries]) -> list[Entries]:
    names, outputs = list(op.body.inputs), list(op.body.outputs.values())
    carried, count = operands[: op.carried], s.number(op.axis.size)
    values: dict[Value, Entries] = {}
    stacks: list[dict[Index, int]] = [{} for _ in outputs[op.carried :]]
    for i in reversed(range(count)) if op.reverse else range(count):
        known = dict(zip((Value(n) for n in names), carried, strict=False))
        for j in range(op.carried, len(names)):
            stacked = j < op.carried + op.stacked
            known[Value(names[j])] = _entry(operands[j], i) if stacked else operands[j]
        if isinstance(op, Scan):
            s.sizes, s.known = {**s.sizes, op.index.name: i + 1}, {}
        values = _write(s, op.body, known)
        carried = [values[v] for v in outputs[: op.carried]]
        for stack, v in zip(stacks, outputs[op.carried :], strict=True):
            stack.update({(i, *index): scalar for index, scalar in values[v].at.items()})
    last = [values[v] for v in outputs[op.carried :]]
    stacked_results = [
        Entries((op.axis.name, *v.names), (count, *v.shape), at) for v, at in zip(last, stacks, strict=True)
    ]
    return [*carried, *stacked_results]


def _entry(stack: Entries, i: int) -> Entries:
    at = {index[1:]: scalar for index, scalar in stack.at.items() if index[0] == i}
    return Entries(stack.names[1:], stack.shape[1:], at)
