"""Chinese needs no words: characters are at least as good, since words are sparse (Li et al. 2019).

The artificial language is written without spaces, a character for each syllable and ending, and small GPTs read it by character,
by piece (unigram, without knowledge of words) or by word. Words are those that the writer meant: no segmenter makes mistakes
here. Updates, and characters in an update, are the same for all. What is compared is the loss for each character: a word that
was not seen twice in training is one unknown token, and is then spelled by the frequencies of characters, with its length for
free. The rival explanation is the unknown words alone, so that sentences without any are measured too. `--text` takes Chinese,
which jieba splits into words.
"""

import math
import re
from collections import Counter

import torch

from qkv.claims.claim import Cell, Claim, Measured
from qkv.claims.experiment import Result
from qkv.claims.language import training_text
from qkv.claims.pictures import Picture, stack, strip
from qkv.claims.probes import rows_of
from qkv.claims.training import GPT, train_text
from qkv.claims.verdict import Always, Higher, Lower
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from qkv.vectors.corpus import make_segmenter

SYLLABLE = re.compile(r"[^aeiou.][aeiou]|en|nt|t|ik|.")
LONGEST, ROW = 20, 120  # words in a line, characters in a row
KINDS = {
    "characters": {"kind": "characters"},
    "pieces": {"kind": "unigram", "vocab": 1200},
    "words": {"kind": "words", "min_count": 2, "vocab": 20000},
}


def segmented(cell: Cell) -> tuple[list[list[list[str]]], list[list[str]]]:
    """Return documents of lines of words, and lines to measure on; a word is a string of characters."""
    found: dict[str, str] = {}
    split = make_segmenter("jieba") if cell.text else str.split

    def words(line: str) -> list[str]:
        some = split(line)[:LONGEST]
        return some if cell.text else ["".join(found.setdefault(s, chr(0x4E00 + len(found))) for s in SYLLABLE.findall(w)) for w in some]

    train, dev = training_text(cell, cell["documents"], 60)
    return [[words(line) for line in lines] for lines in train], [words(line) for lines in dev for line in lines]


@torch.no_grad()
def line_losses(cell: Cell, gpt: torch.nn.Module, tokenizer: Tokenizer, lines: list[list[str]], letters: Counter[str]) -> list[float]:
    """Return the loss of each line, in nats; unknown words are spelled."""
    total, joint, found = letters.total() + len(letters) + 1, " " if cell["kind"] == "words" else "", list[float]()
    for line in lines:
        rows = rows_of(tokenizer, [joint.join(line)])
        ids = rows.ids[0, 1:-1].to(cell.device)
        logits = gpt.logits(gpt(type(rows)(*(x.to(cell.device) for x in rows[:3]))))[0, :-2].float()  # type: ignore[operator]
        loss = float(torch.nn.functional.cross_entropy(logits, ids, reduction="sum"))
        spelled = line if cell["kind"] == "words" else [*"".join(line)]
        unknown = [one for one, token in zip(spelled, ids.tolist(), strict=False) if token == tokenizer.unk]
        found.append(loss - sum(math.log((letters[letter] + 1) / total) for word in unknown for letter in word))
    return found


def measure(cell: Cell) -> Measured:
    """Train a GPT on text in one writing; return its loss for each character."""
    documents, dev = segmented(cell)
    joint, kind = " " if cell["kind"] == "words" else "", KINDS[cell["kind"]]
    texts = [[joint.join(words) for words in lines] for lines in documents]
    letters = Counter(letter for lines in documents for words in lines for word in words for letter in word)
    tokenizer = train_tokenizer(TokenizerConfig(**kind), (line for lines in texts for line in lines))
    ratio = sum(map(len, tokenizer.encode_batch([line for lines in texts for line in lines]))) / letters.total()
    shape = {"tokenizer": kind, "data.length": round(ROW * ratio), "training.batch_tokens": round(cell["characters"] * ratio)}
    run = train_text(cell, "gpt-mini", {**GPT, "model.positions": "rotary", **shape}, texts[30:], texts[:30], steps=cell["steps"])
    losses, lengths = line_losses(cell, run.model.encoder, tokenizer, dev, letters), [len("".join(line)) for line in dev]
    counts = Counter(word for lines in documents[30:] for words in lines for word in words)
    known = [all(counts[word] > 1 for word in line) for line in dev]
    guessing = -sum(count / letters.total() * math.log(count / letters.total()) for count in letters.values())
    nats = sum(losses) / sum(lengths)
    return {
        "nats": nats, "gain": guessing - nats, "unknown": sum(counts[w] < 2 for line in dev for w in line) / sum(map(len, dev)),
        "known": sum(x for x, k in zip(losses, known, strict=True) if k) / sum(x for x, k in zip(lengths, known, strict=True) if k),
        "length": 1 / ratio, "weights": run.parameters,
    }  # fmt: skip


def picture(result: Result) -> Picture:
    """Draw the losses, of all sentences and of those without unknown words."""
    return stack(strip(result, "nats"), strip(result, "known"))


CLAIM = Claim(
    topic="words",
    statement="Chinese is better read by character than by word, above all with little text.",
    source="Li et al. 2019, Is Word Segmentation Necessary for Deep Learning of Chinese Representations?, sections 3 and 5",
    measured="The loss of a GPT (2 layers of width 64) on held-out sentences of an artificial language without spaces, in nats a "
    "character, after as many updates on as many characters; with little text (500 documents) and with ten times as much.",
    prediction="With little text characters are at least 0.05 nats better than words, and pieces too. In sentences without "
    "unknown words characters are still at least 0.02 better. With ten times the text the gap is at least 0.05 smaller.",
    explanation="Chinese writes no spaces, and nobody is sure where words end. Who learns words must see every word often. Who "
    "learns characters meets the few thousand characters again and again, and a new word is an old pair of characters.",
    formula="nats a character = −log p(tokens of a text) / characters of the text",
    changes="Syllables here mean nothing, only endings do; Chinese characters carry meaning, which is one more reason for "
    "them. A segmenter makes mistakes, which hurts words. A deep network on much text finds words by itself.",
    variants={
        f"{kind}, {word} text": {"kind": kind, "documents": documents}
        for word, documents in (("little", 500), ("much", 5000))
        for kind in KINDS
    },
    sizes={"cpu": {"steps": 500, "characters": 1024}, "quick": {"steps": 150}},
    measure=measure,
    uses_text=True,
    units={
        "nats": "loss, nats a character",
        "known": "loss in sentences without unknown words",
        "gain": "nats saved beside frequencies of characters",
        "unknown": "unknown words",
        "length": "characters in a token",
        "weights": "weights",
    },
    parts=(
        Lower("with little text characters beat words", "nats", "characters, little text", "words, little text", by=0.05),
        Lower("with little text pieces beat words", "nats", "pieces, little text", "words, little text", by=0.05),
        Lower("not only by unknown words", "known", "characters, little text", "words, little text", by=0.02),
        Lower(
            "with more text words catch up", "nats", ("words, much text", "characters, much text"),
            ("words, little text", "characters, little text"), by=0.05,
        ),
    ),
    controls=(
        Always("little text has unknown words", "unknown", "words, little text", at_least=0.01),
        *(Higher(f"{kind} are learned", "gain", f"{kind}, much text", than=0.0, by=0.5) for kind in ("characters", "words")),
    ),
    picture=picture,
)  # fmt: skip
