"""Dense feed-forward layers: gated with SiLU (SwiGLU, Shazeer 2020), or plain with GELU."""

from __future__ import annotations

from dataclasses import dataclass

from graphs.blocks.scope import Scope
from graphs.ir import Value


@dataclass(frozen=True)
class Gated:
    """Three matrices: down(silu(gate) * up)."""

    bias: bool = False

    def build(self, at: Scope, x: Value) -> Value:
        """x[b,s,c] -> [b,s,c]."""
        gate = at.project(x, "W_gate", "c", "f", "ffn_gate", self.bias)
        up = at.project(x, "W_up", "c", "f", "ffn_up", self.bias)
        a = at.apply("multiply", at.apply("silu", gate, name="silu"), up, name="gated")
        return at.project(a, "W_down", "f", "c", "ffn_down", self.bias)


@dataclass(frozen=True)
class Plain:
    """Two matrices: down(gelu(up))."""

    bias: bool = False

    def build(self, at: Scope, x: Value) -> Value:
        """x[b,s,c] -> [b,s,c]."""
        u = at.project(x, "W_1", "c", "f", "ffn_up", self.bias)
        return at.project(at.apply("gelu", u, name="gelu"), "W_2", "f", "c", "ffn_down", self.bias)
