"""A smaller copy of a translator's run: pieces of its vocabulary that some texts do not need are dropped, with their weights."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from qkv.base.config import dump_yaml
from qkv.base.errors import ConfigError, DataError
from qkv.base.files import atomic_folder
from qkv.data.corpora import Tokenizers, check_corpus
from qkv.data.tokenised_pairs import CHUNK
from qkv.data.tokens import chunks
from qkv.data.workers import Work
from qkv.folder.language_profiles import copy_language_profiles
from qkv.folder.networks import TranslatorRun, read_translator_run
from qkv.folder.run import CONFIG, WEIGHTS, read_recipe, save_config, save_tokenizers
from qkv.jobs.prepared_pairs import UNFILTERED
from qkv.parts.vocabulary_rows import change_vocabularies
from qkv.recipes import RECIPE
from qkv.recipes.abilities import require
from qkv.text.corpus import ParallelCorpusConfig
from qkv.text.vocabulary_reduction import keep_pieces, needed_pieces
from qkv.training.checkpoints import named_weights, save_weights


class RunSize(NamedTuple):
    """The size of a translator's run."""

    pieces: tuple[int, int]  # of the vocabularies of source and target
    parameters: int


def shrink(run: str | Path, texts: Sequence[str | Path], out: str | Path) -> tuple[RunSize, RunSize]:
    """Write the run `out`: a translator's run without the pieces that these pairs of texts do not need.

    `texts` are files as data.train takes them. -> the sizes before and after.

    >>> shrink("runs/mine", ["train.tsv"], out="runs/small")
    (RunSize(pieces=(8000, 8000), parameters=5123456), RunSize(pieces=(3120, 3120), parameters=3874176))
    """
    folder, smaller = Path(run), Path(out)
    if smaller.exists():
        raise ConfigError(f"{smaller} exists already; choose another --out")
    require(read_recipe(folder), folder, "translator")
    found = read_translator_run(folder)
    found.weights_file.warn_if_unfinished()
    model = found.model()
    old = found.tokenizers
    kept = [needed_pieces(tokenizer, used) for tokenizer, used in zip(old, _used_ids(found, texts), strict=True)]
    if old.shared or model.source_embedding is model.target_embedding:
        kept = [kept[0] | kept[1]] * 2
    source, target = map(sorted, kept)
    before = RunSize((len(old.source), len(old.target)), sum(weight.numel() for weight in named_weights(model).values()))
    if before.pieces == (len(source), len(target)):
        raise ConfigError(f"{folder}: these texts need all {len(source):,} pieces, so that nothing can be dropped")
    weights = change_vocabularies(model, [[number] for number in source], [[number] for number in target])
    first = keep_pieces(old.source, source)
    tokenizers = Tokenizers(first, first if old.shared else keep_pieces(old.target, target))
    _write(smaller, found, tokenizers, weights)
    return before, RunSize((len(source), len(target)), sum(weight.numel() for weight in weights.values()))


def _used_ids(found: TranslatorRun, texts: Sequence[str | Path]) -> tuple[set[int], set[int]]:
    """Return the ids that the sources and the targets of some files use; sources also with each task prefix of the run."""
    sources, targets = set[int](), set[int]()
    prefixes = [f"{prefix} " for prefix in found.recipe.data.prefixes] or [""]
    for chunk in chunks(_pairs(found.recipe, texts), CHUNK):
        for prefix in prefixes:
            for ids in found.tokenizers.source.encode_batch([f"{prefix}{source}" for source, _ in chunk]):
                sources.update(ids)
        for ids in found.tokenizers.target.encode_batch([target for _, target in chunk]):
            targets.update(ids)
    if not sources:
        raise DataError("there is no pair in these texts; give files of pairs, as data.train takes them")
    return sources, targets


def _pairs(recipe: Any, texts: Sequence[str | Path]) -> Iterator[tuple[str, str]]:
    for text in texts:
        corpus, trees = ParallelCorpusConfig(pairs=str(text)), recipe.model.reads_trees
        yield from check_corpus(corpus, UNFILTERED, recipe.data.languages, set(), Work(), trees=trees)


def _write(folder: Path, found: TranslatorRun, tokenizers: Tokenizers, weights: dict[str, Any]) -> None:
    """Write a run's folder like that of a run with other tokenizers and weights."""
    about = json.loads((found.folder / CONFIG).read_text())
    more = {key: about[key] for key in about if key not in ("layout", "model", "vocabularies", "tokenizers", "texts")}
    with atomic_folder(folder) as aside:
        save_tokenizers(aside, tokenizers)
        copy_language_profiles(found.folder, aside)
        save_config(aside, found.recipe, tokenizers, about["texts"], **more)
        (aside / RECIPE).write_text(dump_yaml(found.recipe), encoding="utf-8")
        save_weights(aside / WEIGHTS, weights)
