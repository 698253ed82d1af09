"""The questions of the paper's tables, and small ones for each rule, with the answers that are right."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from derive.asymptotics import Answer, Bound, Domain, at_most, equal, leading, order
from derive.asymptotics.checker import Poly, Reader, is_log
from derive.forms import Form, Max, log2, symbol, total

QUESTIONS: dict[str, Callable[..., Answer]] = {"order": order, "leading": leading, "equal": equal, "at_most": at_most}


def value(text: str) -> Max:
    reader = Reader({})
    return Max.of(*(_form(poly, reader) for poly in reader.read(text)))


def _form(poly: Poly, reader: Reader) -> Form:
    """The checker's polynomial as a form: any name is a size here."""

    def atom(gen: str) -> Form:
        if not is_log(gen):
            return symbol(gen)
        return log2(_form(reader.logs[gen], reader) if gen in reader.logs else symbol(gen[4:-1]))

    terms = [math.prod((atom(gen) ** p for gen, p in mono), start=Form.constant(c)) for mono, c in poly.items()]
    return total(terms)


def form(text: str) -> Form:
    (found,) = value(text).members
    return found


def bound(text: str) -> Bound:
    left, _, right = text.partition(" = O(")
    return Bound(form(left), form(right.removesuffix(")")))


def domain(factors: dict[str, str], least: dict[str, int] | None = None) -> Domain:
    return Domain({s: form(t) for s, t in factors.items()}, {"m": 2} if least is None else least, {"d_h": 128})


@dataclass(frozen=True)
class Case:
    """A question and the expected class of answer."""

    name: str
    ask: str
    f: str
    g: str
    domain: Domain
    expected: str
    hypotheses: tuple[str, ...] = ()

    def answer(self) -> Answer:
        arguments: list[Any] = [value(self.f), value(self.g), self.domain]
        if self.ask in ("order", "leading"):
            arguments.append([bound(h) for h in self.hypotheses])
        return QUESTIONS[self.ask](*arguments)


PLAIN = domain({"d": "h*d_h"})
TENSOR = domain({"d": "P_t*h_1*d_h", "h": "P_t*h_1", "V": "P_t*V_1", "d_ff": "P_t*f_1"})
PIPELINE = domain({"d": "h*d_h", "L": "P_p*L_1"}, {"m": 2, "P_p": 2})
EXPERT = domain({"d": "h*d_h", "E": "P_e*E_1"})
FIVE = domain(
    {
        "d": "P_t*h_1*d_h",
        "h": "P_t*h_1",
        "V": "P_t*V_1",
        "d_ff": "P_t*f_1",
        "B": "P_d*B_1",
        "m": "P_c*m_1",
        "L": "P_p*L_1",
        "E": "P_e*E_1",
    }
)
FREE = domain({}, {})

WORK, WORK_O = "6*B*m*L*(4*d**2 + 2*d*d_ff + m*d)", "B*m*L*(d**2 + m*d)"
WORK_V = f"{WORK} + 6*B*m*V*d"
DEPTH = "2*L*(4*log(d) + log(d_ff) + log(m) - log(h)) + log(B*m)"
DEPTH_O = "L*(log(d) + log(m)) + log(B*m)"
TENSOR_DEPTH = "2*L*(4*log(d) + log(d_ff) + log(m) - log(h) - 2*log(P_t)) + log(B) + log(m)"
TENSOR_DEPTH_O = "L*(log(d/P_t) + log(m)) + log(B*m)"
MEMORY = "4*(L*(4*d**2 + 2*d*d_ff + 2*d) + V*d + d) + L*(8*B*m*d + 2*B*m*d_ff + B*h*m**2 + 4*B*m)"
MEMORY_O = "L*d**2 + V*d + B*m*L*d"
EXPERT_WORK = "6*B*m*L*(4*d**2 + d*E + E_a*d + 2*E_a*d*d_e/P_e + m*d)"
EXPERT_WORK_O = "B*m*L*(d**2 + m*d + E_a*d*d_e/P_e)"
EXPERT_DEPTH = (
    "Max(2*L*(4*log(d) + log(E_a) + log(d_e) + log(m) - log(h)), 2*L*(3*log(d) + log(E) + log(m) - log(h))) + log(B*m)"
)
STATES, STATES_REST = "L*(16*d**2 + 8*d*d_ff) + 4*V*d + B*m*L*d", "8*L*d + 4*d"
SPREAD = "6*B/P_d*m/P_c*L/P_p*(4*d**2 + 2*d*d_ff + m*d)/P_t"
FF = "d_ff = O(d)"

CASES = (
    Case("work with unembedding", "order", WORK_V, WORK_O, PLAIN, "Refuted", (FF,)),
    Case("work in the regime of V", "order", WORK_V, WORK_O, PLAIN, "Proved", (FF, "V = O(L*(d + m))")),
    Case("work of the blocks", "order", WORK, WORK_O, PLAIN, "Proved", (FF,)),
    Case("work without d_ff = O(d)", "order", WORK, WORK_O, PLAIN, "Refuted"),
    Case("work from below", "order", WORK_O, WORK, PLAIN, "Proved"),
    Case("tensor depth", "order", TENSOR_DEPTH, TENSOR_DEPTH_O, TENSOR, "Refuted", (FF,)),
    Case(
        *("tensor depth, regime in logs", "order", TENSOR_DEPTH, TENSOR_DEPTH_O, TENSOR, "Proved"),
        (FF, "log(P_t) = O(log(d/P_t) + log(m))"),
    ),
    Case("tensor depth, bounded degree", "order", TENSOR_DEPTH, TENSOR_DEPTH_O, TENSOR, "Proved", (FF, "P_t = O(1)")),
    Case("tensor depth from below", "order", TENSOR_DEPTH_O, TENSOR_DEPTH, TENSOR, "Proved"),
    Case("depth", "order", DEPTH, DEPTH_O, PLAIN, "Proved", (FF,)),
    Case("depth without d_ff = O(d)", "order", DEPTH, DEPTH_O, PLAIN, "Refuted"),
    Case("depth from below", "order", DEPTH_O, DEPTH, PLAIN, "Proved"),
    Case("depth with log V", "order", f"{DEPTH} + log(V)", DEPTH_O, PLAIN, "Refuted", (FF,)),
    Case("depth with log V, V = O(d)", "order", f"{DEPTH} + log(V)", DEPTH_O, PLAIN, "Proved", (FF, "V = O(d)")),
    Case("depth, V = O(L(d+m))", "order", f"{DEPTH} + log(V)", DEPTH_O, PLAIN, "Proved", (FF, "V = O(L*(d + m))")),
    Case("memory", "order", MEMORY, MEMORY_O, PLAIN, "Refuted", (FF,)),
    Case("memory, h m = O(d)", "order", MEMORY, MEMORY_O, PLAIN, "Proved", (FF, "h*m = O(d)")),
    Case("memory, weakest", "order", MEMORY, MEMORY_O, PLAIN, "Proved", (FF, f"B*h*m**2*L = O({MEMORY_O})")),
    Case("memory from below", "order", MEMORY_O, MEMORY, PLAIN, "Proved"),
    Case("expert work", "order", EXPERT_WORK, EXPERT_WORK_O, EXPERT, "Refuted"),
    Case("expert work, one bound", "order", EXPERT_WORK, EXPERT_WORK_O, EXPERT, "Refuted", ("E = O(d)",)),
    Case("expert work, bounds", "order", EXPERT_WORK, EXPERT_WORK_O, EXPERT, "Proved", ("E = O(d)", "E_a = O(1)")),
    Case("expert work from below", "order", EXPERT_WORK_O, EXPERT_WORK, EXPERT, "Proved"),
    Case("expert depth", "order", EXPERT_DEPTH, DEPTH_O, EXPERT, "Refuted"),
    Case(
        *("expert depth, bounds", "order", EXPERT_DEPTH, DEPTH_O, EXPERT, "Proved"),
        ("E = O(d)", "d_e = O(d)", "E_a = O(d)"),
    ),
    Case("expert depth from below", "order", DEPTH_O, EXPERT_DEPTH, EXPERT, "Proved"),
    Case("work on five meshes", "order", SPREAD, f"({WORK_O})/(P_d*P_c*P_p*P_t)", FIVE, "Proved", (FF,)),
    Case("leading depth with log V", "leading", f"{DEPTH} + log(d) + log(V)", DEPTH, PLAIN, "Refuted"),
    Case("leading depth", "leading", f"{DEPTH} + log(d)", DEPTH, PLAIN, "Proved"),
    Case("leading depth, V = O(d)", "leading", f"{DEPTH} + log(d) + log(V)", DEPTH, PLAIN, "Proved", ("V = O(d)",)),
    Case("leading memory", "leading", f"{STATES} + {STATES_REST}", STATES, PLAIN, "Proved"),
    Case("leading memory, wrong constant", "leading", f"{STATES} + B*m*L*d", STATES, PLAIN, "Refuted"),
    Case("leading up to log d", "leading", "L*log(d) + 5*L", "L*log(d) + 1", PLAIN, "Proved"),
    Case("leading, only in a bounded direction", "leading", "d + E_a", "d + 1", FREE, "Proved", ("E_a = O(1)",)),
    Case("leading, vacuous direction", "leading", "2*E_a", "E_a", FREE, "Undecided", ("E_a = O(1)",)),
    Case("equal logs", "equal", "log(d**4*m/h)", "4*log(d) + log(m) - log(h)", PLAIN, "Proved"),
    Case("equal after factors", "equal", "d/h", "d_h", PLAIN, "Proved"),
    Case("not equal", "equal", "24*d**2*m", "24*d**2*m + d", PLAIN, "Refuted"),
    Case("at most by factors", "at_most", "L*d*h", "L*d**2", PLAIN, "Proved"),
    Case("at most by shifting", "at_most", "d + m", "d*m + 1", PLAIN, "Proved"),
    Case("at most by means", "at_most", "2*d*m", "d**2 + m**2", PLAIN, "Proved"),
    Case("not at most", "at_most", "2*d*m", "d**2 + m", PLAIN, "Refuted"),
    Case("at most in logs", "at_most", "log(B*m) + L*log(d/P_t)", "log(B) + 2*log(m) + L*log(d)", TENSOR, "Proved"),
    Case(
        "not at most in logs", "at_most", "log(B*m) + L*log(d) + 2", "log(B) + 2*log(m) + L*log(d)", TENSOR, "Refuted"
    ),
    Case("at most a maximum", "at_most", "(S + T)/2", "Max(S, T)", FREE, "Proved"),
    Case("log of a sum", "order", "T*log(S + T)", "T*log(S) + T*log(T) + 1", FREE, "Proved"),
    Case("log of a sum from below", "order", "T*log(S) + T*log(T)", "T*log(S + T)", FREE, "Proved"),
    Case("log of a sum is not one log", "order", "L*log(S + T)", "L*log(S)", FREE, "Refuted"),
    Case("a log below a power", "order", "T*log(T)", "T**2", FREE, "Proved"),
    Case("a power not below a log", "order", "T**2", "T*log(T)", FREE, "Refuted"),
    Case("means with logs", "order", "L*T*log(d)", "L**2*log(d) + T**2*log(d)", FREE, "Proved"),
    Case("negative terms below", "order", "d**2", "d**2 - d", FREE, "Proved"),
    Case("terms that cancel", "order", "T*S", "T*S - S + T**2/2 - T/2", FREE, "Refuted"),
    Case("loops with a carried path", "order", "4*L*log(d)", "(L - 1)*4*log(d) + 2*log(d)", FREE, "Proved"),
    Case("products of logs", "order", "log(d)*log(m)", "log(d)**2 + log(m)**2", FREE, "Proved"),
    Case("products of logs above", "order", "log(d)*log(m)", "log(d) + log(m)", FREE, "Refuted"),
    Case("exponential sizes", "order", "L*log(V)", "L**2 + log(V) + L", FREE, "Refuted"),
    Case("a maximum of signed logs", "order", "L*log(d)", "Max(L*log(d) - L*log(m), L*log(m))", FREE, "Proved"),
)
