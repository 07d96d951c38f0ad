"""Lessons: a run's own numbers on some sentences, for a class."""

import datetime
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from qkv.base.errors import ConfigError, DataError, QkvError
from qkv.inference.arguments import require_texts
from qkv.inference.load import inspectable
from qkv.inference.predictors import encoder_predictor, generator_predictor, translator_predictor
from qkv.inference.writing import trace_generation, trace_translation
from qkv.lens.layer_predictions import LayerPredictions, predict_by_layer
from qkv.lens.lesson import Lesson
from qkv.lens.lesson.material import Material, make_material
from qkv.lens.steps import SearchView, view_search
from qkv.text.corpus import read_pairs
from qkv.text.documents import DocumentCounts, find_document_files, read_documents
from qkv.text.tokenizer import MASK

SENTENCES = 2  # of a lesson by default
MAX_SENTENCES = 12
SHORTEST, LONGEST = 5, 9  # words of a sentence that is chosen from dev texts
SEARCHED = 2_000  # dev texts among which sentences are chosen
NEW_TOKENS = 8  # that a GPT writes
TOP = 5
DEFAULTS = {
    "en": ("A brown dog runs through the grass.", "Two children are playing in the park."),
    "de": ("Ein brauner Hund läuft durch das Gras.", "Zwei Kinder spielen im Park."),
    "fr": ("Un chien brun court dans l'herbe.", "Deux enfants jouent dans le parc."),
    "es": ("Un perro marrón corre por la hierba.", "Dos niños juegan en el parque."),
    "zh": ("一只棕色的狗在草地上奔跑。", "两个孩子在公园里玩。"),
}
WORD = re.compile(r"[^\W\d_]{3,}|[\u3400-\u9fff]")


def lesson(run: Any, sentences: Sequence[str] | None = None, device: str = "auto") -> Lesson:
    """Make a lesson of a run, or of a loaded one: six steps from words to its output, with its own numbers.

    `sentences` are by default some of the run's dev texts, or sentences in the source language if those are not there. An
    encoder predicts a [MASK]; in a sentence without one, the longest word is hidden.

    >>> qkv.lesson("runs/mine", ["A dog runs."]).save("lesson.html")
    """
    given = None if sentences is None else require_texts(sentences, "lesson", "sentence")
    if given is not None and not 1 <= len(given) <= MAX_SENTENCES:
        raise ConfigError(f"lesson takes 1 to {MAX_SENTENCES} sentences, got {len(given)}")
    loaded = inspectable(run, device, "lesson")
    recipe = loaded.recipe
    folder = loaded.folder if loaded.loads_as == "translator" else loaded.run.folder
    make = {"translator": _translated, "generator": _continued, "encoder": _filled}[loaded.loads_as]
    made = [make(loaded, text) for text in given or default_sentences(loaded)]
    name = recipe.model.kind if folder is None else Path(folder).resolve().name
    return Lesson(name, datetime.datetime.now(tz=datetime.UTC).date().isoformat(), made)


def _translated(loaded: Any, text: str) -> Material:
    inspector = loaded.inspect(text)
    search = None
    if not loaded.trees and loaded.can_begin(loaded.in_one_part(text), loaded.decoding()):
        search = view_search(trace_translation(loaded, text, TOP))
    layers = None
    if inspector.layers():  # an rnn has none that add to one state
        layers = predict_by_layer(translator_predictor(loaded, inspector), TOP)
    return make_material(inspector, text, layers, search)


def _continued(loaded: Any, text: str) -> Material:
    search: SearchView = view_search(trace_generation(loaded, text, TOP, NEW_TOKENS))
    inspector = loaded.inspect(text, search.output)
    layers: LayerPredictions = predict_by_layer(generator_predictor(loaded, loaded.prompt(text)), TOP)
    return make_material(inspector, text, layers, search)


def _filled(loaded: Any, text: str) -> Material:
    encoder = loaded.model.encoder
    if loaded.trees or "masked" not in loaded.model.heads or getattr(encoder, "fill_head", None) != "masked":
        raise ConfigError(
            "a lesson on an encoder ends with a hidden word, and this run has no head that predicts it; use a pretrained BERT, "
            "ALBERT, ERNIE or UniLM"
        )
    masked, given = (text, None) if MASK in text else hide_word(text)
    return make_material(loaded.inspect(masked), masked, predict_by_layer(encoder_predictor(loaded, masked), TOP), None, given)


def hide_word(text: str) -> tuple[str, str]:
    """Put [MASK] in the place of a text's longest word, the last one of several; return the text and the word."""
    words = [*WORD.finditer(text)]
    if not words:
        raise DataError(
            f"the sentence {text!r} has no word of three letters to hide; write {MASK} where a word is to be predicted"
        )
    longest = max(words, key=lambda found: (len(found[0]), found.start()))
    return text[: longest.start()] + MASK + text[longest.end() :], longest[0]


def default_sentences(loaded: Any) -> list[str]:
    """Return short dev texts of a run, or else sentences in its source language; for a GPT without their last word."""
    recipe = loaded.recipe
    if loaded.trees:
        raise ConfigError('this model reads texts with heads; give sentences such as {"text": "good dogs", "heads": [2, 0]}')
    try:
        found = list(itertools.islice(_short(itertools.islice(_dev_texts(recipe), SEARCHED)), SENTENCES))
    except (QkvError, OSError):  # the files are no longer there, or the run was trained elsewhere
        found = []
    languages = getattr(recipe.data, "languages", None)
    found = found or list(DEFAULTS.get(languages[0][:2] if languages else "en", DEFAULTS["en"]))
    return [text[: [*WORD.finditer(text)][-1].start()].rstrip() for text in found] if loaded.loads_as == "generator" else found


def _dev_texts(recipe: Any) -> Iterator[str]:
    """Yield dev texts: sources of pairs, or sentences of documents."""
    if recipe.job == "translation":
        for corpus in recipe.data.dev:
            yield from (pair.source for pair in read_pairs(corpus, recipe.data.languages))
    elif recipe.job == "pretraining":
        for document in read_documents(find_document_files(recipe.data.dev or recipe.data.text), DocumentCounts()):
            yield from document.sentences


def _short(texts: Iterator[str]) -> Iterator[str]:
    """Yield texts of few words that are sentences."""
    for text in texts:
        words = WORD.findall(text)
        spaced = len(text.split())
        if SHORTEST <= (spaced if spaced > 1 else len(words)) <= LONGEST and text.rstrip()[-1:] in ".。!?！？":
            yield text.strip()
