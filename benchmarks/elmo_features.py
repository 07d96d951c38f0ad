"""Compare an ELMo's features with word vectors of the same text: a linear classifier of parts of speech over each.

    python benchmarks/elmo_features.py --elmo RUN --vectors FOLDER --train train.conllu --dev dev.conllu

RUN is a pretrained ELMo, FOLDER vectors that `qkv vectors train` learned from the same text; `--vectors` may be repeated.
Features are frozen and standardised, and the same softmax regression is trained on each for the same epochs. A word without a
vector has zeros.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import qkv
from qkv.base.rows import padded_rows
from qkv.inference.engines import pad
from qkv.inference.spelling import add_unseen_words, tokenizer_for
from qkv.inference.text_encoder import TextEncoder
from qkv.objectives import OBJECTIVES
from qkv.text.examples import ExamplesConfig, read_examples
from qkv.vectors.formats import read_vectors
from qkv.vectors.word_vectors import WordVectors

Sentences = list[list[str]]
EPOCHS, BATCH, RATE = 8, 1024, 1e-3
SENTENCES_AT_ONCE = 64


def read_sentences(path: str) -> tuple[Sentences, list[str]]:
    """Return the words of each sentence, and the tags of all words."""
    examples = read_examples(OBJECTIVES["tagging"].readers, ExamplesConfig(files=(path,)))
    return [list(one.words) for one in examples], [tag for one in examples for tag in one.tags]


def vector_features(vectors: WordVectors, sentences: Sentences) -> Tensor:
    """Return the vector of each word, as written or in lower case; zeros for unknown ones. -> (words, D)."""
    zero = np.zeros(vectors.width, np.float32)

    def vector(word: str) -> np.ndarray:
        for spelling in (word, word.lower()):
            if spelling in vectors:
                return vectors[spelling]
        return zero

    return torch.from_numpy(np.stack([vector(word) for words in sentences for word in words]))


@torch.no_grad()
def elmo_features(encoder: TextEncoder, sentences: Sentences) -> list[Tensor]:
    """Return the states of each word after each layer; layer 0 has not seen its neighbours. -> layers of (words, D)."""
    tokenizer = tokenizer_for(encoder.model.encoder.config, encoder.tokenizer)
    encoded = [[tokenizer.bos, *tokenizer.encode(" ".join(words)), tokenizer.eos] for words in sentences]
    unequal = [number for number, (ids, words) in enumerate(zip(encoded, sentences, strict=True)) if len(ids) != len(words) + 2]
    if unequal:
        raise SystemExit(f"sentence {unequal[0] + 1}: the tokenizer divides its words: {' '.join(sentences[unequal[0]])}")
    add_unseen_words(encoder.model, tokenizer)
    found: list[list[Tensor]] = []
    for start in range(0, len(encoded), SENTENCES_AT_ONCE):
        rows = padded_rows(*pad(encoded[start : start + SENTENCES_AT_ONCE], encoder.device))
        inner = (rows.ids != tokenizer.bos) & (rows.ids != tokenizer.eos) & (rows.text > 0)
        found.append([states[inner].float().cpu() for states in encoder.model.encoder.each_layer(rows)])
    return [torch.cat(layer) for layer in zip(*found, strict=True)]


def accuracy(features: Callable[[Sentences], Tensor], train: tuple[Sentences, Tensor], dev: tuple[Sentences, Tensor]) -> float:
    """Train a softmax regression on the words of `train`. -> share of dev words with the right tag."""
    torch.manual_seed(1)
    x, unseen = features(train[0]), features(dev[0])
    mean, deviation = x.mean(0), x.std(0) + 1e-6
    x, unseen = (x - mean) / deviation, (unseen - mean) / deviation
    linear = torch.nn.Linear(x.size(1), int(train[1].max()) + 1)
    optimiser = torch.optim.Adam(linear.parameters(), RATE)
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(x)).split(BATCH):
            optimiser.zero_grad()
            F.cross_entropy(linear(x[chosen]), train[1][chosen]).backward()
            optimiser.step()
    return float((linear(unseen).argmax(-1) == dev[1]).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elmo", type=Path, required=True)
    parser.add_argument("--vectors", type=Path, action="append", required=True)
    parser.add_argument("--train", required=True, help="CoNLL-U")
    parser.add_argument("--dev", required=True)
    options = parser.parse_args()
    words, tags = zip(*(read_sentences(path) for path in (options.train, options.dev)), strict=True)
    names = sorted({*tags[0], *tags[1]})
    train, dev = ((some, torch.tensor([names.index(tag) for tag in named])) for some, named in zip(words, tags, strict=True))
    print("| features | width | dev words with the right tag |\n|---|---|---|")
    for folder in options.vectors:
        vectors = read_vectors(folder)
        score = accuracy(lambda some, v=vectors: vector_features(v, some), train, dev)
        print(f"| {folder.name} | {vectors.width} | {100 * score:.1f} % |", flush=True)
    encoder = qkv.load(options.elmo)
    layers = {id(some): elmo_features(encoder, some) for some in words}
    for number in range(len(layers[id(words[0])])):
        score = accuracy(lambda some, n=number: layers[id(some)][n], train, dev)
        print(
            f"| {options.elmo.name}, layer {number} | {layers[id(words[0])][number].size(1)} | {100 * score:.1f} % |", flush=True
        )


if __name__ == "__main__":
    main()
