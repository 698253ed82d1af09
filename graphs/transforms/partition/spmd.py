"""The pass over one graph: every occurrence gets operands in the forms it needs, loops are entered recursively."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from graphs.axes import Role, Split, Tensor
from graphs.errors import GraphError
from graphs.ir import UPDATE, Builder, Graph, Node, Op, Value
from graphs.ops.collective import REDUCING, Collective
from graphs.ops.fold import Fold, Unfold
from graphs.ops.pointwise import Pointwise
from graphs.ops.reduction import Reduction
from graphs.ops.relabel import Relabel
from graphs.ops.repeat import Repeat
from graphs.ops.roll import Roll
from graphs.transforms.partition.forms import Form, Partial, plan, resplit
from graphs.transforms.partition.layouts import Layouts, Splits, without
from graphs.transforms.partition.loops import place_loop

Target = dict[str, tuple[Split, ...]]


@dataclass(frozen=True)
class Occurrence:
    """A sequential occurrence to be placed: its operands, and the types of operands and results before partition."""

    node: Node
    operands: tuple[Value, ...]
    given: tuple[Tensor, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every axis of the occurrence."""
        return tuple(dict.fromkeys(n for t in (*self.given, *self.node.types) for n in t.names))


class Spmd:
    """State of the pass: the forms of every sequential value, and the rank's graph as far as it is built."""

    def __init__(self, graph: Graph, layouts: Layouts, pipeline: str | None = None) -> None:
        self.graph, self.layouts, self.pipeline = graph, layouts, pipeline
        self.build = Builder(graph.name)
        self.forms: dict[Value, list[Form]] = {}
        self.stage: str | None = "first" if pipeline else None

    # What is asked for.

    def home(self, tensor: Tensor, place: str) -> Target:
        """Where a value of this type lies between uses; index data, which is free in any layout, lies everywhere."""
        return {} if tensor.role is Role.INDEX else self.layouts.splits(tensor.names, place, tensor.role)

    def settled(self, value: Value) -> Target:
        """The form in which a value was produced if it is complete, else its home."""
        form = self.forms[value][0]
        if form.partial:
            return self.home(self.graph.type(value), value.node)
        return {a.name: a.splits for a in form.tensor.axes}

    def enter(self, name: str, target: Splits, partial: Iterable[str] = ()) -> None:
        tensor = resplit(self.graph.inputs[name], target)
        left = {mesh: Partial("sum", ()) for mesh in sorted(partial)}
        self.forms[Value(name)] = [Form(self.build.input(name, tensor), tensor, left)]

    def output(self, name: str, target: Splits, kept: frozenset[str] = frozenset()) -> Form:
        value = self.graph.outputs[name]
        producer = self.graph.by_name.get(value.node)
        form = self.bring(value, target, kept, producer.phase if producer else "forward", None)
        self.build.output(name, form.value)
        return form

    def deliver(self, name: str, stage: str) -> None:
        """Send an output to a further boundary stage, unless it has it: there it is called ``name@stage``."""
        value = self.graph.outputs[name]
        form = self.bring(value, self.home(self.graph.type(value), name), frozenset(), UPDATE, stage)
        if form.stage is not None and form.value != self.build.outputs[name]:
            self.build.output(f"{name}@{stage}", form.value)

    def run(self) -> None:
        for node in self.graph.nodes:
            given = tuple(self.graph.type(v) for v in node.operands)
            results = self.place(Occurrence(node, node.operands, given))
            self.forms.update({Value(node.name, i): [form] for i, form in enumerate(results)})

    # Forms and the collectives between them.

    def bring(self, value: Value, target: Splits, kept: frozenset[str], phase: str, stage: str | None) -> Form:
        """The value in the form asked for, reached by the cheapest way from the forms that exist."""
        usable = (None, phase, "forward") if self.layouts.keeps_gathered else (None, phase)
        forms = [f for f in self.forms[value] if f.gathered in usable and kept <= set(f.partial)]
        plans = [plan(f, target, kept) for f in forms]
        sends = [stage is not None and f.stage not in (None, stage) for f in forms]
        best = min(range(len(forms)), key=lambda i: plans[i].weight + sends[i])
        form = forms[best]
        for op in plans[best].steps:
            form = self._exchange(value, form, op, phase, form.stage)
        if sends[best] and self.pipeline is not None:
            form = self._exchange(value, form, Collective("send", self.pipeline), phase, stage)
        return form

    def _exchange(self, value: Value, form: Form, op: Collective, phase: str, stage: str | None) -> Form:
        label = self.build.fresh(f"{form.value.node}.{op.action}.{'.'.join(op.meshes)}")
        role = form.tensor.role
        types = tuple(t.with_role(role) for t in op.infer(form.tensor))
        origins = _joined([form.partial[m] for m in op.meshes]).origins if op.action in REDUCING else ()
        if origins:  # completing a sum belongs to the phase that left it partial
            phase = origins[0].phase
        node = Node(label, op, (form.value,), types, phase, stage=stage, origins=origins)
        self.build.append(node)
        after = form.after(op, node)
        self.forms[value].append(after)
        return after

    def refuse(self, sentence: str) -> NoReturn:
        raise GraphError(f"scheme {self.layouts.scheme.name}: {sentence}")

    # Occurrences.

    def place(self, at: Occurrence) -> list[Form]:
        op = at.node.op
        if isinstance(op, Repeat):
            return place_loop(self, at, op)
        if isinstance(op, Relabel):
            return self._relabel(at, op)
        if isinstance(op, Unfold | Fold):
            return self._refold(at, op)
        active = self._active(at)
        if isinstance(op, Roll) and op.axis in active:
            return self._permute(at, op, active)
        if set(op.whole_axes) & set(active):
            return self._expanded(at, active)
        return self._plain(at, op, active)

    def _active(self, at: Occurrence, but: tuple[str, ...] = ()) -> Target:
        """What stays cut among the axes of an occurrence; index data is made whole everywhere."""
        if all(t.role is Role.INDEX for t in at.node.types):
            return {}
        names = tuple(n for n in at.names if n not in but)
        return self.layouts.splits(names, at.node.name, _stored_as(at.node), at.node.region)

    def _refold(self, at: Occurrence, op: Unfold | Fold) -> list[Form]:
        """An axis is cut as its blocks are; a block is not."""
        whole, outer, inner = op.blocks.whole, op.blocks.outer, op.blocks.inner
        active = self._active(at, but=tuple({whole.name, inner.name} - {outer.name}))
        active[whole.name] = active.get(outer.name, ())
        form = self.bring(at.operands[0], active, frozenset(), at.node.phase, self.stage)
        cut = {a.name: replace(a, splits=active.get(a.name, ())) for a in (whole, outer, inner)}
        return self.append(at, op.with_axes(cut), [form], self.stage)

    def _permute(self, at: Occurrence, op: Roll, active: Target) -> list[Form]:
        """Rolling an axis of which every rank has one entry hands the entry on to the next rank."""
        form = self.bring(at.operands[0], active, frozenset(), at.node.phase, self.stage)
        if form.tensor.axis(op.axis).extent != 1 or len(active[op.axis]) != 1:
            self.refuse(f"{at.node.name} rolls axis {op.axis!r}, of which a rank has not one entry; cut it as finely")
        (cut,) = active[op.axis]
        return self.append(at, Collective("permute", cut.mesh, op.axis, step=op.step), [form], self.stage)

    def _relabel(self, at: Occurrence, op: Relabel) -> list[Form]:
        """The same data under another name: every form passes, at no cost."""
        form = self.forms[at.operands[0]][0]
        return [replace(self.append(at, op, [form], form.stage)[0], partial=form.partial)]

    def _plain(self, at: Occurrence, op: Op, active: Target) -> list[Form]:
        kept = self._partial_of_all(at)
        target = without(active, kept)
        stage = self._stage_for(at, active)
        forms = [self.bring(v, target, kept, at.node.phase, stage) for v in at.operands]
        if any(f.stage not in (None, stage) for f in forms):
            self.refuse(f"all stages run {at.node.name}, but only one has what it reads; move it into the loop")
        axes = {a.name: replace(a, splits=target.get(a.name, ())) for t in (*at.given, *at.node.types) for a in t.axes}
        results = self.append(at, op.with_axes(axes), forms, stage)
        node = self.build.nodes[-1]
        passed = {m: _joined([f.partial[m] for f in forms]) for m in sorted(kept)}
        return [replace(f, partial=_left(node, target, f.tensor) | passed) for f in results]

    def _partial_of_all(self, at: Occurrence) -> frozenset[str]:
        """The dimensions over which an addition may stay partial: those over which all that it adds is."""
        if at.node.op != Pointwise("add", getattr(at.node.op, "factor", 1)):
            return frozenset()
        sums = [{m for m, p in self.forms[v][0].partial.items() if p.fn == "sum"} for v in at.operands]
        return frozenset(set.intersection(*sums))

    def _stage_for(self, at: Occurrence, active: Target) -> str | None:
        if any(s.mesh == self.pipeline for splits in active.values() for s in splits):
            return None
        if at.node.phase == UPDATE:  # a parameter is updated where its gradient is
            return next((f.stage for v in at.operands for f in self.forms[v][:1] if f.stage), None)
        return self.stage

    def readers(self, name: str) -> list[str]:
        """The boundary stages whose occurrences read an input."""
        values = {f.value for f in self.forms[Value(name)]}
        return sorted({n.stage for n in self.build.nodes if n.stage and values & set(n.operands)})

    def append(self, at: Occurrence, op: Op, forms: Sequence[Form], stage: str | None) -> list[Form]:
        inferred = op.infer(*(f.tensor for f in forms))
        types = tuple(t.with_role(old.role) for t, old in zip(inferred, at.node.types, strict=True))
        label = self.build.fresh(at.node.name)
        node = Node(label, op, tuple(f.value for f in forms), types, at.node.phase, at.node.region, stage)
        self.build.append(node)
        return [Form(Value(label, i), t, {}, stage) for i, t in enumerate(types)]

    def _expanded(self, at: Occurrence, active: Target) -> list[Form]:
        """A macro over a cut axis becomes its primitives, each placed on its own."""
        macro = Builder(at.node.name, phase=at.node.phase, region=at.node.region)
        inputs = [macro.input(f"operand {i}", t) for i, t in enumerate(at.given)]
        if type(at.node.op).expand is Op.expand:
            cut = ", ".join(f"{a!r}" for a in at.node.op.whole_axes if a in active)
            self.refuse(
                f"{at.node.name} ({at.node.op.kind}) needs axis {cut} whole; leave it unmapped, or map the axis it is "
                "relabelled to"
            )
        results = at.node.op.expand(macro, inputs)
        known = dict(zip(inputs, at.operands, strict=True))
        for node in macro.nodes:
            inner = replace(node, name=f"{at.node.name}:{node.name}")
            given = tuple(macro.type(v) for v in node.operands)
            forms = self.place(Occurrence(inner, tuple(known[v] for v in node.operands), given))
            for i, form in enumerate(forms):
                known[Value(node.name, i)] = form.value
                self.forms[form.value] = [form]
        return [self.forms[known[v]][0] for v in results]


def _stored_as(node: Node) -> Role | None:
    """What is pointwise on gradients or optimizer state happens where these are stored."""
    if node.phase == UPDATE:
        return Role.OPTIMIZER
    gradient = isinstance(node.op, Pointwise) and node.types[0].role is Role.PARAMETER_GRADIENT
    return Role.PARAMETER_GRADIENT if gradient else None


def _left(node: Node, target: Splits, result: Tensor) -> dict[str, Partial]:
    """What an occurrence that reduced a cut axis leaves partial."""
    meshes = [s.mesh for axis, splits in target.items() if axis not in result.names for s in splits]
    if meshes and not hasattr(node.op, "contracted"):
        raise GraphError(f"{node.name}: {node.op.kind} reduces a cut axis silently; give it a contracted method")
    fn = node.op.fn if isinstance(node.op, Reduction) else "sum"
    return {mesh: Partial(fn, (node,)) for mesh in meshes}


def _joined(partials: Sequence[Partial]) -> Partial:
    return Partial("sum", tuple(dict.fromkeys(n for p in partials for n in p.origins)))
