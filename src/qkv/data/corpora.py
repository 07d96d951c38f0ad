"""From files to tokenised pairs; checked text and token ids stay in a cache that is keyed by content."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from qkv.base.errors import DataError
from qkv.base.files import atomic_folder
from qkv.data.cache import cache_folder, cache_key, cached_digest, lock_folder, progress_bar
from qkv.data.tokens import META, TokenPairs, chunks, file_fingerprint, open_texts, write_texts
from qkv.data.trees import PLAIN, SourceFormat, TokensWithHeads, encode_sources
from qkv.text.annotated_terms import TermAnnotator, annotate
from qkv.text.check import CheckConfig, CheckReport, check_pairs
from qkv.text.corpus import ParallelCorpusConfig, corpus_files, read_pairs, reader_versions
from qkv.text.protected_text import PATTERNS, compile_patterns, find_spans, has_letters, outside_spans
from qkv.text.sentences import split_sentences
from qkv.text.sentinels import encode_pieces, mask_pair
from qkv.text.tokenizer import Tokenizer
from qkv.text.treebank import TextWithHeads

PAIRS, REPORT = "pairs.tsv", "report.json"
TOO_LONG = "too long"  # the count of pairs with too many tokens
CHUNK = 10_000  # pairs tokenised together
SOURCE_SAMPLE = 20_000  # sources of a corpus that SourceStatistics are counted on
ANY_SPAN = "\ufffc"  # stands for a sentinel where terms are looked for: no letter, so that a word ends at it


class Tokenizers(NamedTuple):
    """The tokenizers of source and target; the same one twice when the vocabulary is shared."""

    source: Tokenizer
    target: Tokenizer

    @property
    def shared(self) -> bool:
        return self.source is self.target


class SourceStatistics(NamedTuple):
    """Shares of training sources, by which a translator prepares texts; None where they are not known."""

    several_sentences: float | None = None  # sources with more than one sentence
    without_letters: float | None = None  # sources without a letter outside of placeholders


@dataclass(frozen=True)
class CheckedCorpus:
    """A corpus after checking: a file with one pair a line (source, target, heads, separated by tabs), and the report."""

    pairs: Path
    report: CheckReport
    key: str
    trees: bool = False  # whether sources come with heads

    def __iter__(self) -> Iterator[tuple[str, str]]:
        with self.pairs.open(encoding="utf-8", newline="\n") as file:
            for line in file:
                source, target, *heads = line.rstrip("\n").split("\t")
                yield TextWithHeads(source, [int(head) for head in heads[0].split()]) if heads else source, target


def check_corpus(
    corpus: ParallelCorpusConfig,
    rules: CheckConfig,
    languages: tuple[str, str] | None,
    held_out: set[int],
    quiet: bool,
    trees: bool = False,
) -> CheckedCorpus:
    """Return the usable pairs of a corpus, from the cache when its files, the rules and the held-out texts are the same."""
    unsaid = {"weight", "pairs", "source", "target"} | ({"prefix"} if not corpus.prefix else set())
    options = corpus.model_dump(mode="json", exclude=unsaid)
    files = [(path.suffixes, cached_digest(path)) for path in corpus_files(corpus)]
    # Without newer readers a key stays what it was, so that older runs still know their texts.
    versions = [found] if (found := reader_versions(corpus, languages)) else []
    content = [[options, files, *versions], rules.model_dump(mode="json"), languages, cache_key(sorted(held_out))]
    key = cache_key([*content, "trees"] if trees else content)
    folder = cache_folder() / "checked" / key
    report = _known_report(folder)
    if report is None:
        with lock_folder(folder):
            report = _known_report(folder) or _check(folder, corpus, rules, languages, held_out, quiet, trees)
    return CheckedCorpus(folder / PAIRS, report, key, trees)


def _check(
    folder: Path,
    corpus: ParallelCorpusConfig,
    rules: CheckConfig,
    languages: tuple[str, str] | None,
    held_out: set[int],
    quiet: bool,
    trees: bool,
) -> CheckReport:
    """Read the files of a corpus and write its usable pairs into the cache."""
    report = CheckReport()
    with atomic_folder(folder) as aside, progress_bar("checking", "pairs", quiet) as count:
        with (aside / PAIRS).open("w", encoding="utf-8", newline="\n") as file:
            for source, target in check_pairs(count(read_pairs(corpus, languages, trees)), rules, report, held_out):
                heads = "\t" + " ".join(map(str, source.heads)) if isinstance(source, TextWithHeads) else ""
                file.write(f"{source}\t{target}{heads}\n")
        found = {"pairs": file_fingerprint(aside / PAIRS), "report": report.as_dict()}
        (aside / REPORT).write_text(json.dumps(found))
    return report


def _known_report(folder: Path) -> CheckReport | None:
    """Return the report in the cache; None where there is none yet, or it is damaged."""
    try:
        known = json.loads((folder / REPORT).read_text())
        return CheckReport.from_dict(known["report"]) if file_fingerprint(folder / PAIRS) == known["pairs"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def count_sources(corpora: Sequence[CheckedCorpus]) -> SourceStatistics:
    """Return the statistics of sources, in a sample of each corpus."""
    read = several = without = 0
    for corpus in corpora:
        step = 1 + corpus.report.kept // SOURCE_SAMPLE
        for source, _ in islice(corpus, 0, None, step):
            read += 1
            several += len(split_sentences(source)) > 1
            without += not has_letters(outside_spans(source, find_spans(source, compile_patterns())))
    return SourceStatistics(several / max(1, read), without / max(1, read))


def tokenise_corpus(
    corpus: CheckedCorpus,
    tokenizers: Tokenizers,
    max_tokens: int,
    quiet: bool,
    source_format: SourceFormat = PLAIN,
    protect: bool = False,
    annotator: TermAnnotator | None = None,
) -> tuple[TokenPairs, int]:
    """Return a corpus as token ids, mapped into memory, and the number of pairs that were too long.

    `protect` puts sentinels in place of placeholders; `annotator` puts translations after terms of sources.
    """
    content = [corpus.key, *(t.fingerprint() for t in tokenizers), max_tokens]
    content += [name for name, there in source_format._asdict().items() if there]
    content += ["protect", PATTERNS] if protect else []
    content += ["glossary", annotator.key] if annotator else []
    key = cache_key(content)
    folder = cache_folder() / "tokens" / key
    found = _known_tokens(folder)
    if found is None:
        with lock_folder(folder):
            encoded = _encode(corpus, tokenizers, max_tokens, quiet, source_format, protect, annotator)
            found = _known_tokens(folder) or _tokenise(folder, encoded, tokenizers, max_tokens, corpus.trees)
    return found


def _known_tokens(folder: Path) -> tuple[TokenPairs, int] | None:
    """Return the token ids in the cache; None where there are none yet, or they are damaged."""
    try:
        return TokenPairs(**open_texts(folder)), int(json.loads((folder / META).read_text())["counts"][TOO_LONG])
    except (DataError, OSError, ValueError, KeyError, TypeError):
        return None


def _tokenise(
    folder: Path, encoded: Iterable[tuple[list[int], list[int]]], tokenizers: Tokenizers, max_tokens: int, trees: bool
) -> tuple[TokenPairs, int]:
    """Write the pairs that are short enough into the cache."""
    counts = {TOO_LONG: 0}

    def short_pairs() -> Iterator[tuple[list[int], ...]]:
        for source, target in encoded:
            # The target also needs a position for its eos.
            if len(source) <= max_tokens and len(target) < max_tokens:
                yield (source, target, source.head) if isinstance(source, TokensWithHeads) else (source, target)
            else:
                counts[TOO_LONG] += 1

    vocabularies = {"source": len(tokenizers.source), "target": len(tokenizers.target)}
    if trees:
        vocabularies["head"] = 2 * max_tokens
    write_texts(folder, short_pairs(), vocabularies, counts)
    return TokenPairs(**open_texts(folder)), counts[TOO_LONG]


def _encode(
    corpus: CheckedCorpus,
    tokenizers: Tokenizers,
    max_tokens: int,
    quiet: bool,
    source_format: SourceFormat,
    protect: bool,
    annotator: TermAnnotator | None,
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the token ids of each pair; the tokenizers use all cores on each chunk."""
    with progress_bar("tokenising", "pairs", quiet) as count:
        for chunk in chunks(count(corpus), CHUNK):
            yield from encode_pairs(chunk, tokenizers, source_format, protect, annotator, max_tokens)


def encode_pairs(
    pairs: Sequence[tuple[str, str]],
    tokenizers: Tokenizers,
    source_format: SourceFormat,
    protect: bool,
    annotator: TermAnnotator | None = None,
    max_tokens: int = 0,
) -> list[tuple[list[int], list[int]]]:
    """Return the token ids of each pair.

    With `protect`, spans that both sides share are sentinels. An annotator makes no source longer than `max_tokens`.
    """
    sources = encode_sources(tokenizers.source, [source for source, _ in pairs], source_format)
    targets = tokenizers.target.encode_batch([target for _, target in pairs])
    most = min(len(tokenizer.sentinels) for tokenizer in tokenizers)
    for index, (source, target) in enumerate(pairs) if protect or annotator else ():
        masked = mask_pair(source, target, most) if protect else None
        pieces = masked or ([source], [target])
        plain = ("".join(piece if isinstance(piece, str) else ANY_SPAN for piece in side) for side in pieces)
        terms = annotator.choose(*plain) if annotator else []
        if masked is None and not terms:
            continue
        ids, starts = encode_pieces(tokenizers.source, pieces[0], [ANY_SPAN] * most)
        if terms:
            ids, _ = annotate(tokenizers.source, ids, starts, terms, max_tokens - sum(source_format))
        sources[index] = source_format.apply(ids, tokenizers.source)
        targets[index] = encode_pieces(tokenizers.target, pieces[1])[0]
    return list(zip(sources, targets, strict=True))
