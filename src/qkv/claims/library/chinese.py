"""Chinese needs no words: characters are at least as good, since words are sparse (Li et al. 2019).

The artificial language is written without spaces, a character for each syllable and ending, and small GPTs read it by character,
by piece (unigram, without knowledge of words) or by word. Words are those that the writer meant: no segmenter makes mistakes
here. Updates, and characters in an update, are the same for all. What is compared is the loss for each character: a word that
was not seen twice in training is one unknown token, and is then spelled by the frequencies of characters, with its length for
free. The rival explanation is the unknown words alone, so that sentences without any are measured too. `--text` takes Chinese,
which jieba splits into words. Words learn fast, and then by heart: each is judged at its best point of training.
"""

import math
import re
from collections import Counter
from typing import Any

from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.language import training_text
from qkv.claims.pictures import strip
from qkv.claims.probes import line_loss
from qkv.claims.training import GPT, Watch, train_text
from qkv.claims.verdict import Always, Higher, Lower
from qkv.folder.run import load_tokenizers
from qkv.jobs.job import Job
from qkv.text.tokenizer import TokenizerConfig, train_tokenizer
from qkv.vectors.corpus import make_segmenter

Line = list[str]  # of words
SYLLABLE = re.compile(r"[^aeiou.][aeiou]|en|nt|t|ik|.")
LONGEST, ROW, LOOKS = 20, 120, 8  # words in a line, characters in a row, points of training
KINDS: dict[str, dict[str, Any]] = {
    "characters": {"kind": "characters"},
    "pieces": {"kind": "unigram", "vocab": 1200},
    "words": {"kind": "words", "min_count": 2, "vocab": 20000},
}


def segmented(cell: Cell) -> tuple[list[list[Line]], list[Line]]:
    """Return documents of lines of words, and lines to measure on; a word is a string of characters."""
    characters: dict[str, str] = {}
    split = make_segmenter("jieba") if cell.text else str.split

    def spelled(word: str) -> str:
        return "".join(characters.setdefault(one, chr(0x4E00 + len(characters))) for one in SYLLABLE.findall(word))

    def words(line: str) -> Line:
        return [word if cell.text else spelled(word) for word in split(line)[:LONGEST]]

    train, dev = training_text(cell, cell["documents"], 60, nouns=100, verbs=40, adjectives=30)
    return [[words(line) for line in lines] for lines in train], [words(line) for lines in dev for line in lines]


def measure(cell: Cell) -> Measured:
    """Train a GPT on text in one writing; return its loss for each character, at the best of some points of training."""
    documents, dev = segmented(cell)
    joint, kind = " " if cell["kind"] == "words" else "", KINDS[cell["kind"]]
    lines = [joint.join(words) for some in documents for words in some]
    counts = Counter(word for some in documents for words in some for word in words)
    letters = Counter("".join(lines).replace(" ", ""))
    ratio = sum(map(len, train_tokenizer(TokenizerConfig(**kind), lines).encode_batch(lines))) / letters.total()
    lengths, known = [len("".join(words)) for words in dev], [min(counts[word] for word in words) > 1 for words in dev]
    seen: list[tuple[float, float]] = []  # loss for each character, of all lines and of those without unknown words

    def change(job: Job) -> Watch:
        found = load_tokenizers(cell.folder / "run")
        assert found is not None

        def look(step: int) -> None:
            units = [words if joint else [*"".join(words)] for words in dev]
            losses = [line_loss(job.model.encoder, found.source, one, joint.join(one), letters) for one in units]
            few = [(loss, length) for loss, length, all_known in zip(losses, lengths, known, strict=True) if all_known]
            seen.append((sum(losses) / sum(lengths), sum(x for x, _ in few) / max(1, sum(n for _, n in few))))

        return look

    settings = {
        **GPT, "model.positions": "rotary", "tokenizer": kind, "data.length": round(ROW * ratio),
        "training.batch_tokens": round(cell["characters"] * ratio), "training.validate_every": cell["steps"] // LOOKS,
    }  # fmt: skip
    texts = [[joint.join(words) for words in some] for some in documents]
    run = train_text(cell, "gpt-mini", settings, texts, texts[:30], steps=cell["steps"], change=change)
    guessing = sum(count * math.log(letters.total() / count) for count in letters.values()) / letters.total()
    unknown = [counts[word] < 2 for words in dev for word in words]
    return {
        "nats": min(seen)[0], "known": min(seen)[1], "gain": guessing - min(seen)[0], "unknown": sum(unknown) / len(unknown),
        "length": 1 / ratio, "weights": run.parameters,
    }  # fmt: skip


CLAIM = Claim(
    topic="words",
    statement="Chinese is better read by character than by word, above all with little text.",
    source="Li et al. 2019, Is Word Segmentation Necessary for Deep Learning of Chinese Representations?, sections 3 and 5",
    measured="The loss of a GPT (2 layers of width 64) on held-out sentences of an artificial language without spaces, in nats a "
    "character, at the best of 8 points of training; with little text (200 documents) and with ten times as much.",
    prediction="With little text characters are at least 0.05 nats better than words, and pieces too. In sentences without "
    "unknown words characters are still at least 0.02 better. With ten times the text the gap is at least 0.05 smaller.",
    explanation="Chinese writes no spaces, and nobody is sure where words end. Who learns words must see every word often. Who "
    "learns characters meets the few thousand characters again and again, and a new word is an old pair of characters.",
    formula="nats a character = −log p(tokens of a text) / characters of the text",
    changes="Syllables here mean nothing, only endings do; Chinese characters carry meaning, which is one more reason for "
    "them. A segmenter makes mistakes, which hurts words. A deep network on much text finds words by itself.",
    revised="After pilots with seed 1, in which hardly a word was unknown, there are more words and less text.",
    variants={
        f"{kind}, {word} text": {"kind": kind, "documents": documents}
        for word, documents in (("little", 200), ("much", 2000))
        for kind in KINDS
    },
    sizes={"cpu": {"steps": 800, "characters": 1024}, "quick": {"steps": 240}},
    measure=measure,
    uses_text=True,
    units={
        "nats": "loss, nats a character", "known": "loss in sentences without unknown words",
        "gain": "nats saved beside frequencies of characters", "unknown": "unknown words", "length": "characters in a token",
        "weights": "weights",
    },
    parts=(
        Lower("with little text characters beat words", "nats", "characters, little text", "words, little text", by=0.05),
        Lower("not only by unknown words", "known", "characters, little text", "words, little text", by=0.02),
        Lower(
            "with more text words catch up", "nats", ("words, much text", "characters, much text"),
            ("words, little text", "characters, little text"), by=0.05,
        ),
    ),
    further=(
        Lower("with little text pieces beat words", "nats", "pieces, little text", "words, little text", by=0.05),
    ),
    controls=(
        Always("little text has unknown words", "unknown", "words, little text", at_least=0.01),
        *(Higher(f"{kind} are learned", "gain", f"{kind}, much text", than=0.0, by=0.5) for kind in ("characters", "words")),
    ),
    picture=[strip("nats"), strip("known")],
)  # fmt: skip
