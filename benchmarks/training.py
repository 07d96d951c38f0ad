"""Training speed on this machine: qkv beside torch.nn.Transformer, same sizes, same sentences, same run.

    python benchmarks/training.py [--rounds 5]

Prints target tokens per second, the median over rounds and their spread; the systems take turns, so that a busy moment of
the machine meets both. qkv runs as `qkv train` would (packed rows, its default precision), and once more in float32.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.base.hardware import choose_device, choose_precision, describe
from qkv.data.batches import Batch, Batches, make_batch
from qkv.data.tokens import Pairs, texts_of
from qkv.models.transformer import Transformer, TransformerConfig
from qkv.objectives.translation import Translation, TranslationConfig
from qkv.parts.positions import Sinusoidal

VOCAB, WIDTH, INNER, HEADS, LAYERS = 8000, 256, 1024, 4, 3
TOKENS, ROW = 4096, 128
BOS, EOS = 2, 3
STEPS = 4  # in a round


def sentences(count: int, seed: int = 1) -> Pairs:
    """Random pairs with the lengths of image captions: 5 to 40 tokens, about 14 in the mean."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.gamma(6.0, 2.4, count), 5, 40).astype(int)

    def near(lengths: np.ndarray) -> Iterator[tuple[int, int]]:
        return zip(lengths, rng.integers(-3, 4, count), strict=True)

    sides = [[rng.integers(4, VOCAB, max(4, n + d)).tolist() for n, d in near(lengths)] for _ in "st"]
    return Pairs(*map(texts_of, sides))


def packed(pairs: Pairs) -> list[Batch]:
    batches = Batches([pairs], [1.0], seed=1, tokens=TOKENS, widths=(ROW, ROW), eos=EOS).starting((0, 0, 0))
    return [next(batches) for _ in range(STEPS)]


def padded(pairs: Pairs) -> list[Batch]:
    """The same number of target tokens a batch, sentences of like length together, padded to the longest."""
    order = np.argsort(pairs.target.lengths(np.arange(len(pairs))), kind="stable")
    batches, rng = [], np.random.default_rng(0)
    while len(batches) < STEPS:
        start, chosen, tokens = int(rng.integers(0, len(order) - 1000)), [], 0
        while tokens < TOKENS:
            chosen.append(order[start + len(chosen)])
            tokens += len(pairs.target[chosen[-1]]) + 1
        source, target = [[pairs.source[i]] for i in chosen], [[pairs.target[i]] for i in chosen]
        widths = max(len(s[0]) for s in source), max(len(t[0]) for t in target) + 1
        batches.append(make_batch(source, target, widths, EOS))
    return batches


class Plain(nn.Module):
    """torch.nn.Transformer with tied embeddings, as its documentation shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.positions = Sinusoidal(WIDTH)
        self.body = nn.Transformer(WIDTH, HEADS, LAYERS, LAYERS, INNER, 0.1, batch_first=True)

    def loss(
        self, source: Tensor, target: Tensor, source_pad: Tensor, target_pad: Tensor, place: tuple[Tensor, Tensor]
    ) -> Tensor:
        read = torch.where(place[1] == 0, BOS, target.roll(1, dims=1))
        causal = nn.Transformer.generate_square_subsequent_mask(target.size(1), device=target.device, dtype=torch.bool)
        x = self.body(
            self.embedding(source) * WIDTH**0.5 + self.positions(place[0]),
            self.embedding(read) * WIDTH**0.5 + self.positions(place[1]),
            tgt_mask=causal, src_key_padding_mask=source_pad, memory_key_padding_mask=source_pad,
            tgt_key_padding_mask=target_pad, tgt_is_causal=True,
        )  # fmt: skip
        answer = target.masked_fill(target_pad, -100)
        scores = x @ self.embedding.weight.T
        return F.cross_entropy(scores.flatten(0, 1), answer.flatten(), reduction="sum", label_smoothing=0.1)


def steps(
    model: nn.Module, loss: Callable[[Batch], Tensor], precision: torch.dtype, device: torch.device
) -> Callable[[list[Batch]], float]:
    """Something that takes batches through whole updates and says how many target tokens a second that was."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def run(batches: list[Batch]) -> float:
        start = time.perf_counter()
        for batch in batches:
            with torch.autocast(device.type, precision, enabled=precision != torch.float32):
                total = loss(batch.to(device)) / batch.tokens
            total.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return sum(b.tokens for b in batches) / (time.perf_counter() - start)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    device = choose_device()
    default = choose_precision("auto", device)
    pairs = sentences(20_000)
    config = TransformerConfig(width=WIDTH, inner=INNER, heads=HEADS, encoder_layers=LAYERS, decoder_layers=LAYERS)
    objective = Translation(TranslationConfig(), BOS)

    def ours(precision: torch.dtype) -> Callable[[list[Batch]], float]:
        model = Transformer(config, VOCAB, VOCAB).to(device)
        return steps(model, lambda b: objective.loss(model, *b.inputs), precision, device)

    def theirs() -> Callable[[list[Batch]], float]:
        model = Plain().to(device)

        def loss(b: Batch) -> Tensor:
            source, target = b.inputs
            return model.loss(source.ids, target.ids, source.text == 0, target.text == 0, (source.place, target.place))

        return steps(model, loss, torch.float32, device)

    systems = {
        "torch.nn.Transformer, float32, padded": (theirs(), padded(pairs)),
        "qkv, float32": (ours(torch.float32), packed(pairs)),
    }
    if default != torch.float32:
        systems["qkv, as it comes (bf16)"] = (ours(default), packed(pairs))
    for run, batches in systems.values():
        run(batches)
    rates: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(rounds):
        for name, (run, batches) in systems.items():
            rates[name].append(run(batches))
    first = statistics.median(next(iter(rates.values())))
    print(f"{describe(device)}; width {WIDTH}, {HEADS} heads, {LAYERS} + {LAYERS} layers, vocabulary {VOCAB}")
    print(f"{TOKENS} target tokens a step; median of {rounds} rounds, and their spread")
    for name, found in rates.items():
        middle = statistics.median(found)
        print(f"{name:40} {middle:8,.0f} target tokens/s  ({min(found):,.0f} to {max(found):,.0f})  {middle / first:.2f} x")


if __name__ == "__main__":
    main()
