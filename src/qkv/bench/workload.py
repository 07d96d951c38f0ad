"""The workload of all systems: sizes of models, texts as token ids (pairs or documents), and batches of them."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qkv.base.seeds import rng_at
from qkv.data.tokens import TokenPairs, token_texts

PAD, MASK, BOS, EOS, FIRST = 0, 1, 2, 3, 4  # FIRST is the lowest id of an ordinary token
DROPOUT, SMOOTHING, CLIP, MASKED = 0.1, 0.1, 1.0, 0.15
JOB, PAIRS, DOCUMENTS = "job.json", "pairs.npz", "documents.npy"  # files that every worker reads


@dataclass(frozen=True)
class TransformerSize:
    """The shape of a Transformer, and the target tokens of an update."""

    width: int
    feedforward: int
    heads: int
    layers: int  # of the encoder, and as many of the decoder
    vocab: int
    tokens: int

    def __str__(self) -> str:
        layers = f"{self.layers} + {self.layers} layers"
        return f"width {self.width}, {self.heads} heads, {layers}, feed-forward {self.feedforward:,}, vocabulary {self.vocab:,}"


SIZES = {
    "tiny": TransformerSize(32, 64, 2, 1, 200, 256),  # for tests
    "small": TransformerSize(256, 1024, 4, 3, 8000, 4096),
    "base": TransformerSize(512, 2048, 8, 6, 32000, 25000),
    "big": TransformerSize(1024, 4096, 16, 6, 32000, 25000),
}


@dataclass(frozen=True)
class EncoderSize:
    """The shape of a BERT, of an ELECTRA's discriminator and generator, of a GPT, an XLNet, a T5 or an ELMo."""

    kind: str
    width: int
    feedforward: int  # an ELMo's: the units of its LSTMs
    heads: int  # 0: an ELMo has no attention
    layers: int  # an ELMo's: in each direction
    embedding: int  # width of the embeddings; an ELMo's: of a character
    generator: float = 0.0  # an ELECTRA's: its width, feed-forward width and heads, as a fraction of the discriminator's
    vocab: int = 30_522
    tokens: int = 32_768  # of an update on a GPU
    decoder_layers: int = 0  # a T5's, beside those of its encoder; its feed-forward is gated
    reads_words: bool = False  # by their characters, instead of pieces

    def __str__(self) -> str:
        if self.reads_words:
            shape = f"width {self.width}, 2 x {self.layers} layers, {self.feedforward:,} LSTM units"
            return f"{self.kind.upper()}, {shape}, {self.vocab:,} words"
        layers = f"{self.layers} + {self.decoder_layers}" if self.decoder_layers else f"{self.layers}"
        shape = f"width {self.width}, {self.heads} heads, {layers} layers, feed-forward {self.feedforward:,}"
        beside = f", generator x {self.generator:g}" if self.generator else ""
        return f"{self.kind.upper()}, {shape}{beside}, vocabulary {self.vocab:,}"


ENCODERS = {
    "tiny": EncoderSize("bert", 32, 64, 2, 1, 32, vocab=200),  # for tests
    "tiny-electra": EncoderSize("electra", 32, 64, 2, 1, 16, 0.5, vocab=200),
    "tiny-gpt": EncoderSize("gpt", 32, 64, 2, 1, 32, vocab=200),
    "tiny-xlnet": EncoderSize("xlnet", 32, 64, 2, 1, 32, vocab=200),
    "tiny-t5": EncoderSize("t5", 32, 48, 2, 1, 32, vocab=200, decoder_layers=1),
    "tiny-elmo": EncoderSize("elmo", 32, 48, 0, 1, 4, vocab=200, reads_words=True),
    "bert-mini": EncoderSize("bert", 256, 1024, 4, 4, 256),
    "bert-base": EncoderSize("bert", 768, 3072, 12, 12, 768),
    "electra-small": EncoderSize("electra", 256, 1024, 4, 12, 128, 0.25, tokens=65_536),
    "gpt-mini": EncoderSize("gpt", 256, 1024, 4, 4, 256, vocab=16_000),
    "gpt2-small": EncoderSize("gpt", 768, 3072, 12, 12, 768, vocab=50_257),
    "xlnet-mini": EncoderSize("xlnet", 256, 1024, 4, 4, 256),
    "xlnet-base": EncoderSize("xlnet", 768, 3072, 12, 12, 768),
    "t5-mini": EncoderSize("t5", 256, 688, 4, 4, 256, decoder_layers=4),
    "t5-base": EncoderSize("t5", 768, 2048, 12, 12, 768, decoder_layers=12),  # version 1.1
    # The shapes and updates of benchmarks/pretrained_models.py.
    "bert-12x256": EncoderSize("bert", 256, 1024, 4, 12, 256, tokens=16_384),
    "xlnet-12x256": EncoderSize("xlnet", 256, 1024, 4, 12, 256, tokens=16_384),
    "t5-12x256": EncoderSize("t5", 256, 688, 4, 12, 256, tokens=16_384, decoder_layers=4),
    "elmo-small": EncoderSize("elmo", 256, 1024, 0, 2, 16, vocab=100_000, tokens=16_384, reads_words=True),
}

GPTS = {name: size for name, size in ENCODERS.items() if size.kind == "gpt"}


def documents(count: int, length: int, size: EncoderSize, seed: int) -> np.ndarray:
    """Return random texts that fill rows of `length` tokens, without the special tokens at both ends. -> (count, length - 2).

    Words are drawn by Zipf's law, because a model that reads them by their characters computes each different one of a batch
    once: of 100,000 words, about 6,400 in 128 rows of 128. Pieces are all as frequent.
    """
    rng, shape = rng_at(seed, "documents"), (count, length - 2)
    if not size.reads_words:
        return rng.integers(FIRST, size.vocab, shape, dtype=np.int32)
    total = np.cumsum(1 / np.arange(1, size.vocab - FIRST + 1))
    return (FIRST + np.searchsorted(total, rng.random(shape) * total[-1])).astype(np.int32)


def spellings(vocab: int, seed: int) -> list[str | int]:
    """Return random letters for each word, and the special tokens by id.

    The word of rank r has about 0.8 + 1.6 log10(r + 1) letters, as in English Wikipedia: 1 more than a Poisson variable. So the
    different words of a batch have 7 on average and up to about 20, as there.
    """
    rng = rng_at(seed, "spellings")
    lengths = 1 + rng.poisson(np.maximum(0, 1.6 * np.log10(np.arange(2, vocab - FIRST + 2)) - 0.2))
    letters = bytes(rng.integers(ord("a"), ord("z") + 1, lengths.sum(), dtype=np.uint8)).decode()
    ends = np.cumsum(lengths)
    return [*range(FIRST), *(letters[end - length : end] for end, length in zip(ends, lengths, strict=True))]


def caption_pairs(count: int, vocab: int, seed: int) -> TokenPairs:
    """Return random pairs with the lengths of image captions: 5 to 40 tokens, about 14 on average."""
    rng = rng_at(seed, "captions")
    lengths = np.clip(rng.gamma(6.0, 2.4, count), 5, 40).astype(int)

    def side() -> Iterator[list[int]]:
        for length in np.maximum(4, lengths + rng.integers(-3, 4, count)):
            yield rng.integers(FIRST, vocab, length).tolist()

    return TokenPairs(token_texts(side()), token_texts(side()))


def learnable_pairs(count: int, words: int, seed: int) -> TokenPairs:
    """Return pairs that can be learned: words drawn by Zipf's law, each translated by a fixed random dictionary, in order."""
    rng = rng_at(seed, "riddles")
    share = 1 / np.arange(1, words + 1)
    dictionary = rng.permutation(words)
    sources = [rng.choice(words, rng.integers(3, 9), p=share / share.sum()) for _ in range(count)]
    return TokenPairs(
        *(token_texts((FIRST + text).tolist() for text in side) for side in (sources, [dictionary[s] for s in sources]))
    )


def length_batches(pairs: TokenPairs, tokens: int, count: int, seed: int) -> list[np.ndarray]:
    """Return `count` batches of pairs of similar length, with about `tokens` target tokens (eos included) in each."""
    lengths = pairs.target.lengths(np.arange(len(pairs))) + 1
    order = np.argsort(lengths, kind="stable")
    total = np.cumsum(lengths[order])
    rng = rng_at(seed, "batches")
    last = int(np.searchsorted(total, max(1, total[-1] - tokens)))
    batches = []
    for start in rng.integers(0, max(1, last), count):
        before = total[start - 1] if start else 0
        batches.append(order[start : int(np.searchsorted(total, before + tokens)) + 1])
    return batches


def write_job(folder: Path, pairs: TokenPairs, batches: list[np.ndarray], **facts: Any) -> None:
    """Write the workers' files: numbers in one, token ids in another, so that peers do not need qkv."""
    _write_facts(folder, **facts, smoothing=SMOOTHING)
    index = np.arange(len(pairs))
    np.savez(
        folder / PAIRS,
        source=pairs.source.gather(index), source_ends=np.cumsum(pairs.source.lengths(index)),
        target=pairs.target.gather(index), target_ends=np.cumsum(pairs.target.lengths(index)),
        batches=np.concatenate(batches) if batches else np.zeros(0, np.int64),
        batch_ends=np.cumsum([len(b) for b in batches], dtype=np.int64),
    )  # fmt: skip


def write_pretraining_job(folder: Path, texts: np.ndarray, **facts: Any) -> None:
    """Write the files for pretraining on documents (N, length - 2)."""
    # BERT keeps or replaces some of the tokens that it predicts; ELECTRA's generator masks them all; a GPT masks none.
    shares: dict[str, Any] = {"mask": 0.8, "random": 0.1} if facts["size"].kind == "bert" else {"mask": 1.0, "random": 0.0}
    _write_facts(folder, **facts, kind="pretrain", mask_token=MASK, first=FIRST, masked=MASKED, **shares)
    np.save(folder / DOCUMENTS, texts)


def write_length_job(folder: Path, **facts: Any) -> None:
    """Write the file for passes of encoders, which draw random tokens themselves."""
    _write_facts(folder, **facts, kind="length")


def _write_facts(folder: Path, size: TransformerSize | EncoderSize, **facts: Any) -> None:
    job = {**facts, "size": asdict(size), "dropout": DROPOUT, "clip": CLIP, "pad": PAD, "bos": BOS, "eos": EOS}
    (folder / JOB).write_text(json.dumps(job))
