"""The optimizer step: a training graph also updates its parameters with Adam.

The update is pointwise, so a scheme may run it where the optimizer state is stored.
"""

from __future__ import annotations

import sympy

from graphs.axes import Role, Tensor
from graphs.ir import UPDATE, Builder, Graph, Value
from graphs.ops.pointwise import ONE, Pointwise

DECAY_1, DECAY_2 = sympy.Rational(9, 10), sympy.Rational(999, 1000)
GRADIENT, UPDATED, FIRST, SECOND = "grad:", "new:", "first:", "second:"


def with_optimizer(graph: Graph) -> Graph:
    """The step that a training graph with outputs ``grad:<parameter>`` takes.

    Further inputs: the moments ``first:<parameter>`` and ``second:<parameter>``, and a scalar ``rate`` into which the
    bias correction is folded (Kingma and Ba 2015, end of section 2).  Outputs are the graph's other outputs,
    ``new:<parameter>`` and the new moments.
    """
    build = Builder(f"{graph.name}/step", phase=UPDATE)
    for name, tensor in graph.inputs.items():
        build.input(name, tensor)
    rate = build.input("rate", Tensor((), Role.INPUT))
    for node in graph.nodes:
        build.append(node)
    for name, value in graph.outputs.items():
        parameter = name.removeprefix(GRADIENT)
        if parameter == name:
            build.output(name, value)
        else:
            _adam(build, parameter, value, rate)
    return build.graph()


def _adam(build: Builder, name: str, gradient: Value, rate: Value) -> None:
    state = build.type(Value(name)).with_role(Role.OPTIMIZER)
    first, second = build.input(f"{FIRST}{name}", state), build.input(f"{SECOND}{name}", state)

    def apply(fn: str, *values: Value, factor: sympy.Expr = ONE, role: Role = Role.OPTIMIZER) -> Value:
        return build.add(Pointwise(fn, factor), *values, role=role, name=f"{name}.{fn}")[0]

    def average(old: Value, new: Value, decay: sympy.Rational) -> Value:
        return apply("add", apply("scale", old, factor=decay), apply("scale", new, factor=1 - decay))

    first = average(first, gradient, DECAY_1)
    second = average(second, apply("square", gradient), DECAY_2)
    step = apply("multiply", apply("multiply", first, apply("rsqrt", second)), rate)
    build.output(f"{UPDATED}{name}", apply("subtract", Value(name), step, role=Role.PARAMETER))
    build.output(f"{FIRST}{name}", first)
    build.output(f"{SECOND}{name}", second)
