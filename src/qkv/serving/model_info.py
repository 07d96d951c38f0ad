"""What GET /models says of a model: what it is, what it can do, how good it is, and texts to try it with."""

from dataclasses import asdict
from typing import Any

from qkv.folder.summary import EXAMPLES, RunSummary, summarise_run
from qkv.serving.base_handler import Handler
from qkv.serving.registry import ServedModel
from qkv.text.tokenizer import Tokenizer

TEXTS = {  # of translators, by their source language
    "en": ["A dog runs through the grass.", "How are you?", "Where is the station?"],
    "de": ["Ein Hund läuft durch das Gras.", "Wie geht es dir?", "Wo ist der Bahnhof?"],
    "fr": ["Un chien court dans l'herbe.", "Comment vas-tu ?", "Où est la gare ?"],
    "es": ["Un perro corre por la hierba.", "¿Cómo estás?", "¿Dónde está la estación?"],
    "zh": ["一只狗在草地上跑。", "你好吗？", "车站在哪里？"],
}
MASKED = {
    "en": ["Paris is the [MASK] of France.", "The [MASK] sleeps on the sofa.", "She has lived in [MASK] for ten years."],
    "zh": ["北京是中国的首[MASK]。", "我每天早上喝一[MASK]茶。", "今天天气很[MASK]。"],
}
BEGINNINGS = {"en": ["Once upon a time", "The city of London", "In the beginning"], "zh": ["从前有", "北京是", "今天天气"]}
LABELLED: dict[str | None, list[Any]] = {
    "text": ["A very good film.", "The end is far too long.", "I would see it again."],
    "pair": [["A man sleeps.", "Somebody is asleep."], ["A dog runs.", "A cat sits still."], ["It rains.", "The street is wet."]],
    "words": [["Anna", "lives", "in", "Paris"], ["He", "works", "for", "Siemens"], ["The", "Rhine", "is", "long"]],
    "question": [["Where does Anna live?", "Anna lives in Paris."], ["Who won?", "In the end Italy won the game."]],
}
NAMES = {"translator": "Translator", "encoder": "Encoder", "generator": "Language model", "infiller": "Text infiller"}
PIECES = 3000  # of a vocabulary, whose first ones tell its script
WORDS = slice(300, 3000)  # of word vectors: neither the most frequent ones, which are function words, nor rare ones


def model_info(model: ServedModel[Any]) -> dict[str, Any]:
    """Return the entry of a model."""
    handler: Any = model.handler
    loaded = getattr(handler, "loaded", None) or getattr(handler, "infiller", None)
    summary = summarise_run(getattr(loaded, "folder", None))
    return {
        "id": model.name,
        "kind": handler.kind,
        "can": handler.abilities,
        "languages": handler.languages and list(handler.languages),
        "takes": handler.input_format,
        "trees": handler.reads_trees,
        "parameters": handler.parameters,
        "description": {"text": describe(handler, summary), **{n: v for n, v in asdict(summary).items() if n != "examples"}},
        "examples": summary.examples or default_examples(handler),
    }


def describe(handler: Handler, summary: RunSummary) -> str:
    """Return one or two sentences on a model: what it is, what it was trained on, and how good it is."""
    if handler.kind == "vectors":
        vectors: Any = handler
        return f"Word vectors of {len(vectors.vectors):,} words, {vectors.vectors.width} numbers each."
    named = f" from {handler.languages[0]} to {handler.languages[1]}" if handler.languages else ""
    return summary.sentence(f"{NAMES[handler.kind]}{named}")


def default_examples(handler: Any) -> list[Any]:
    """Return texts to try a model with, where its run has recorded none."""
    if handler.kind == "vectors":
        words = handler.vectors.words
        return ([word for word in words[WORDS] if word.isalpha() and len(word) > 3] or words)[:EXAMPLES]
    if handler.kind == "translator":
        language = (handler.languages or ("en", ""))[0].replace("_", "-").split("-")[0].lower()
        return TEXTS.get(language, TEXTS["en"])
    if "predict" in handler.abilities:
        return LABELLED[handler.input_format]
    texts = BEGINNINGS if handler.kind == "generator" else MASKED
    return texts["zh" if _writes_chinese(handler.tokenizer) else "en"]


def _writes_chinese(tokenizer: Tokenizer) -> bool:
    """Return whether a fifth of the first pieces of a vocabulary are Chinese characters."""
    pieces = tokenizer.pieces([*range(min(PIECES, len(tokenizer)))])
    return sum(any("一" <= letter <= "鿿" for letter in piece) for piece in pieces) > len(pieces) / 5
