"""The work that all systems are given: sizes of models, texts as token ids (pairs of them, or documents), and batches of them."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qkv.base.seeds import rng_at
from qkv.data.tokens import TokenPairs, token_texts

PAD, MASK, BOS, EOS, FIRST = 0, 1, 2, 3, 4  # FIRST is the lowest id of a word
DROPOUT, SMOOTHING, CLIP, MASKED = 0.1, 0.1, 1.0, 0.15
JOB, PAIRS, DOCUMENTS = "job.json", "pairs.npz", "documents.npy"  # files in the folder that every worker reads


@dataclass(frozen=True)
class Size:
    """The shape of a Transformer, and the target tokens of an update."""

    width: int
    feedforward: int
    heads: int
    layers: int  # of the encoder, and as many of the decoder
    vocab: int
    tokens: int

    def __str__(self) -> str:
        layers = f"{self.layers} + {self.layers} layers"
        return f"width {self.width}, {self.heads} heads, {layers}, inner {self.feedforward:,}, vocabulary {self.vocab:,}"


SIZES = {
    "tiny": Size(32, 64, 2, 1, 200, 256),  # to see whether everything runs
    "small": Size(256, 1024, 4, 3, 8000, 4096),
    "base": Size(512, 2048, 8, 6, 32000, 25000),
    "big": Size(1024, 4096, 16, 6, 32000, 25000),
}


@dataclass(frozen=True)
class EncoderSize:
    """The shape of a BERT, of an ELECTRA's discriminator and generator, or of a GPT."""

    kind: str
    width: int
    feedforward: int
    heads: int
    layers: int
    embedding: int  # its width
    generator: float = 0.0  # an ELECTRA's: its width, inner width and heads, as a fraction of the discriminator's
    vocab: int = 30_522
    tokens: int = 32_768  # of an update on a GPU

    def __str__(self) -> str:
        shape = f"width {self.width}, {self.heads} heads, {self.layers} layers, inner {self.feedforward:,}"
        beside = f", generator x {self.generator:g}" if self.generator else ""
        return f"{self.kind.upper()}, {shape}{beside}, vocabulary {self.vocab:,}"


ENCODERS = {
    "tiny": EncoderSize("bert", 32, 64, 2, 1, 32, vocab=200),  # to see whether everything runs
    "tiny-electra": EncoderSize("electra", 32, 64, 2, 1, 16, 0.5, vocab=200),
    "tiny-gpt": EncoderSize("gpt", 32, 64, 2, 1, 32, vocab=200),
    "bert-mini": EncoderSize("bert", 256, 1024, 4, 4, 256),
    "bert-base": EncoderSize("bert", 768, 3072, 12, 12, 768),
    "electra-small": EncoderSize("electra", 256, 1024, 4, 12, 128, 0.25, tokens=65_536),
    "gpt-mini": EncoderSize("gpt", 256, 1024, 4, 4, 256, vocab=16_000),
    "gpt2-small": EncoderSize("gpt", 768, 3072, 12, 12, 768, vocab=50_257),
}

GPTS = {name: size for name, size in ENCODERS.items() if size.kind == "gpt"}


def documents(count: int, length: int, vocab: int, seed: int) -> np.ndarray:
    """Random texts that fill rows of so many places, the special tokens at both ends left out. -> (count, length - 2)."""
    return rng_at(seed, "documents").integers(FIRST, vocab, (count, length - 2), dtype=np.int32)


def captions(count: int, vocab: int, seed: int) -> TokenPairs:
    """Random pairs with the lengths of image captions: 5 to 40 tokens, about 14 in the mean."""
    rng = rng_at(seed, "captions")
    lengths = np.clip(rng.gamma(6.0, 2.4, count), 5, 40).astype(int)

    def side() -> Iterator[list[int]]:
        for length in np.maximum(4, lengths + rng.integers(-3, 4, count)):
            yield rng.integers(FIRST, vocab, length).tolist()

    return TokenPairs(token_texts(side()), token_texts(side()))


def riddles(count: int, words: int, seed: int) -> TokenPairs:
    """Pairs that can be learned: words by Zipf's law, each translated by the same secret dictionary, order kept."""
    rng = rng_at(seed, "riddles")
    share = 1 / np.arange(1, words + 1)
    dictionary = rng.permutation(words)
    sources = [rng.choice(words, rng.integers(3, 9), p=share / share.sum()) for _ in range(count)]
    return TokenPairs(
        *(token_texts((FIRST + text).tolist() for text in side) for side in (sources, [dictionary[s] for s in sources]))
    )


def like_lengths(pairs: TokenPairs, tokens: int, count: int, seed: int) -> list[np.ndarray]:
    """So many batches of pairs of like length, with about so many target tokens (ends included) in each."""
    lengths = pairs.target.lengths(np.arange(len(pairs))) + 1
    order = np.argsort(lengths, kind="stable")
    radius = np.cumsum(lengths[order])
    rng = rng_at(seed, "batches")
    last = int(np.searchsorted(radius, max(1, radius[-1] - tokens)))
    batches = []
    for start in rng.integers(0, max(1, last), count):
        before = radius[start - 1] if start else 0
        batches.append(order[start : int(np.searchsorted(radius, before + tokens)) + 1])
    return batches


def write_job(folder: Path, pairs: TokenPairs, batches: list[np.ndarray], **facts: Any) -> None:
    """What the workers read: plain numbers in one file, token ids in another, so that peers need nothing of qkv."""
    _write_facts(folder, **facts, smoothing=SMOOTHING)
    np.savez(
        folder / PAIRS,
        source=pairs.source.ids, source_ends=pairs.source.ends,
        target=pairs.target.ids, target_ends=pairs.target.ends,
        batches=np.concatenate(batches) if batches else np.zeros(0, np.int64),
        batch_ends=np.cumsum([len(b) for b in batches], dtype=np.int64),
    )  # fmt: skip


def write_pretraining_job(folder: Path, texts: np.ndarray, **facts: Any) -> None:
    """The same for pretraining on documents (N, length - 2)."""
    # BERT reads some of the words it is to guess, or others in their places; ELECTRA's generator reads none. GPT reads them all.
    shares: dict[str, Any] = {"mask": 0.8, "random": 0.1} if facts["size"].kind == "bert" else {"mask": 1.0, "random": 0.0}
    _write_facts(folder, **facts, kind="pretrain", mask_token=MASK, first=FIRST, masked=MASKED, **shares)
    np.save(folder / DOCUMENTS, texts)


def write_length_job(folder: Path, **facts: Any) -> None:
    """The same for passes of encoders, which read random words that each draws for itself."""
    _write_facts(folder, **facts, kind="length")


def _write_facts(folder: Path, size: Size | EncoderSize, **facts: Any) -> None:
    job = {**facts, "size": asdict(size), "dropout": DROPOUT, "clip": CLIP, "pad": PAD, "bos": BOS, "eos": EOS}
    (folder / JOB).write_text(json.dumps(job))
