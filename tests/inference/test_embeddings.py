"""Initial embeddings from word vectors."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from encoder_recipes import PRETRAINING, pretraining_values, write_text
from qkv.base.errors import ConfigError
from qkv.jobs.initial_embeddings import initialise_embedding, initialise_token_embeddings, initialise_translator_embeddings
from qkv.jobs.pretraining import initial_model
from qkv.recipes import parse_recipe
from qkv.recipes.embeddings import EmbeddingsConfig, SidesConfig
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from qkv.training.progress import Progress
from qkv.vectors.word_vectors import WordVectors

TEXT = ["the tree and the bird sing", "a bird in the tree sings", "the old tree"] * 20
WORDS = ["the", "unheard-of", "bird", "tree", "bird"]


class RecordedProgress(Progress):
    """Progress that records its messages."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.said: list[str] = []

    def say(self, what: object) -> None:
        self.said.append(str(what))


@pytest.fixture
def file(tmp_path: Path) -> str:
    WordVectors(WORDS, np.random.default_rng(1).normal(size=(len(WORDS), 16))).save(tmp_path / "v")
    return str(tmp_path / "v")


def tokenizer(kind: str) -> Tokenizer:
    return train_tokenizer(TokenizerConfig(kind=kind, vocab=330 if kind == "byte-bpe" else 90), TEXT)


@pytest.mark.parametrize("kind", ["bpe", "byte-bpe", "wordpiece", "unigram", "words"])
def test_whole_words_get_their_vectors_and_others_stay(kind: str, file: str) -> None:
    torch.manual_seed(1)
    made, progress = tokenizer(kind), RecordedProgress()
    embedding = nn.Embedding(len(made), 16)
    before = embedding.weight.detach().clone()
    initialise_embedding(embedding, made, file, "embeddings.file", progress)
    ids = [made.encode_words([word])[0] for word in ("the", "bird", "tree")]
    assert all(len(one) == 1 for one in ids)
    rows = [one[0] for one in ids]
    expected = torch.tensor(WordVectors.load(file).matrix[[0, 2, 3]])
    expected *= before.square().mean().sqrt() / expected.square().mean().sqrt()
    torch.testing.assert_close(embedding.weight[rows].detach(), expected)
    others = [row for row in range(len(made)) if row not in rows]
    assert torch.equal(embedding.weight[others], before[others])
    assert progress.said == [f"embeddings.file: 3 of {len(made)} tokens begin with vectors of {file}"]


@pytest.mark.parametrize("kind", sorted({*PRETRAINING} - {"bidirectional", "order"}))
def test_every_encoder_can_begin_with_them(kind: str, file: str, tmp_path: Path) -> None:
    recipe = parse_recipe(pretraining_values(kind, write_text(tmp_path / "text.txt")), "recipe")
    made, progress = tokenizer("wordpiece"), RecordedProgress()
    model = initial_model(recipe, made, Progress(quiet=True))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    initialise_token_embeddings(model, made, EmbeddingsConfig(file=file), progress)
    changed = {name for name, weight in model.state_dict().items() if not torch.equal(weight, before[name])}
    assert progress.said and changed and all(model.state_dict()[name].shape == (len(made), 16) for name in changed)


def test_both_sides_of_a_translator(file: str) -> None:
    made = tokenizer("wordpiece")
    model = nn.Module()
    model.source_embedding, model.target_embedding = nn.Embedding(len(made), 16), nn.Embedding(len(made), 16)
    progress, tokenizers = RecordedProgress(), type("Both", (), {"source": made, "target": made})
    initialise_translator_embeddings(model, tokenizers, SidesConfig(target=file), progress)
    assert [line.partition(":")[0] for line in progress.said] == ["embeddings.target"]


def test_what_does_not_fit_is_refused(file: str, tmp_path: Path) -> None:
    made, progress = tokenizer("wordpiece"), RecordedProgress()
    with pytest.raises(ConfigError, match="has width 16, the model's embeddings 8"):
        initialise_embedding(nn.Embedding(len(made), 8), made, file, "embeddings.file", progress)
    WordVectors(["unheard-of"], np.ones((1, 8))).save(tmp_path / "other")
    with pytest.raises(ConfigError, match="no token is a word of"):
        initialise_embedding(nn.Embedding(len(made), 8), made, str(tmp_path / "other"), "embeddings.file", progress)
    with pytest.raises(ConfigError, match="no token embedding"):
        initialise_token_embeddings(nn.Linear(2, 2), made, EmbeddingsConfig(file=file), progress)
    values = {**pretraining_values("masked", tmp_path / "text.txt"), "start": "runs/other", "embeddings": {"file": file}}
    with pytest.raises(ConfigError, match="start has embeddings of its own"):
        parse_recipe(values, "recipe")
