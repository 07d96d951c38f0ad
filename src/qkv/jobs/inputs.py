"""Checks of all that a recipe names, before any work: the device, files, tokenizers, word vectors, the run to start from.

What is wrong with a few lines of a long file shows later, when the file is read.
"""

from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from qkv.base.errors import CheckpointError, ConfigError, DataError
from qkv.base.hardware import choose_device
from qkv.folder.run import find_weights, read_run
from qkv.jobs.pretraining import check_tokenizer
from qkv.recipes import FinetuningRecipe, PretrainingRecipe, Recipe, TranslationRecipe
from qkv.text.corpus import ParallelCorpusConfig, TextPair, corpus_files, read_pairs, table_layouts
from qkv.text.documents import DocumentCounts, find_document_files, read_documents
from qkv.text.files import find_input_files
from qkv.text.glossary import Glossary
from qkv.text.tokenizer import Tokenizer, TokenizerConfig
from qkv.text.vocabulary_growth import check_growable
from qkv.training.checkpoints import weight_files
from qkv.training.trackers import check_trackers
from qkv.vectors.formats import detect_format

LOOKED_AT = 1000  # pairs, to find one that can be used


def check_inputs(recipe: Recipe) -> None:
    """Raise an error if something that the recipe names is missing or empty."""
    choose_device(recipe.training.device)
    check_trackers(recipe.training.trackers)
    if recipe.training.shard and not recipe.model.shardable:
        raise ConfigError(f"the weights of model.kind={recipe.model.kind} cannot be sharded; leave training.shard out")
    if recipe.start is not None:
        start = Path(recipe.start)
        started, _ = read_run(start)
        weights = find_weights(start, started).path
        if not weight_files(weights):
            raise CheckpointError(f"{weights}: no such file; is this a run folder whose training has saved something?")
    CHECKS[recipe.job](recipe)


def _check_translation(recipe: TranslationRecipe[Any, Any]) -> None:
    data = recipe.data
    splits = {name: getattr(data, name) for name in ("train", "dev", "test", "also_test")}
    for corpora in splits.values():
        for corpus in corpora:
            corpus_files(corpus)
            table_layouts(corpus, data.languages)  # refuses files whose columns must be named
    for name, corpora in splits.items():
        first = list(_first_pairs(recipe, corpora))
        if corpora and len(first) < LOOKED_AT and not any(map(_is_usable, first)):
            why = next(
                (f" ({pair.file or corpora[0].name}, line {pair.line}: {pair.problem})" for pair in first if pair.problem), ""
            )
            raise DataError(f"no {name} pairs are usable; data.{name} must name a file with at least one pair{why}")
    if data.glossary is not None:
        Glossary.read(data.glossary)
    if recipe.tokenizer is not None:
        for wanted in (recipe.tokenizer.shared, recipe.tokenizer.source, recipe.tokenizer.target):
            _load_tokenizer(wanted)
        if recipe.start is not None and recipe.tokenizer.grow is not None:
            for tokenizer in read_run(Path(recipe.start))[1]:
                check_growable(tokenizer)
    if recipe.embeddings is not None:
        for file in (recipe.embeddings.source, recipe.embeddings.target):
            if file is not None:
                detect_format(Path(file))


def _first_pairs(recipe: TranslationRecipe[Any, Any], corpora: tuple[ParallelCorpusConfig, ...]) -> Iterator[TextPair]:
    """Yield the first pairs of some corpora, up to the first that can be used."""
    trees = recipe.model.reads_trees
    pairs = chain.from_iterable(read_pairs(corpus, recipe.data.languages, trees) for corpus in corpora)
    for pair in islice(pairs, LOOKED_AT):
        yield pair
        if _is_usable(pair):
            return


def _is_usable(pair: TextPair) -> bool:
    return not pair.problem and bool(pair.source.strip() and pair.target.strip())


def _check_pretraining(recipe: PretrainingRecipe[Any, Any]) -> None:
    for pattern in (*recipe.data.text, *recipe.data.dev):
        next(read_documents(find_document_files([pattern]), DocumentCounts(), whole=True))  # refuses files without text
    if (tokenizer := _load_tokenizer(recipe.tokenizer)) is not None:
        check_tokenizer(recipe, tokenizer, recipe.tokenizer.file)  # type: ignore[union-attr]
    if recipe.embeddings is not None:
        detect_format(Path(recipe.embeddings.file))


def _check_finetuning(recipe: FinetuningRecipe[Any, Any]) -> None:
    # The examples themselves are all read before any is tokenised.
    for pattern in (*recipe.data.train, *recipe.data.dev, *recipe.data.test):
        find_input_files(pattern)
    _load_tokenizer(recipe.tokenizer)
    if recipe.embeddings is not None:
        detect_format(Path(recipe.embeddings.file))


def _load_tokenizer(config: TokenizerConfig | None) -> Tokenizer | None:
    """Load the tokenizer that a config names; None where one is to be trained."""
    return None if config is None or config.file is None else Tokenizer.load(Path(config.file).expanduser())


CHECKS: dict[str, Callable[[Any], None]] = {
    "translation": _check_translation,
    "pretraining": _check_pretraining,
    "finetuning": _check_finetuning,
}
