"""The same weights in torch.nn's own Transformer give the same outputs.

B batch, S source length, T target length, D width.
"""

import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from qkv.base.rows import padded_rows
from qkv.models.transformer import Transformer, TransformerConfig
from qkv.parts.attention import CrossAttention, SelfAttention
from qkv.parts.context import AttentionContext
from qkv.parts.encoder import EncoderLayer
from qkv.parts.encoder_decoder import DecoderLayer
from qkv.parts.masks import DenseMask, causal, same_text

VOCAB = 31
FUTURE = torch.ones(5, 5).triu(1).bool()  # True = masked, as in torch.nn
CASES = [(norm, activation, seed) for norm in ("post", "pre") for activation in ("relu", "gelu") for seed in range(3)]
every_case = pytest.mark.parametrize(("norm", "activation", "seed"), CASES)


def random_config(norm: str, activation: str, seed: int) -> TransformerConfig:
    rng = random.Random(f"{norm} {activation} {seed}")
    heads = rng.choice([1, 2, 4, 8])
    return TransformerConfig(
        width=heads * rng.choice([2, 4, 8]),
        feedforward=rng.randint(3, 70),
        heads=heads,
        encoder_layers=rng.randint(1, 4),
        decoder_layers=rng.randint(1, 4),
        norm=norm,  # type: ignore[arg-type]
        activation=activation,  # type: ignore[arg-type]
        tied=rng.choice(["all", "target", "none"]),  # type: ignore[arg-type]
    )


def ours(config: TransformerConfig) -> Transformer:
    """Return a model with random weights; a bias of 0, for example, would hide mistakes."""
    torch.manual_seed(0)
    model = Transformer(config, VOCAB, VOCAB).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, 1.0 if "norm.weight" in name else 0.0, 0.3)
    return model


def theirs(model: Transformer) -> nn.Transformer:
    """Return torch.nn.Transformer with the same shape and weights; without final norms where qkv's has none."""
    c = model.config
    options: dict[str, Any] = {"activation": c.activation, "norm_first": c.norm == "pre", "batch_first": True, "dropout": 0.0}
    last = [nn.LayerNorm(c.width) if c.norm == "pre" else None for _ in range(2)]
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(c.width, c.heads, c.feedforward, **options),
        c.encoder_layers,
        last[0],
        enable_nested_tensor=False,
    )
    decoder = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(c.width, c.heads, c.feedforward, **options), c.decoder_layers, last[1]
    )
    both = nn.Transformer(c.width, c.heads, custom_encoder=encoder, custom_decoder=decoder, batch_first=True).eval()
    with torch.no_grad():
        for mine, other in zip([*model.encoder, *model.decoder], [*encoder.layers, *decoder.layers], strict=True):
            copy_layer(mine, other)
        for norm, mine in zip(last, (model.encoder_norm, model.decoder_norm), strict=True):
            if norm is not None:
                norm.load_state_dict(mine.state_dict())
    return both


def copy_layer(mine: nn.Module, other: nn.Module) -> None:
    assert isinstance(mine, EncoderLayer | DecoderLayer)
    blocks = [mine.attention, mine.cross] if isinstance(mine, DecoderLayer) else [mine.attention]
    for block, name in zip(blocks, ("self_attn", "multihead_attn"), strict=False):
        copy_attention(block, getattr(other, name))
    for linear, name in ((mine.feedforward.up, "linear1"), (mine.feedforward.down, "linear2")):
        getattr(other, name).load_state_dict(linear.state_dict())
    around = [mine.around_attention, *([mine.around_cross] if isinstance(mine, DecoderLayer) else []), mine.around_feedforward]
    for number, residual in enumerate(around, 1):
        getattr(other, f"norm{number}").load_state_dict(residual.norm.state_dict())


def copy_attention(mine: SelfAttention | CrossAttention, other: nn.MultiheadAttention) -> None:
    inside = [mine.qkv] if isinstance(mine, SelfAttention) else [mine.q, mine.kv]
    other.in_proj_weight.copy_(torch.cat([linear.weight for linear in inside]))
    other.in_proj_bias.copy_(torch.cat([linear.bias for linear in inside]))
    other.out_proj.load_state_dict(mine.out.state_dict())


def random_batch(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return sources and targets with their padding masks: ids, keep (B, S), ids, keep (B, T)."""
    torch.manual_seed(seed)
    b, s, t = 3, 7, 5
    lengths = [torch.randint(1, longest + 1, (b, 1)) for longest in (s, t)]
    ids = [torch.randint(4, VOCAB, (b, longest)) for longest in (s, t)]
    return ids[0], torch.arange(s) < lengths[0], ids[1], torch.arange(t) < lengths[1]


def assert_same(found: Tensor, wanted: Tensor, keep: Tensor) -> None:
    torch.testing.assert_close(found[keep], wanted[keep], rtol=0, atol=1e-5)


def embed(model: Transformer, embedding: nn.Embedding, ids: Tensor) -> Tensor:
    """Return the paper's input: embeddings times sqrt(D), plus positions."""
    position = torch.arange(ids.size(1)).expand_as(ids)
    return embedding(ids) * model.config.width**0.5 + model.source_positions(position)


def both_outputs(model: Transformer, other: nn.Transformer, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return both outputs, and the targets' padding mask."""
    source, keep, target, keep_target = random_batch(seed)
    found = model(padded_rows(source, keep), padded_rows(target, keep_target))
    wanted = other(
        embed(model, model.source_embedding, source),
        embed(model, model.target_embedding, target),
        tgt_mask=FUTURE,
        src_key_padding_mask=~keep,
        memory_key_padding_mask=~keep,
        tgt_key_padding_mask=~keep_target,
    )
    return found, wanted, keep_target


@every_case
def test_the_whole_transformer(norm: str, activation: str, seed: int) -> None:
    model = ours(random_config(norm, activation, seed))
    assert_same(*both_outputs(model, theirs(model), seed))


@every_case
def test_the_gradients_too(norm: str, activation: str, seed: int) -> None:
    model = ours(random_config(norm, activation, seed))
    other = theirs(model)
    *outputs, keep = both_outputs(model, other, seed + 50)
    for output in outputs:
        (output[keep] ** 2 * torch.linspace(-1, 1, output.size(-1))).sum().backward()
    pairs = [(model.encoder[0], other.encoder.layers[0]), (model.decoder[0], other.decoder.layers[0])]
    for mine, theirs_ in pairs:
        torch.testing.assert_close(mine.attention.qkv.weight.grad, theirs_.self_attn.in_proj_weight.grad, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(mine.feedforward.up.weight.grad, theirs_.linear1.weight.grad, rtol=1e-3, atol=1e-4)


@every_case
def test_the_encoder_by_itself(norm: str, activation: str, seed: int) -> None:
    model = ours(random_config(norm, activation, seed))
    source, keep, _, _ = random_batch(seed + 100)
    wanted = theirs(model).encoder(embed(model, model.source_embedding, source), src_key_padding_mask=~keep)
    assert_same(model.encode(padded_rows(source, keep)), wanted, keep)


@every_case
def test_the_decoder_by_itself(norm: str, activation: str, seed: int) -> None:
    model = ours(random_config(norm, activation, seed))
    _, keep, _, keep_target = random_batch(seed + 200)
    memory, x = torch.randn(3, 7, model.config.width), torch.randn(3, 5, model.config.width)
    context = AttentionContext(DenseMask((same_text(keep_target.long(), keep_target.long()) & causal()).dense(3, 5, 5)))
    source_mask = DenseMask(same_text(keep_target.long(), keep.long()).dense(3, 5, 7))
    found = x
    for layer in model.decoder:
        found = layer(found, memory, context, source_mask)
    wanted = theirs(model).decoder(x, memory, FUTURE, tgt_key_padding_mask=~keep_target, memory_key_padding_mask=~keep)
    assert_same(model.decoder_norm(found), wanted, keep_target)
