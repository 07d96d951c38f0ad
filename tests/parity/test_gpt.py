"""The same weights in transformers' GPT-2 and GPT give the same outputs: whole, step by step with caches, in both directions."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from huggingface_networks import from_huggingface, read_huggingface, write_huggingface
from qkv.base.errors import CheckpointError, ConfigError
from qkv.base.rows import padded_rows
from qkv.decoding.config import DecodingConfig
from qkv.decoding.search import decode
from qkv.folder.networks import SavedNetwork
from qkv.inference.engines import pad
from qkv.models.gpt import CausalLM, Gpt, GptConfig
from qkv.parts.decoding_weights import PreparedModel
from qkv.parts.heads import ModelWithHeads

transformers = pytest.importorskip("transformers")

VOCAB = 41
CLOSE = {"rtol": 0, "atol": 1e-5}
KINDS = {"gpt2": "GPT2", "openai-gpt": "OpenAIGPT"}
both = pytest.mark.parametrize("kind", KINDS)
three_seeds = pytest.mark.parametrize("seed", range(3))


@torch.no_grad()
def randomised(model: Any) -> Any:
    """Randomise all weights; a bias of 0, for example, would hide mistakes."""
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, 1.0 if parameter.dim() == 1 and ("ln" in name or "norm" in name) else 0.0, 0.2)
    return model.eval()


def theirs(kind: str, seed: int, end: str = "LMHeadModel", **options: Any) -> Any:
    """Return a transformers model of a random shape."""
    rng = random.Random(f"{kind} {seed}")
    heads = rng.choice([1, 2, 4])
    shape = {
        "vocab_size": VOCAB,
        "n_embd": heads * rng.choice([4, 8, 12]),
        "n_layer": rng.choice([1, 2, 4]),
        "n_head": heads,
        "n_positions": rng.randint(20, 40),
        "layer_norm_epsilon": rng.choice([1e-5, 1e-3]),
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    if kind == "gpt2":
        shape |= {"n_inner": rng.choice([None, 30]), "activation_function": rng.choice(["gelu_new", "gelu", "relu"])}
    else:
        shape["afn"] = rng.choice(["gelu", "relu"])
    torch.manual_seed(seed)
    config = getattr(transformers, f"{KINDS[kind]}Config")(**{**shape, **options})
    return randomised(getattr(transformers, KINDS[kind] + end)(config))


def read(model: Any) -> Gpt:
    config = {**model.config.to_dict(), "architectures": [type(model).__name__]}
    gpt = from_huggingface(config, model.state_dict()).model().encoder
    assert isinstance(gpt, Gpt)
    return gpt


def random_ids(rows: int, width: int, seed: int) -> Tensor:
    return torch.randint(0, VOCAB, (rows, width), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def scores_of(gpt: Gpt, ids: Tensor) -> Tensor:
    return gpt.logits(gpt(padded_rows(ids, torch.ones_like(ids).bool())))


@both
@three_seeds
@torch.no_grad()
def test_scores_of_every_place(kind: str, seed: int) -> None:
    model, ids = theirs(kind, seed), random_ids(3, 15, seed)
    torch.testing.assert_close(scores_of(read(model), ids), model(ids).logits, **CLOSE)


@both
@torch.no_grad()
def test_every_layer(kind: str) -> None:
    model, ids = theirs(kind, 5, end="Model"), random_ids(2, 9, 1)
    wanted = model(ids, output_hidden_states=True).hidden_states
    found = list(read(model).each_layer(padded_rows(ids, torch.ones_like(ids).bool())))
    assert len(found) == len(wanted) == model.config.n_layer + 1
    for mine, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, other, **CLOSE)


@three_seeds
@torch.no_grad()
def test_steps_with_a_cache_of_each(seed: int) -> None:
    model, ids = theirs("gpt2", seed + 10), random_ids(3, 14, seed)
    made = model(ids[:, :6], use_cache=True)
    writer = CausalLM(read(model))
    state = PreparedModel(writer).start(ids[:, :6], torch.ones(3, 6).bool(), max_length=8)
    for position in range(6, 14):
        made = model(ids[:, position : position + 1], past_key_values=made.past_key_values, use_cache=True)
        torch.testing.assert_close(writer.step(ids[:, position], state), made.logits[:, 0], **CLOSE)


@both
@torch.no_grad()
def test_a_folder_of_ours_loaded_by_transformers(kind: str, tmp_path: Path) -> None:
    norm: Any = "pre" if kind == "gpt2" else "post"
    c = GptConfig(width=24, feedforward=96, heads=2, layers=2, max_positions=20, norm=norm, dropout=0.0, epsilon=1e-3)
    checkpoint = SavedNetwork(c, randomised(ModelWithHeads(Gpt(c, VOCAB), ())).weights())
    write_huggingface(checkpoint, tmp_path / "hf")
    model, about = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not about["missing_keys"] and not about["unexpected_keys"] and not about["mismatched_keys"]
    assert type(model).__name__ == f"{KINDS[kind]}LMHeadModel"
    gpt: Any = checkpoint.model().encoder
    ids = random_ids(2, 11, 3)
    torch.testing.assert_close(scores_of(gpt, ids), model.eval()(ids).logits, **CLOSE)
    back = read_huggingface(tmp_path / "hf")
    assert back.config == c
    assert all(torch.equal(weight, checkpoint.weights["encoder"][name]) for name, weight in back.weights["encoder"].items())


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"scale_attn_by_inverse_layer_idx": True},
        "scale_attn_by_inverse_layer_idx=True in config.json is not supported by qkv's gpt",
    ),
    ({"tie_word_embeddings": False}, "tie_word_embeddings=False"),
    ({"activation_function": "silu"}, "activation_function='silu' in config.json is an activation that qkv does not have"),
    (
        {"architectures": ["GPT2DoubleHeadsModel"]},
        "architecture GPT2DoubleHeadsModel in config.json is not one of GPT2LMHeadModel",
    ),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=lambda value: "" if isinstance(value, str) else next(iter(value)))
def test_what_ours_has_not_is_refused(options: dict[str, Any], message: str) -> None:
    model = theirs("gpt2", 1)
    with pytest.raises(ConfigError, match=message):
        from_huggingface({**model.config.to_dict(), **options}, model.state_dict())


def test_weights_that_do_not_suit_are_refused() -> None:
    model = theirs("gpt2", 1)
    config, weights = model.config.to_dict(), model.state_dict()
    less = {name: weight for name, weight in weights.items() if "ln_f" not in name}
    with pytest.raises(CheckpointError, match=r"the weights lack encoder\.norm\.weight \(qkv's name for it\)"):
        from_huggingface(config, less)
    with pytest.raises(CheckpointError, match=r"lm_head\.weight is not the word embedding"):
        from_huggingface(config, {**weights, "lm_head.weight": weights["lm_head.weight"] + 1})
    with pytest.raises(CheckpointError, match=r"h\.0\.other and 0 more weights have no counterpart in qkv's gpt"):
        from_huggingface(config, {**weights, "transformer.h.0.other": weights["lm_head.weight"]})


def test_what_theirs_has_not_is_refused() -> None:
    narrow = GptConfig(width=24, feedforward=30, heads=2, layers=1, max_positions=20, norm="post")
    exact = narrow.model_copy(update={"feedforward": 96, "activation": "gelu"})
    for c, message in (
        (narrow, "has no model.feedforward=30, only 4 times the width, 96"),
        (exact, "has no model.activation=gelu, only gelu-tanh, relu"),
    ):
        with pytest.raises(ConfigError, match=message):
            write_huggingface(SavedNetwork(c, ModelWithHeads(Gpt(c, VOCAB), ()).weights()), Path("never"))


SPECIAL = {"bos": 0, "eos": 0, "pad": 0}
PROMPTS = [[5, 9, 30, 2], [7], [11, 12, 13, 14, 15, 16, 17], [4, 4, 4]]


@both
@pytest.mark.parametrize("penalty", [1.0, 1.4])
@three_seeds
def test_greedy_gives_the_same_tokens(kind: str, penalty: float, seed: int) -> None:
    model = theirs(kind, seed + 50, n_positions=40, n_embd=32, n_head=4, n_layer=2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 3 if parameter.dim() > 1 else 1  # so that logits differ, and tokens vary
    wanted = [
        model.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)).long(), max_new_tokens=24, do_sample=False,
            repetition_penalty=penalty, pad_token_id=0, bos_token_id=0, eos_token_id=0,
        )[0, len(prompt) :].tolist()
        for prompt in PROMPTS
    ]  # fmt: skip
    ids, keep = pad([prompt[:-1] for prompt in PROMPTS], torch.device("cpu"))
    way = DecodingConfig(beam=1, max_ratio=0, max_extra=24, repetition_penalty=penalty)
    last = [prompt[-1] for prompt in PROMPTS]
    found = decode(CausalLM(read(model)), ids, keep, way, bos=0, eos=0, pad=0, last_tokens=last)
    assert [one.ids + [0] * one.finished for (one,) in found] == wanted
    assert len({tuple(words) for words in wanted}) > 1


@both
@three_seeds
def test_a_beam_gives_the_same_tokens(kind: str, seed: int) -> None:
    """Both rank by log-probability, and search until no better hypothesis is possible."""
    model = theirs(kind, seed + 50, n_positions=40, n_embd=32, n_head=4, n_layer=2)
    prompt = PROMPTS[2]
    wanted = model.generate(
        torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)).long(), max_new_tokens=12, do_sample=False, num_beams=4,
        num_return_sequences=4, length_penalty=0.0, early_stopping="never", pad_token_id=0, bos_token_id=0, eos_token_id=0,
    )[:, len(prompt) :].tolist()  # fmt: skip
    way = DecodingConfig(beam=4, n_best=4, max_ratio=0, max_extra=12, length_penalty=0)
    (found,) = decode(
        CausalLM(read(model)), torch.tensor([prompt[:-1]]), torch.ones(1, 6).bool(), way, **SPECIAL, last_tokens=[prompt[-1]]
    )
    ranked = sorted(found, key=lambda one: -one.logprob)
    assert [one.ids for one in ranked] == [[word for word in words if word != 0] for words in wanted]
