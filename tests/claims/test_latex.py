"""The LaTeX grammar: what it reads, and the one sentence that it says about what it refuses."""

import pytest

from derive.expr import Log, free_symbols, text, walk
from derive.latex import parse, parse_definition
from derive.normal import to_form
from derive.parsing import ParseError

READS = [
    (r"6\tfrac{B}{P_{d}}mL\left(4d^{2}+2dd_{\text{ff}}+md\right)", "6*(B/P_d)*m*L*(4*d**2 + 2*d*d_ff + m*d)"),
    (r"2L\log\!\left({d^{4}d_{\text{ff}}m}/{h}\right)+\log(Bm)", "2*L*log(d**4*d_ff*m/h) + log(B*m)"),
    (r"L\!\left[\log\tfrac{d}{P_{t}}+\log m\right]", "L*(log(d/P_t) + log(m))"),
    (r"2\cdot C_{f}^{\text{tok}}(M)", "2*C_f_tok(M)"),
    (r"D_{f}(M)+O(\log(B (S+T)))", "D_f(M) + O(log(B*(S + T)))"),
    (r"D_{f}^{\mathrm{TP}}\!(M)", "D_f_TP(M)"),
    (r"K(S+T)", "K*(S + T)"),
    (r"d_{\pi\mathrm{ff}}+d_{\text{ff}}+d_{ff}", "d_ff_pi + d_ff + d_ff"),
    (r"L_{\psi}d_{\psi}", "L_V*d_V"),
    (r"L_{\text{SH}}d_{\text{SH}}", "L_SH*d_SH"),
    (r"\log{d}+\log_2 m+\log_{2}(Bm)", "log(d) + log(m) + log(B*m)"),
    (r"\log d\log m", "log(d)*log(m)"),
    (r"\log d^{2}", "log(d**2)"),
    (r"P_{t}^{2}h", "P_t**2*h"),
    (r"-d-\tfrac{h}{2}", "-d - h/2"),
    (r"d/h\cdot m", "d/h*m"),
    (r"\|\pi_{\theta}\|+|V_{\psi}|", "params(pi) + params(V)"),
    (r"BK\!\cdot\!M_{\text{KV}}", "B*K*M_KV"),
    (r"\max\{M_{\mathrm{Inf}}(\pi_{\mathrm{ref}}),M_{\mathrm{Inf}}(R_{\varphi})\}", "Max(M_Inf(ref), M_Inf(R))"),
    (r"C_{\text{gen}}^{\text{roll}}(\pi_{\theta})", "C_gen_roll(pi)"),
    (r"\sum_{t=1}^{T-1}\!\Bigl[2L(S+t)d\!\Bigr]+O(d)", "Sum(2*L*(S + t)*d, (t, 1, T - 1)) + O(d)"),
    (r"2\sum_{t=1}^{T}t", "2*Sum(t, (t, 1, T))"),
    (r"\bigl(d+\Bigl[h\Bigr]\bigr)\{m\}".replace(r"\{", "{").replace(r"\}", "}"), "(d + h)*m"),
]  # fmt: skip

REFUSES = [
    ("", "empty"),
    ("(d+h", r"ends too early: expected `\)`"),
    ("d+h)", r"`\)` closes no bracket at position 4"),
    (r"6\left(d+h", "ends too early"),
    (r"\left(d+h)", r"`\\left` and `\\right`"),
    (r"\left(d\right]", r"unexpected `\\right\]` at position 8"),
    (r"d+", "ends too early"),
    (r"d++h", r"unexpected `\+` at position 3"),
    (r"\tfrac{d}", "ends too early"),
    (r"\foo d", r"command `\\foo` at position 1"),
    ("Q", "unknown symbol Q at position 1"),
    ("d_{xyz}", "unknown symbol d_xyz"),
    ("d^23", "several digits"),
    ("d^{999}", "above the limit"),
    ("d^{99999999999}", "small integer"),
    ("d 2", "number follows a factor"),
    (r"2\tfrac{1}{2}", "may mean a sum or a product"),
    (r"\log d m", "may or may not belong to the log"),
    (r"\log d\cdot m", "may or may not belong to the log"),
    (r"\log d/h", "may or may not belong to the log"),
    (r"\log(d)^2", r"unexpected `\^` at position 8"),
    (r"\log_{10} d", "base 2"),
    (r"d/hm", "unexpected `m` at position 4"),
    (r"C_{f}^{\text{tok}}", "needs a model"),
    (r"M_{\text{KV}}(M)", "stands by itself"),
    (r"C_{f}^{\text{tok}}(d)", "`d` at position 20 .* is not a model"),
    ("(" * 50 + "d" + ")" * 50, "nested deeper than 40 at position 41"),
    ("d+" * 10_000 + "d", "at most 20000"),
    (r"\sum_{t=1}^{T}" * 30 + "t", "more than 20 sums"),
    ("1" * 50, "more than 40 digits"),
    ("d=h", "unexpected `=` at position 2"),
    ("d!", "unexpected `!` at position 2"),
]


@pytest.mark.parametrize(("latex", "expected"), READS)
def test_reads(latex, expected):
    expr = parse(latex)
    assert text(expr) == expected
    assert not any(type(x) is not Log and isinstance(x, Log) for x in walk(expr))


@pytest.mark.parametrize(("latex", "message"), REFUSES)
def test_refuses_in_one_sentence(latex, message):
    with pytest.raises(ParseError, match=message) as caught:
        parse(latex)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_definition():
    name, value = parse_definition("m:=S+T")
    assert (name, text(value)) == ("m", "S + T")


def test_bound_index_is_not_free():
    assert free_symbols(parse(r"\sum_{t=1}^{T}(S+t)")) == {"S", "T"}
    assert free_symbols(parse(r"\sum_{t=1}^{T}S+t")) == {"S", "T", "t"}


def test_no_bracket_is_dropped():
    """Every closing bracket taken out of a printed formula is an error, never another reading."""
    printed = r"6\tfrac{B}{P_{d}}mL\left(4d^{2}+2d(d_{\text{ff}}+m)\right)"
    value = to_form(parse(printed))
    for i, character in enumerate(printed):
        if character in "(){}":
            broken = printed[:i] + printed[i + 1 :]
            try:
                assert to_form(parse(broken)) == value
            except ParseError:
                continue
