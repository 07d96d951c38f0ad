"""The same weights in transformers' Marian give the same logits, tokens and texts, for any shape."""

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
from qkv.interop.huggingface.marian import add_tokens, read_marian_model, vocab_sizes, write_marian_model
from qkv.lens.capture import cross_attention
from qkv.models.transformer import Transformer, TransformerConfig
from qkv.parts.decoding_weights import PreparedModel

transformers = pytest.importorskip("transformers")

VOCAB, EOS, START = 41, 0, 28
CLOSE = {"rtol": 0, "atol": 1e-5}
# Which tables of words are one: theirs, and what that is here.
TYING: dict[str, dict[str, Any]] = {
    "all": {"scale_embedding": True},
    "target": {"scale_embedding": True, "share_encoder_decoder_embeddings": False, "vocab_size": 29, "decoder_vocab_size": VOCAB},
    "none": {"scale_embedding": True, "share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
    "none, unscaled": {},
}
SIDES = ("encoder", "decoder")
each_tying = pytest.mark.parametrize("tying", TYING)
three_seeds = pytest.mark.parametrize("seed", range(3))


@torch.no_grad()
def theirs(tying: str, seed: int, **options: Any) -> Any:
    """Return a model of a random shape with random weights; a bias of 0, for example, would hide mistakes."""
    rng = random.Random(f"{tying} {seed}")
    heads = rng.choice([1, 2, 3, 5])
    shape = {
        "vocab_size": VOCAB, "d_model": heads * rng.choice([3, 4, 7, 8]), "encoder_layers": rng.choice([1, 2, 3]),
        "decoder_layers": rng.choice([1, 2, 3]), "activation_function": rng.choice(["relu", "gelu", "swish"]),
        "max_position_embeddings": 64, "pad_token_id": START, "decoder_start_token_id": START, "eos_token_id": EOS,
        "forced_eos_token_id": None, **TYING[tying], **options,
    }  # fmt: skip
    feedforward = rng.choice([20, 33])
    sides = {f"{side}_ffn_dim": feedforward for side in SIDES} | {f"{side}_attention_heads": heads for side in SIDES}
    torch.manual_seed(seed)
    model = transformers.MarianMTModel(transformers.MarianConfig(**{**sides, **shape})).eval()
    for name, parameter in model.named_parameters():
        if "embed_positions" not in name:
            nn.init.normal_(parameter, 1.0 if "norm.weight" in name else 0.0, 0.3)
    model.final_logits_bias.normal_()
    return model


def read(model: Any) -> Transformer:
    return made_of(*read_marian_model(model.config.to_dict(), model.state_dict()))


def made_of(c: TransformerConfig, weights: dict[str, Tensor]) -> Transformer:
    made = Transformer(c, *vocab_sizes(weights))
    assert {*dict(made.named_parameters())} == {*weights}
    made.load_state_dict(weights, strict=False)
    return made.eval()


def random_ids(rows: int, width: int, seed: int, words: int = VOCAB - 1) -> Tensor:
    return torch.randint(1, words, (rows, width), generator=torch.Generator().manual_seed(seed))


def sources(seed: int) -> tuple[Tensor, Tensor]:
    """Return texts of different lengths, padded."""
    keep = torch.arange(23) < torch.tensor([23, 9, 1])[:, None]
    return random_ids(3, 23, seed, words=29).masked_fill(~keep, 3), keep


@each_tying
@three_seeds
@torch.no_grad()
def test_scores_of_every_place(tying: str, seed: int) -> None:
    model, (ids, keep), written = theirs(tying, seed), sources(seed), random_ids(3, 19, seed + 7)
    ours = read(model)
    assert ours.config.tied == tying.split(",")[0]
    found = ours.logits(ours(padded_rows(ids, keep), padded_rows(written, torch.ones_like(written).bool())))
    wanted = model(input_ids=ids, attention_mask=keep.long(), decoder_input_ids=written).logits
    assert float(wanted.std()) > 0.1
    torch.testing.assert_close(found, wanted, **CLOSE)


@three_seeds
@torch.no_grad()
def test_who_looks_at_what_in_the_source(seed: int) -> None:
    model, ids, written = theirs("all", seed, attn_implementation="eager"), random_ids(2, 9, seed), random_ids(2, 6, seed + 1)
    everywhere = torch.ones_like(ids).bool()
    wanted = model(input_ids=ids, decoder_input_ids=written, output_attentions=True).cross_attentions
    found = cross_attention(read(model), padded_rows(ids, everywhere), padded_rows(written, torch.ones_like(written).bool()))
    torch.testing.assert_close(found, torch.stack(wanted).mean((0, 2)), **CLOSE)


@each_tying
@three_seeds
@torch.no_grad()
def test_steps_with_a_cache_of_each(tying: str, seed: int) -> None:
    model, (ids, keep), written = theirs(tying, seed + 10), sources(seed), random_ids(3, 14, seed)
    ours = read(model)
    state, known, past = PreparedModel(ours).start(ids, keep, max_length=14), None, None
    for position in range(14):
        made = model(
            input_ids=ids, attention_mask=keep.long(), decoder_input_ids=written[:, position : position + 1],
            encoder_outputs=known, past_key_values=past, use_cache=True,
        )  # fmt: skip
        known, past = (made.encoder_last_hidden_state,), made.past_key_values
        torch.testing.assert_close(ours.step(written[:, position], state), made.logits[:, 0], **CLOSE)


@each_tying
@three_seeds
@torch.no_grad()
def test_ours_in_transformers_and_back(tying: str, seed: int) -> None:
    model, (ids, keep), written = theirs(tying, seed + 20), sources(seed), random_ids(3, 9, seed)
    c, weights = read_marian_model(model.config.to_dict(), model.state_dict())
    config, back = write_marian_model(c, weights)
    other = transformers.MarianMTModel(transformers.MarianConfig(**config, max_position_embeddings=64, pad_token_id=START))
    loaded = other.load_state_dict(back, strict=False)
    other.tie_weights()
    assert not loaded.unexpected_keys
    assert all("embed" in name or name == "lm_head.weight" for name in loaded.missing_keys)
    given = {"input_ids": ids, "attention_mask": keep.long(), "decoder_input_ids": written}
    torch.testing.assert_close(other.eval()(**given).logits, model(**given).logits, **CLOSE)
    again = read_marian_model(config, back)
    assert again[0] == c
    for name, weight in again[1].items():
        assert torch.equal(weight, weights[name])


@torch.no_grad()
def test_far_places() -> None:
    """qkv computes the sines of large numbers in float32, transformers in float64."""
    model, ids = theirs("all", 1, max_position_embeddings=512), random_ids(1, 500, seed=1)
    everywhere = torch.ones_like(ids).bool()
    wanted = model(input_ids=ids, decoder_input_ids=ids).logits
    ours = read(model)
    torch.testing.assert_close(ours.logits(ours(padded_rows(ids, everywhere), padded_rows(ids, everywhere))), wanted, **CLOSE)


@torch.no_grad()
def test_words_that_are_taken_for_the_unknown_one() -> None:
    model, unk = theirs("target", 5), 7
    c, weights = add_tokens(*read_marian_model(model.config.to_dict(), model.state_dict()), (31, VOCAB + 3), (unk, unk))
    ours = made_of(c, weights)
    ids, written = torch.tensor([[4, 30, 29, 6]]), torch.tensor([[START, VOCAB, 5, VOCAB + 2]])
    everywhere = torch.ones_like(ids).bool()
    found = ours.logits(ours(padded_rows(ids, everywhere), padded_rows(written, everywhere))).softmax(-1)
    wanted = model(
        input_ids=ids.where(ids < 29, unk), decoder_input_ids=written.where(written < VOCAB, unk)
    ).logits.softmax(-1)  # fmt: skip
    torch.testing.assert_close(found[..., :VOCAB], wanted, **CLOSE)
    assert found[..., VOCAB:].eq(0).all()


# Generation

LIMITS = {"suppress_tokens": [START], "no_repeat_ngram_size": 1}  # as in qkv's search, and so that tokens vary


def wordy(seed: int) -> Any:
    """Return a model with sharp distributions."""
    model = theirs("none", seed, d_model=32, encoder_attention_heads=4, decoder_attention_heads=4, decoder_layers=2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter *= 3.0 if parameter.dim() > 1 else 0.1 if name.endswith("norm.bias") else 1.0
    return model


@three_seeds
def test_greedy_gives_the_same_tokens(seed: int) -> None:
    model, texts = wordy(seed + 30), [[5, 9, 30, 2, EOS], [7, EOS], [11, 12, 13, 14, 15, 16, 17, EOS]]
    ids, keep = pad(texts, torch.device("cpu"))
    wanted = model.generate(ids, attention_mask=keep.long(), max_new_tokens=20, do_sample=False, **LIMITS)[:, 1:]
    way = DecodingConfig(beam=1, max_ratio=0, max_extra=20, no_repeat_ngram=1)
    found = decode(read(model), ids, keep, way, bos=START, eos=EOS, pad=START)
    assert [one.ids + [EOS] * one.finished for (one,) in found] == [_until_the_end(words) for words in wanted.tolist()]
    assert len({tuple(one.ids) for (one,) in found}) > 1


def _until_the_end(words: list[int]) -> list[int]:
    return words[: words.index(EOS) + 1] if EOS in words else words


@three_seeds
def test_a_beam_gives_the_same_tokens(seed: int) -> None:
    """Both rank by log-probability, and search until no better hypothesis is possible."""
    model, ids = wordy(seed + 30), torch.tensor([[5, 9, 30, 2, 8, EOS]])
    wanted = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False, num_beams=4, num_return_sequences=4,
        length_penalty=0.0, early_stopping="never", **LIMITS,
    )[:, 1:].tolist()  # fmt: skip
    way = DecodingConfig(beam=4, n_best=4, max_ratio=0, max_extra=12, length_penalty=0, no_repeat_ngram=1)
    (found,) = decode(read(model), ids, torch.ones_like(ids).bool(), way, bos=START, eos=EOS, pad=START)
    ranked = sorted(found, key=lambda one: -one.logprob)
    assert [one.ids for one in ranked] == [[word for word in words if word not in (START, EOS)] for words in wanted]


# What does not suit


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"activation_function": "mish"}, "activation_function='mish' in config.json is an activation that qkv does not have"),
    ({"architectures": ["MarianForCausalLM"]}, "architecture MarianForCausalLM in config.json is not one of MarianMTModel"),
    ({"decoder_ffn_dim": 1}, "decoder_ffn_dim in config.json is not encoder_ffn_dim; qkv's transformer has one number for both"),
    ({"decoder_attention_heads": 9}, "decoder_attention_heads in config.json is not encoder_attention_heads"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=lambda value: "" if isinstance(value, str) else next(iter(value)))
def test_what_ours_has_not_is_refused(options: dict[str, Any], message: str) -> None:
    model = theirs("all", 1)
    with pytest.raises(ConfigError, match=message):
        read_marian_model({**model.config.to_dict(), **options}, model.state_dict())


def test_weights_that_do_not_suit_are_refused() -> None:
    model = theirs("all", 1)
    config, weights = model.config.to_dict(), model.state_dict()
    less = {name: weight for name, weight in weights.items() if "encoder.layers.0.fc1.bias" not in name}
    with pytest.raises(
        CheckpointError, match=r"the weights lack model\.encoder\.layers\.0\.fc1\.bias; the checkpoint is not whole"
    ):
        read_marian_model(config, less)
    with pytest.raises(CheckpointError, match=r"other and 0 more weights have no counterpart in qkv's marian"):
        read_marian_model(config, {**weights, "other": weights["lm_head.weight"]})
    with pytest.raises(CheckpointError, match=r"have the shape .* they do not belong together"):
        read_marian_model({**config, "d_model": 2 * config["d_model"]}, weights)
    learned = {"model.encoder.embed_positions.weight": torch.ones(64, config["d_model"])}
    with pytest.raises(CheckpointError, match=r"embed_positions\.weight holds other positions than sines and cosines"):
        read_marian_model(config, {**weights, **learned})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "pre"}, "transformers' marian has no model.norm=pre, only post"),
        ({"positions": "rotary"}, "transformers' marian has no model.positions=rotary, only sinusoidal"),
        ({"activation": "swiglu"}, "transformers' marian has no model.activation=swiglu, only relu, gelu and silu"),
    ],
)
def test_what_theirs_has_not_is_refused(options: dict[str, Any], message: str) -> None:
    c = TransformerConfig(width=8, feedforward=8, heads=2, encoder_layers=1, decoder_layers=1, **options)
    with pytest.raises(ConfigError, match=message):
        write_marian_model(c, dict(Transformer(c, 5, 5).named_parameters()))
