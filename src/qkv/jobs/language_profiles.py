"""Profiles of a translator's languages from pairs of texts, for a run that was trained elsewhere or before there were any."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qkv.base.errors import ConfigError, DataError
from qkv.data.corpora import check_corpus, sample_pairs
from qkv.data.workers import Work
from qkv.folder.language_profiles import ProfilePair, save_language_profiles
from qkv.folder.run import is_exported, read_recipe
from qkv.jobs.prepared_pairs import UNFILTERED
from qkv.recipes.abilities import require
from qkv.text.corpus import ParallelCorpusConfig
from qkv.text.language_profile import LanguageProfile


def make_language_profiles(run: str | Path, texts: Sequence[str | Path]) -> ProfilePair:
    """Store profiles of the languages of these pairs in the folder of a translator's run, in place of older ones.

    `texts` are files as data.train takes them.

    >>> make_language_profiles("runs/mine", ["train.tsv"])
    """
    folder = Path(run)
    if is_exported(folder):
        raise ConfigError(f"{folder} is an exported copy; make profiles for the run itself, and export it again")
    recipe: Any = read_recipe(folder)
    require(recipe, folder, "translator")
    corpora = [ParallelCorpusConfig(pairs=str(text)) for text in texts]
    checked = [check_corpus(corpus, UNFILTERED, recipe.data.languages, set(), Work()) for corpus in corpora]
    sample = list(sample_pairs(checked))
    found = ProfilePair(*(LanguageProfile.of(pair[side] for pair in sample) for side in (0, 1)))
    if None in found:
        raise DataError("the texts of a side have no letters; give files of pairs, as data.train takes them")
    save_language_profiles(folder, found)
    return found
