"""The same weights in transformers' T5, versions 1.0 and 1.1, give the same outputs: whole, step by step, imported and
exported.
"""

import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qkv.base.errors import CheckpointError, ConfigError
from qkv.base.rows import padded_rows
from qkv.decoding.config import DecodingConfig
from qkv.decoding.search import decode
from qkv.inference.engines import pad
from qkv.interop.huggingface.t5 import read_t5_model, write_t5_model
from qkv.models.t5 import T5, T5Config
from qkv.parts.decoding_weights import PreparedModel

transformers = pytest.importorskip("transformers")

VOCAB, EOS = 41, 1
CLOSE = {"rtol": 0, "atol": 1e-5}
VERSIONS: dict[str, dict[str, Any]] = {
    "1.0": {"feed_forward_proj": "relu", "tie_word_embeddings": True},
    "1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
}
both = pytest.mark.parametrize("version", VERSIONS)
three_seeds = pytest.mark.parametrize("seed", range(3))


@torch.no_grad()
def theirs(version: str, seed: int, **options: Any) -> Any:
    """Return a transformers model of a random shape with random weights, which hide no mistakes."""
    rng = random.Random(f"{version} {seed}")
    shape = {
        "vocab_size": VOCAB, "d_model": rng.choice([12, 24, 32]), "d_kv": rng.choice([4, 7, 8]),
        "num_heads": rng.choice([1, 3, 4]), "d_ff": rng.choice([20, 33]), "num_layers": rng.choice([1, 2, 3]),
        "num_decoder_layers": rng.choice([None, 1, 2]),
        "relative_attention_num_buckets": rng.choice([8, 16, 32]), "relative_attention_max_distance": rng.choice([20, 128]),
        "layer_norm_epsilon": rng.choice([1e-6, 1e-3]), "decoder_start_token_id": 0,
    }  # fmt: skip
    torch.manual_seed(seed)
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**{**shape, **VERSIONS[version], **options}))
    if version == "1.1":
        model.lm_head.weight = nn.Parameter(torch.empty_like(model.shared.weight))  # as in the released checkpoints
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, 1.0 if "norm" in name else 0.0, 0.3 if "shared" in name or "bias" in name else 0.15)
    return model.eval()


def read(model: Any) -> T5:
    c, weights = read_t5_model(model.config.to_dict(), model.state_dict())
    return made_of(c, weights)


def made_of(c: T5Config, weights: dict[str, Tensor]) -> T5:
    words = len(weights["target_embedding.weight"])
    t5 = T5(c, words, words)
    missing = {*dict(t5.named_parameters())} - {*weights}
    assert not missing
    t5.load_state_dict(weights, strict=False)
    return t5.eval()


def random_ids(rows: int, width: int, seed: int) -> Tensor:
    return torch.randint(2, VOCAB, (rows, width), generator=torch.Generator().manual_seed(seed))


def sources(seed: int) -> tuple[Tensor, Tensor]:
    """Return texts of different lengths, padded."""
    keep = torch.arange(23) < torch.tensor([23, 9, 1])[:, None]
    return random_ids(3, 23, seed).masked_fill(~keep, 0), keep


@both
@three_seeds
@torch.no_grad()
def test_scores_of_every_place(version: str, seed: int) -> None:
    model, (ids, keep), written = theirs(version, seed), sources(seed), random_ids(3, 19, seed + 7)
    t5 = read(model)
    assert t5.config.tied == ("all" if version == "1.0" else "inputs")
    found = t5.logits(t5(padded_rows(ids, keep), padded_rows(written, torch.ones_like(written).bool())))
    wanted = model(input_ids=ids, attention_mask=keep.long(), decoder_input_ids=written).logits
    assert float(wanted.std()) > 0.1
    torch.testing.assert_close(found, wanted, **CLOSE)


@both
@torch.no_grad()
def test_what_the_encoder_knows(version: str) -> None:
    model, (ids, keep) = theirs(version, 4), sources(4)
    wanted = model.encoder(input_ids=ids, attention_mask=keep.long()).last_hidden_state
    torch.testing.assert_close(read(model).encode(padded_rows(ids, keep))[keep], wanted[keep], **CLOSE)


@both
@three_seeds
@torch.no_grad()
def test_steps_with_a_cache_of_each(version: str, seed: int) -> None:
    model, (ids, keep), written = theirs(version, seed + 10), sources(seed), random_ids(3, 14, seed)
    t5 = read(model)
    state, known, past = PreparedModel(t5).start(ids, keep, max_length=14), None, None
    for position in range(14):
        made = model(
            input_ids=ids, attention_mask=keep.long(), decoder_input_ids=written[:, position : position + 1],
            encoder_outputs=known, past_key_values=past, use_cache=True,
        )  # fmt: skip
        known, past = (made.encoder_last_hidden_state,), made.past_key_values
        torch.testing.assert_close(t5.step(written[:, position], state), made.logits[:, 0], **CLOSE)


@both
@three_seeds
@torch.no_grad()
def test_ours_in_transformers_and_back(version: str, seed: int) -> None:
    model, (ids, keep), written = theirs(version, seed + 20), sources(seed), random_ids(3, 9, seed)
    c, weights = read_t5_model(model.config.to_dict(), model.state_dict())
    config, back = write_t5_model(c, weights)
    other = transformers.T5ForConditionalGeneration(transformers.T5Config(**config))
    if version == "1.1":
        other.lm_head.weight = nn.Parameter(other.lm_head.weight.clone())
    loaded = other.load_state_dict(back, strict=False)
    assert not loaded.unexpected_keys
    assert all("embed_tokens" in name or (name, version) == ("lm_head.weight", "1.0") for name in loaded.missing_keys)
    given = {"input_ids": ids, "attention_mask": keep.long(), "decoder_input_ids": written}
    torch.testing.assert_close(other.eval()(**given).logits, model(**given).logits, **CLOSE)
    again = read_t5_model(config, back)
    assert again[0] == c
    for name, weight in again[1].items():
        torch.testing.assert_close(weight, weights[name])


# Generation


def wordy(version: str, seed: int) -> Any:
    """Return a model with varied tokens and long outputs."""
    model = theirs(version, seed, d_model=32, d_kv=8, num_heads=4, num_layers=2, num_decoder_layers=2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter *= 2.5 if parameter.dim() > 1 and "relative" not in name else 1
    return model


@both
@three_seeds
def test_greedy_gives_the_same_tokens(version: str, seed: int) -> None:
    model, texts = wordy(version, seed + 30), [[5, 9, 30, 2, EOS], [7, EOS], [11, 12, 13, 14, 15, 16, 17, EOS]]
    ids, keep = pad(texts, torch.device("cpu"))
    wanted = model.generate(ids, attention_mask=keep.long(), max_new_tokens=20, do_sample=False, suppress_tokens=[0])[:, 1:]
    way = DecodingConfig(beam=1, max_ratio=0, max_extra=20)
    found = decode(read(model), ids, keep, way, bos=0, eos=EOS, pad=0)
    assert [one.ids + [EOS] * one.finished for (one,) in found] == [_until_the_end(words) for words in wanted.tolist()]
    assert len({tuple(one.ids) for (one,) in found}) > 1


def _until_the_end(words: list[int]) -> list[int]:
    return words[: words.index(EOS) + 1] if EOS in words else words


@both
@three_seeds
def test_a_beam_gives_the_same_tokens(version: str, seed: int) -> None:
    """Both rank by log-probability, and search until no better hypothesis is possible."""
    model, ids = wordy(version, seed + 30), torch.tensor([[5, 9, 30, 2, 8, EOS]])
    wanted = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False, num_beams=4, num_return_sequences=4,
        length_penalty=0.0, early_stopping="never", suppress_tokens=[0],
    )[:, 1:].tolist()  # fmt: skip
    way = DecodingConfig(beam=4, n_best=4, max_ratio=0, max_extra=12, length_penalty=0)
    (found,) = decode(read(model), ids, torch.ones_like(ids).bool(), way, bos=0, eos=EOS, pad=0)
    ranked = sorted(found, key=lambda one: -one.logprob)
    assert [one.ids for one in ranked] == [[word for word in words if word not in (0, EOS)] for words in wanted]


# What does not suit


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"feed_forward_proj": "gated-mish"},
        "feed_forward_proj='gated-mish' in config.json is an activation that qkv does not have",
    ),
    (
        {"architectures": ["T5EncoderModel"]},
        "architecture T5EncoderModel in config.json is not one of T5ForConditionalGeneration",
    ),
    ({"relative_attention_max_distance": 4}, "model.max_distance 4 must be more than half"),
    ({"relative_attention_num_buckets": 30}, "buckets"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=lambda value: "" if isinstance(value, str) else next(iter(value)))
def test_what_ours_has_not_is_refused(options: dict[str, Any], message: str) -> None:
    model = theirs("1.0", 1)
    with pytest.raises(ConfigError, match=message):
        read_t5_model({**model.config.to_dict(), **options}, model.state_dict())


def test_weights_that_do_not_suit_are_refused() -> None:
    model = theirs("1.1", 1)
    config, weights = model.config.to_dict(), model.state_dict()
    less = {name: weight for name, weight in weights.items() if "final_layer_norm" not in name}
    with pytest.raises(CheckpointError, match=r"the weights lack encoder\.final_layer_norm\.weight; the checkpoint is not whole"):
        read_t5_model(config, less)
    with pytest.raises(CheckpointError, match=r"other and 0 more weights have no counterpart in qkv's t5"):
        read_t5_model(config, {**weights, "other": weights["lm_head.weight"]})
    with pytest.raises(CheckpointError, match=r"have the shape .* they do not belong together"):
        read_t5_model({**config, "d_ff": 50}, weights)


def test_an_output_of_its_own_that_is_scaled() -> None:
    """A checkpoint of version 1.0 with an untied output: qkv's weights include the scale that transformers applies."""
    model, (ids, keep), written = theirs("1.0", 2), sources(2), random_ids(3, 5, 2)
    model.lm_head.weight = nn.Parameter(torch.randn_like(model.shared.weight))
    t5 = read(model)
    assert t5.config.tied == "inputs"
    with torch.no_grad():
        found = t5.logits(t5(padded_rows(ids, keep), padded_rows(written, torch.ones_like(written).bool())))
        wanted = model(input_ids=ids, attention_mask=keep.long(), decoder_input_ids=written).logits
    torch.testing.assert_close(found, wanted, **CLOSE)
