"""What configurations say: keys that are refused, absent or ignored, and which layers they make."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from derive.cli import main
from derive.config import load
from graphs.architectures import Config, architectures, model_of
from graphs.blocks.experts import Experts
from graphs.blocks.gated import Gated
from graphs.blocks.grouped import Grouped
from graphs.blocks.latent import Latent
from graphs.errors import GraphError
from graphs.models.transformer import Transformer
from graphs.sizes import Shape

KNOWN = {a.name: a for a in architectures()}


def tiny(name: str, **changes: object) -> Transformer:
    return model_of(Config({**KNOWN[name].tiny, **changes}, name))


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "an unknown type": ({"model_type": "mamba"}, "model_type 'mamba' is unknown; known are deepseek_v3, gpt2, "),
    "no type": ({"model_type": None}, "the key 'model_type' is missing; add it to the configuration"),
    "a missing key": ({"hidden_size": None}, "the key 'hidden_size' is missing; add it to the configuration"),
    "a text for a number": ({"vocab_size": "7"}, "vocab_size is '7'; give it a positive integer"),
    "a truth for a number": ({"vocab_size": True}, "vocab_size is True; give it a positive integer"),
    "heads that do not divide": ({"num_attention_heads": 3}, "num_key_value_heads 2 does not divide num_attention_h"),
    "a width that is no multiple": ({"hidden_size": 9}, "num_attention_heads 4 does not divide hidden_size 9; change"),
    "another activation": ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; only 'silu' is supported"),
    "too many layers": ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000; a model has at most 10000 lay"),
    "an infinite number": ({"rope_theta": float("inf")}, "rope_theta is inf; give it a positive number"),
    "no list": ({"model_type": "qwen3", "layer_types": 3}, "layer_types is 3; give it a list"),
    "an odd list": ({"model_type": "qwen3", "layer_types": [[], {}]}, "layer_types has [], of which nothing is known"),
    "a short list": (
        {"model_type": "qwen3", "layer_types": []},
        "layer_types names 0 layers, num_hidden_layers is 2; ",
    ),
    "more active experts than there are": (
        {"model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 3},
        "num_experts_per_tok 3 is more than num_local_experts 2; change one",
    ),
    "a number for a truth": ({"mlp_bias": 1}, "mlp_bias is 1; give it true or false"),
    "a truth for the number one": (
        {**KNOWN["deepseek"].tiny, "moe_layer_freq": True}, "moe_layer_freq is True; only 1 is supported",
    ),
    "a size beyond all": ({"vocab_size": 10**400}, "vocab_size is 1000000000"),
    "a number beyond all": ({"rope_theta": 10**400}, "rope_theta is 1000000000"),
    "an odd width of a head": ({"head_dim": 5}, "head_dim is 5; rotary positions turn channels in pairs, make it even"),
    "an odd share of the channels": (
        {"hidden_size": 12}, "hidden_size 12 over num_attention_heads 4 is 3 channels of a head, which form no pairs",
    ),
    "an odd part with positions": (
        {**KNOWN["deepseek"].tiny, "qk_rope_head_dim": 3}, "qk_rope_head_dim is 3; rotary positions turn channels in",
    ),
    "angles that are no object": ({"rope_parameters": [1]}, "rope_parameters is [1]; give it an object"),
    "windows that are switched off": (
        {"model_type": "qwen3", "layer_types": ["sliding_attention"] * 2, "sliding_window": 3},
        "layer_types has 'sliding_attention' and use_sliding_window is not true; change one",
    ),
    **{
        f"{layer!r} for a dense layer": (
            {**KNOWN["qwen-moe"].tiny, "intermediate_size": 5, "mlp_only_layers": [0, layer]},
            f"mlp_only_layers has {layer!r}; give numbers of layers, 0 to 1",
        )
        for layer in (2, -1, True, 0.0, "0", None, [0])
    },
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_configuration_that_cannot_be_read_is_one_sentence_that_names_the_place(name: str, tmp_path: Path) -> None:
    changes, sentence = REFUSED[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**KNOWN["llama"].tiny, **changes}), encoding="utf-8")
    result = CliRunner().invoke(main, ["evaluate", "--config", str(path)])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"derive: {path}: {sentence}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"[1]", "a configuration is one JSON object"),
        (b"{", "not valid JSON"),
        (b"", "not valid JSON"),
        (b"{}\xff", "not UTF-8 text"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "Exceeds the limit"),
        (b'{"a": {"b": 1, "b": 1}}', "the key 'b' is there twice"),
    ],
)
def test_a_file_that_is_no_object_is_refused(text: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(text)
    with pytest.raises(GraphError, match=sentence):
        load(str(path))


def test_a_folder_of_the_name_of_a_public_configuration_does_not_hide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.joinpath("gpt2").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load("gpt2").model_type == "gpt2"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=3,
)
OPTIONAL = ("layer_types", "mlp_only_layers", "rope_theta", "head_dim", "num_nextn_predict_layers", "attention_bias")


def refusal(name: str, keys: dict[str, object]) -> str | None:
    """The sentence with which a configuration is refused, if it is."""
    try:
        return None if model_of(Config(keys, name)).layers else "no layers"
    except GraphError as error:
        return str(error)


@settings(max_examples=300)
@given(name=st.sampled_from(list(KNOWN)), data=st.data(), value=ANYTHING)
def test_whatever_a_configuration_says_it_is_read_or_refused_in_one_sentence(
    name: str, data: st.DataObject, value: object
) -> None:
    key = data.draw(st.sampled_from([*KNOWN[name].tiny, *OPTIONAL]))
    said = refusal(name, {**KNOWN[name].tiny, key: value})
    assert said is None or said.startswith(f"{name}: ")


@pytest.mark.parametrize("name", KNOWN)
def test_a_key_that_is_needed_is_named_when_it_is_missing(name: str) -> None:
    said = {key: refusal(name, {k: v for k, v in KNOWN[name].tiny.items() if k != key}) for key in KNOWN[name].tiny}
    assert all(key in sentence for key, sentence in said.items() if sentence is not None)
    assert said["model_type"]
    assert said["vocab_size"]


# -- keys that are absent ---------------------------------------------------------------------------------------------
#: what the class of Transformers puts in for a key that is not in the file is the size of one model
NEEDED = {
    "deepseek": ("first_k_dense_replace", "n_shared_experts", "q_lora_rank"),
    "gpt-oss": ("num_key_value_heads", "head_dim", "sliding_window"),
    "mistral": ("num_key_value_heads", "sliding_window"),
    "mixtral": ("num_key_value_heads",),
    "qwen": ("num_key_value_heads",),
    "qwen-moe": ("num_key_value_heads",),
    "starcoder2": ("num_key_value_heads",),
}


@pytest.mark.parametrize(("name", "key"), [(name, key) for name, keys in NEEDED.items() for key in keys])
def test_a_key_for_which_another_model_would_stand_is_refused_by_name(name: str, key: str) -> None:
    keys = {k: v for k, v in KNOWN[name].tiny.items() if k != key}
    assert refusal(name, keys) == f"{name}: the key {key!r} is missing; add it to the configuration"


def test_other_absent_keys_are_what_the_classes_of_transformers_make_of_them() -> None:
    """Derived from other sizes, or the part is not there; null is as many heads of keys and values as of queries."""

    def shape(name: str, *absent: str, **changes: object) -> Shape:
        keys = {k: v for k, v in {**KNOWN[name].tiny, **changes}.items() if k not in absent}
        return model_of(Config(keys, name)).shape

    assert shape("llama", "num_key_value_heads").h_kv == 4
    for name in ("llama", "mistral", "mixtral", "gpt-oss", "qwen", "qwen-moe"):
        assert shape(name, num_key_value_heads=None).h_kv == 4
    for name in ("llama", "mistral", "mixtral", "qwen-moe"):
        assert shape(name, "head_dim").d_h == 8 // 4
    assert shape("gpt-oss", head_dim=None).d_h == 8 // 4
    assert shape("qwen", "head_dim").d_h == 128
    assert shape("gpt2", "n_inner").d_ff == 4 * 6
    assert [tiny(n, tie_word_embeddings=None).tied for n in KNOWN] == [n in ("gpt2", "starcoder2") for n in KNOWN]
    no_window = tiny("mistral", sliding_window=None).layers + tiny("mixtral").layers
    assert all(isinstance(x.attention, Grouped) and x.attention.window is None for x in no_window)
    attentions = [layer.attention for layer in tiny("deepseek", q_lora_rank=None).layers]
    queries = [isinstance(x, Latent) and x.q_latent for x in attentions]
    assert queries == [False] * 3


@pytest.mark.parametrize(
    ("name", "base"), [("llama", 1e4), ("mistral", 1e4), ("mixtral", 1e6), ("qwen", 1e4), ("gpt-oss", 1.5e5)]
)
def test_the_base_of_rotary_positions_is_read_where_newer_files_have_it(name: str, base: float) -> None:
    def found(**changes: object) -> object:
        attention = tiny(name, **changes).layers[0].attention
        return attention.base if isinstance(attention, Grouped) else None

    assert found() == found(rope_parameters={"rope_type": "default"}) == base
    assert found(rope_theta=5e5) == found(rope_theta=7, rope_parameters={"rope_theta": 5e5}) == 5e5


def test_the_layers_without_experts_are_those_that_are_named_and_those_between_every_so_many() -> None:
    """Of layers 0, 1, 2, ... every n-th has experts, the first of them being n - 1; those named have none."""

    def kinds(**changes: object) -> list[type]:
        return [type(layer.ffn) for layer in tiny("qwen-moe", intermediate_size=5, **changes).layers]

    assert kinds() == [Experts, Experts]
    assert kinds(decoder_sparse_step=2) == [Gated, Experts]
    assert kinds(mlp_only_layers=[0]) == [Gated, Experts]
    assert kinds(mlp_only_layers=[1]) == [Experts, Gated]
    assert kinds(decoder_sparse_step=3, num_hidden_layers=6) == [Gated, Gated, Experts] * 2
    assert kinds(decoder_sparse_step=2, mlp_only_layers=[1], num_hidden_layers=4) == [Gated, Gated, Gated, Experts]
