"""Made-up cells for the tables: plausible derived costs, every verdict, notes with formulas and with awkward text."""

from derive.claims import load
from derive.expr import Order, text
from derive.normal import to_form
from derive.textform import parse_text

PER_TOKEN = "2*L_{0}*(4*d_{0}**2 + 2*d_{0}*d_ff_{0} + m*d_{0})"
BLOCKS = {
    "III/C_f/policy": (PER_TOKEN.format("pi") + " + 2*V*d_pi", None),
    "III/C_f/reference": (PER_TOKEN.format("pi") + " + 2*V*d_pi", None),
    "III/C_f/reward": (PER_TOKEN.format("R") + " + 2*d_R/(S + T)", None),
    "III/C_f/value": (PER_TOKEN.format("V") + " + 2*d_V", None),
    "III/C_b": ("4*L_M*(4*d_M**2 + 2*d_M*d_ff_M + m*d_M)", None),
    "III/C_gen/prefill": ("2*L_pi*S*(4*d_pi**2 + 2*d_pi*d_ff_pi + S*d_pi) + 2*V*d_pi", None),
    "III/C_gen/prefill/remainder": ("3*L_pi*S**2*h_pi + 5*L_pi*S*d_pi", "L_pi*(S**2*h_pi + S*d_pi)"),
    "III/C_gen/decode": ("Sum(L_pi*(8*d_pi**2 + 4*S*d_pi + 4*t*d_pi), (t, 1, T - 1))", None),
    "III/C_gen/decode/remainder": ("Sum(6*L_pi*t*h_pi, (t, 1, T - 1))", "Sum(L_pi*(S*h_pi + t*h_pi), (t, 1, T - 1))"),
    "III/C_gen/total": ("2*V*d_pi + Sum(L_pi*(8*d_pi**2 + 4*t*d_pi), (t, 1, T - 1))", None),
    "III/D_f/policy": ("L_pi*log(d_pi**4*m)", "L_pi*(log(d_pi) + log(m)) + log(d_pi)"),
    "III/D_f/reference": ("L_pi*log(d_pi**4*m)", "L_pi*(log(d_pi) + log(m)) + log(d_pi)"),
    "III/D_f/reward": ("L_R*log(d_R**4*m)", "L_R*(log(d_R) + log(m)) + log(d_R)"),
    "III/D_f/value": ("L_V*log(d_V**4*m)", "L_V*(log(d_V) + log(m)) + log(d_V)"),
    "III/D_f_TP": ("L_M*log(d_M**4*m/P_t**2)", "L_M*(log(d_M**2/P_t) + log(m)) + log(d_M)"),
    "III/D_b": ("L_M*log(d_M**4*m)", "L_M*(log(d_M) + log(m)) + log(B*m)"),
}
EXTRA = {"Memory": "8*L*d + 4*d", "Depth": "0", "Work": "0"}
OWN = {
    "VII/Expert/Memory": "L*(16*d**2 + 8*E*d*d_e/P_e + 8*d + 4*d*E) + 4*V*d + 4*d + B*m*L*d",
    "VII/Tensor/Memory": "(L*(16*d**2 + 8*d*d_ff) + 4*V*d + B*m*L*d)/P_t + 8*L*d + 4*d + B*m*L*d",
    "VIII/Tensor/Memory": "L*(16*d**2 + 8*d*d_ff) + 4*V*d + B*m*L*d + P_t*(8*L*d + 4*d)",
    "VII/Expert/Depth": "Max(2*L*log(d**4*d_e*m/h) + log(B*m), 2*L*log(d**4*d_e*m/h) + log(E), L*log(d**6*m**2*E/h))",
}
VERDICTS = {"V": "TIGHT", "VI": "TIGHT", "VII": "EQUAL", "VIII": "EQUAL", "III": "EQUAL"}


def cells(tables=("III", "V", "VI", "VII", "VIII")):
    return [_cell(c) for c in load().claims.values() if c.table in tables]


def _cell(claim):
    derived, order = _derived(claim)
    cell = {
        "id": claim.id, "table": claim.table, "row": claim.row, "column": claim.column, "kind": claim.kind,
        "printed": claim.latex, "printed_expr": text(claim.expr), "derived": derived, "derived_order": order,
        "verdict": VERDICTS[claim.table], "assumptions": [], "implied": [], "regime": None, "slack": None, "detail": "",
    }  # fmt: skip
    return cell | _verdict(claim)


def _derived(claim):
    if claim.id in BLOCKS:
        return BLOCKS[claim.id]
    body = claim.expr.arg if isinstance(claim.expr, Order) else claim.expr
    if claim.kind == "order":
        return text(body), text(body)
    written = OWN.get(claim.id, f"{text(body)} + {EXTRA[claim.column]}")
    return to_form(parse_text(written)).text, None


def _verdict(claim):
    if claim.id in ("V/Pipeline/Depth", "VI/Pipeline/Depth"):
        why = "The chain passes through all stages, so `L/P_p` is not the depth (from blocks/softmax)"
        detail = f"{why}; 100% of {{layers}} & $stages$ count."
        return {"verdict": "REFUTED", "detail": detail}
    if claim.table in ("V", "VI") and claim.column == "Memory":
        regime = "h*m = O(d)" if claim.row != "Expert" else "B*h*m**2*L = O(L*d**2 + V*d + B*m*L*d)"
        return {
            "verdict": "CONDITIONAL",
            "regime": regime,
            "detail": "The saved scores `B*h*m**2*L` exceed every term.",
        }
    if claim.table in ("VII", "VIII"):
        kind = {"Memory": "LEADING", "Depth": "UPPER" if claim.row == "Tensor" else "EQUAL"}.get(claim.column, "EQUAL")
        return {"verdict": kind, "implied": ["blocks-only"] if claim.column != "Depth" else []}
    return {}
