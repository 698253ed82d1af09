"""The forms of a value over the mesh, and the collectives that lead from one form to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphs.axes import Split, Tensor
from graphs.ir import Node, Value
from graphs.ops.collective import Collective
from graphs.transforms.partition.layouts import Splits

#: what an exchange counts when one of several ways is chosen: an all-reduce is a reduce-scatter and an all-gather
WEIGHTS = {"shard": 0, "all_gather": 1, "all_to_all": 1, "reduce_scatter": 1, "all_reduce": 2}


@dataclass(frozen=True)
class Partial:
    """Every rank has its share of a sum (or maximum); ``origins`` are the occurrences that left it so."""

    fn: str
    origins: tuple[Node, ...]


@dataclass(frozen=True)
class Form:
    """One way in which a value lies on the mesh.

    Dimensions that neither cut an axis of ``tensor`` nor occur in ``partial`` hold replicas.  ``stage`` is the pipeline
    stage that has the value (None: all).  ``gathered`` is the phase in which a gather widened the form: a later phase
    gathers again unless such forms are kept.  ``exchanged``: an all-to-all moved the cut; keeping that costs no memory.
    """

    value: Value
    tensor: Tensor
    partial: Mapping[str, Partial]
    stage: str | None = None
    gathered: str | None = None
    exchanged: bool = False

    def after(self, op: Collective, node: Node) -> Form:
        """The form that the collective ``op``, occurring as ``node``, makes of this one."""
        partial = {m: p for m, p in self.partial.items() if m not in op.meshes}
        stage, gathered = self.stage, self.gathered
        if op.action == "send":
            partial, stage = dict(self.partial), node.stage
        if op.action == "all_gather":
            gathered = node.phase
        exchanged = self.exchanged or op.action == "all_to_all"
        return Form(Value(node.name), node.types[0], partial, stage, gathered, exchanged)


@dataclass
class Plan:
    """Steps from a form to a target, found one by one."""

    now: dict[str, tuple[Split, ...]]
    target: dict[str, tuple[Split, ...]]
    pending: dict[str, str]
    steps: list[Collective]

    @property
    def weight(self) -> int:
        return sum(WEIGHTS[op.action] for op in self.steps)

    def advance(self) -> bool:
        """Take the next step: what shrinks the data comes before what widens it."""
        return self._cut() or self._reduce() or self._exchange() or self._gather()

    def _in_use(self) -> set[str]:
        return {s.mesh for splits in self.now.values() for s in splits}

    def _missing(self, axis: str) -> Split | None:
        """The next split that the axis lacks, once nothing superfluous lies on it."""
        now, target = self.now[axis], self.target[axis]
        return target[len(now)] if len(now) < len(target) and target[: len(now)] == now else None

    def _superfluous(self, axis: str) -> Split | None:
        now, target = self.now[axis], self.target[axis]
        return now[-1] if now != target[: len(now)] else None

    def _cut(self) -> bool:
        for axis in self.now:
            split = self._missing(axis)
            if split is not None and split.mesh not in self._in_use():
                action = "reduce_scatter" if split.mesh in self.pending else "shard"
                fn = self.pending.pop(split.mesh, "sum")
                self.steps.append(Collective(action, split.mesh, axis, fn, split.layout))
                self.now[axis] = (*self.now[axis], split)
                return True
        return False

    def _reduce(self) -> bool:
        wanted = {s.mesh for splits in self.target.values() for s in splits}
        for first, fn in self.pending.items():
            if first not in wanted:
                others = [m for m, f in self.pending.items() if f == fn and m not in (first, *wanted)]
                self.steps.append(Collective("all_reduce", first, None, fn, others=tuple(others)))
                for mesh in (first, *others):
                    del self.pending[mesh]
                return True
        return False

    def _exchange(self) -> bool:
        for source in self.now:
            old = self._superfluous(source)
            for axis in self.now:
                new = self._missing(axis)
                if old is not None and new is not None and old.mesh == new.mesh and old.layout == new.layout:
                    self.steps.append(Collective("all_to_all", old.mesh, axis, "sum", new.layout, source))
                    self.now[source] = self.now[source][:-1]
                    self.now[axis] = (*self.now[axis], new)
                    return True
        return False

    def _gather(self) -> bool:
        for axis in self.now:
            split = self._superfluous(axis)
            if split is not None:
                self.steps.append(Collective("all_gather", split.mesh, axis, "sum", split.layout))
                self.now[axis] = self.now[axis][:-1]
                return True
        return False


def plan(form: Form, target: Splits, kept: frozenset[str]) -> Plan:
    """The collectives that bring ``form`` to the splits ``target``, leaving it partial over the ``kept`` dimensions."""
    now = {a.name: a.splits for a in form.tensor.axes}
    pending = {m: p.fn for m, p in form.partial.items() if m not in kept}
    out = Plan(now, {name: target.get(name, ()) for name in now}, pending, [])
    while out.advance():
        pass
    return out


def resplit(tensor: Tensor, target: Splits) -> Tensor:
    return replace(tensor, axes=tuple(replace(a, splits=target.get(a.name, ())) for a in tensor.axes))
