"""Models of `transformers` with random weights, in double precision throughout, and what is counted when they run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM

from graphs.ops.pointwise import EPSILON

logging.getLogger("transformers").setLevel(logging.ERROR)

#: what it does by default that plays no part here: dropout, and rotary positions scaled for long contexts
PLAIN = {
    "residual_dropout": 0.0,
    "embedding_dropout": 0.0,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "bos_token_id": None,
    "eos_token_id": None,
}


class Double(TorchFunctionMode):  # type: ignore[misc]
    """Whatever asks for single precision, as norms, softmaxes and routers do, gets double."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.float:
            return args[0].double()
        named = {name: _double(value) for name, value in (kwargs or {}).items()}
        return func(*(_double(a) for a in args), **named)


def _double(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


@contextmanager
def double_precision() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Double():
            yield
    finally:
        torch.set_default_dtype(before)


def config_of(keys: Mapping[str, Any]) -> Any:
    """The same configuration as theirs; an absent base of rotary positions is the one that their class has."""
    given = {n: v for n, v in keys.items() if n not in ("model_type", "rope_theta")}
    if keys["model_type"] != "gpt2":
        base = keys.get("rope_theta", CONFIG_MAPPING[keys["model_type"]].default_theta)
        given["rope_parameters"] = {"rope_type": "default", "rope_theta": float(base)}
    return AutoConfig.for_model(keys["model_type"], **{**PLAIN, "pad_token_id": None, **given})


def build(keys: Mapping[str, Any], attention: str = "eager", experts: str | None = "eager", device: str = "cpu") -> Any:
    """The model; on the ``meta`` device it has shapes alone.  Its attention and its experts are as asked."""
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(
            config_of(keys),
            attn_implementation=attention,
            experts_implementation=experts,
            dtype=torch.get_default_dtype(),
        )
    for module in model.modules():
        for name in ("variance_epsilon", "eps"):  # the constant under the root is one and the same here
            if hasattr(module, name):
                setattr(module, name, EPSILON)
    return model.eval()


def randomised(model: Any, seed: int = 0) -> Any:
    """Every parameter, biases and gains among them, is drawn; so is the bias that balances experts."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in weights(model).values():
            tensor.copy_(0.5 * torch.randn(tensor.shape, generator=draw))
    return model


def weights(model: Any) -> dict[str, Any]:
    """Parameters by name, each once, and what is adjusted without being trained."""
    kept = {n: b for n, b in model.named_buffers() if n.endswith("e_score_correction_bias")}
    return dict(model.named_parameters()) | kept


def nothing_hidden(model: Any, B: int, queries: int, keys: int) -> Any:
    """A mask for the meta device, where none can be made from tokens; by their kind where layers differ."""
    whole = torch.zeros(B, 1, queries, keys, device="meta")
    kinds = set(getattr(model.config, "layer_types", None) or ())
    return dict.fromkeys(kinds, whole) if len(kinds) > 1 else whole


def layers_of(model: Any) -> Any:
    return model.transformer.h if hasattr(model, "transformer") else model.model.layers


def tokens(keys: Mapping[str, Any], B: int, m: int, seed: int = 1) -> Any:
    return torch.randint(keys["vocab_size"], (B, m), generator=torch.Generator().manual_seed(seed))
