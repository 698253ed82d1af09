"""A graph as text: a list of its operations, or Graphviz DOT."""

from __future__ import annotations

from collections.abc import Iterator

from graphs.axes import Role, Tensor
from graphs.ir import Graph, Node
from graphs.ops.collective import Collective
from graphs.ops.contraction import Contraction
from graphs.ops.repeat import Repeat

#: kind of operation -> (shape, fill)
LOOKS = {
    "contraction": ("box", "#cfe3f7"),
    "collective": ("cds", "#f9d9c4"),
    "softmax": ("box", "#e6dcf2"),
    "norm": ("box", "#e6dcf2"),
    "cross_entropy": ("box", "#e6dcf2"),
    "repeat": ("box3d", "#ffffff"),
    "scan": ("box3d", "#ffffff"),
}
OTHER = ("box", "#f2f2f2")
INK = "#333333"


def shape(tensor: Tensor) -> str:
    """``[b, s, c/P_t]``: the axes, with the mesh dimensions that split them."""
    return "[" + ", ".join(a.name + "".join(f"/{s.mesh}" for s in a.splits) for a in tensor.axes) + "]"


def listing(graph: Graph, indent: str = "") -> str:
    """One line an occurrence: its name, kind, result and operands; loop bodies are indented."""
    return "".join(line + "\n" for line in _lines(graph, indent))


def _lines(graph: Graph, indent: str) -> Iterator[str]:
    for name, tensor in graph.inputs.items():
        yield f"{indent}{name:<24} {tensor.role.value:<14} {shape(tensor)}"
    for node in graph.nodes:
        operands = ", ".join(v.node if v.index == 0 else f"{v.node}[{v.index}]" for v in node.operands)
        yield f"{indent}{node.name:<24} {_kind(node):<14} {shape(node.types[0])}  <- {operands}"
        if isinstance(node.op, Repeat):
            yield from _lines(node.op.body, indent + "    ")


def _kind(node: Node) -> str:
    if isinstance(node.op, Collective):
        return node.op.action
    if isinstance(node.op, Repeat):
        return f"{node.op.kind} x{node.op.axis.extent}"
    return str(getattr(node.op, "fn", node.op.kind))


def to_dot(graph: Graph) -> str:
    """Graphviz source; data flows from top to bottom, parameters are small ovals beside their operation."""
    lines = [
        f"digraph {_quote(graph.name)} {{",
        '  graph [rankdir=TB, fontname="Helvetica", nodesep=0.25, ranksep=0.35];',
        f'  node [fontname="Helvetica", fontsize=11, style="filled,rounded", color="{INK}", fontcolor="{INK}"];',
        f'  edge [fontname="Helvetica", fontsize=9, color="{INK}", arrowsize=0.6];',
    ]
    lines += _body(graph, "")
    return "\n".join([*lines, "}"]) + "\n"


def _body(graph: Graph, prefix: str) -> list[str]:
    lines = []
    for name, tensor in graph.inputs.items():
        look = (
            'shape=ellipse, fillcolor="#fff6d6", fontsize=9'
            if tensor.role is Role.PARAMETER
            else "shape=plaintext, fillcolor=white"
        )
        lines.append(f"  {_quote(prefix + name)} [label={_quote(f'{name} {shape(tensor)}')}, {look}];")
    for node in graph.nodes:
        outline, fill = LOOKS.get(node.op.kind, OTHER)
        title = _title(node)
        label = _quote(node.name if title == node.name else f"{node.name}\\n{title}")
        lines.append(f'  {_quote(prefix + node.name)} [label={label}, shape={outline}, fillcolor="{fill}"];')
        if isinstance(node.op, Repeat):
            inner = f"{prefix}{node.name}/"
            lines += [
                f"  subgraph {_quote('cluster ' + inner)} {{",
                f"  label={_quote(f'{node.name}, {node.op.axis.extent} times')};",
            ]
            lines += [*_body(node.op.body, inner), "  }"]
        for value in node.operands:
            carried = shape(graph.type(value)) if graph.type(value).role is not Role.PARAMETER else ""
            lines.append(f"  {_quote(prefix + value.node)} -> {_quote(prefix + node.name)} [label={_quote(carried)}];")
    return lines


def _title(node: Node) -> str:
    if isinstance(node.op, Contraction):
        return "-> " + shape(node.types[0])
    return _kind(node)


def _quote(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'
