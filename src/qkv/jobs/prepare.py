"""Prepare the corpora of a recipe in the cache, without training: all of them, or a machine's share."""

from collections.abc import Callable
from typing import Any

from qkv.base.errors import ConfigError
from qkv.base.pool import LocalWorkers, Workers
from qkv.data.corpora import Checking
from qkv.data.documents import make_document_shards
from qkv.data.tokenised_pairs import make_shards
from qkv.data.workers import Work
from qkv.folder.start import complete_recipe
from qkv.jobs.inputs import check_inputs
from qkv.jobs.prepared_pairs import cached_tokenizers, pair_format, read_held_out, read_train, term_annotator
from qkv.jobs.pretraining import cached_tokenizer
from qkv.recipes import PretrainingRecipe, Recipe, TranslationRecipe
from qkv.text.documents import find_document_files
from qkv.training.progress import Progress


def prepare_corpora(
    recipe: Recipe,
    share: tuple[int, int] = (1, 1),
    processes: int | None = None,
    workers: Callable[..., Workers] = LocalWorkers,
) -> bool:
    """Make what is missing in the cache of a share (i, n) of the recipe's pieces; return whether everything is there then.

    Pieces that are there are read, and made again if they are damaged.
    """
    progress = Progress()
    recipe = complete_recipe(recipe)
    if recipe.job not in PREPARED:
        raise ConfigError(f"a recipe for {recipe.job} has no corpora to prepare: its examples are read when training starts")
    check_inputs(recipe)
    number, count = share
    work = Work(processes, quiet=not progress.live, say=None if progress.live else progress.say, workers=workers)
    missing = PREPARED[recipe.job](recipe, slice(number - 1, None, count), work, progress)
    if missing:
        progress.say(f"{missing}; run the same command on each machine again when the others are done")
    else:
        progress.say("all corpora are prepared; qkv train reads them from the cache")
    return not missing


def _prepare_translation(recipe: TranslationRecipe[Any, Any], share: slice, work: Work, progress: Progress) -> str:
    config, trees = recipe.data, recipe.model.reads_trees
    held_out = read_held_out(recipe, Progress(quiet=True)).hashes
    missing = 0
    for corpus in config.train:
        checking = Checking(corpus, config.check, config.languages, held_out, trees)
        missing += checking.make_pieces(checking.pieces(), work, share, thorough=True)
    if missing:
        return f"pieces not checked yet: {missing:,} (duplicates are found when all are checked)"
    train = read_train(config, held_out, work, progress, trees, thorough=True)
    tokenizers = cached_tokenizers(recipe, train, progress)
    how = pair_format(recipe, term_annotator(recipe))
    missing = sum(make_shards(corpus, tokenizers, how, work, share, thorough=True) for corpus in train)
    return f"token shards not made yet: {missing:,}" if missing else ""


def _prepare_pretraining(recipe: PretrainingRecipe[Any, Any], share: slice, work: Work, progress: Progress) -> str:
    files = find_document_files(recipe.data.text)
    tokenizer = cached_tokenizer(recipe, files, progress)
    missing = 0
    for found in filter(None, (files, find_document_files(recipe.data.dev))):
        whole = recipe.objective.whole_documents
        missing += make_document_shards(found, tokenizer, work, recipe.data.units, whole, share, thorough=True)
    return f"token shards not made yet: {missing:,}" if missing else ""


PREPARED: dict[str, Callable[..., str]] = {"translation": _prepare_translation, "pretraining": _prepare_pretraining}
