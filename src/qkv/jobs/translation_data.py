"""From the files a recipe names to tokenised pairs."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from qkv.base.errors import ConfigError, DataError
from qkv.data.batches import max_length
from qkv.data.corpora import CheckedCorpus, Tokenizers, check_corpus, tokenise_corpus
from qkv.data.tokens import TokenPairs, token_texts
from qkv.data.trees import TokensWithHeads, encode_sources
from qkv.folder.run import check_texts, check_tokenizers, load_tokenizers, read_run, save_config, save_tokenizers
from qkv.recipes import TranslationData, TranslationRecipe
from qkv.text.check import CheckConfig, CheckReport, pair_hashes
from qkv.text.corpus import ParallelCorpusConfig
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from qkv.training.progress import Progress

# Dev and test sets are scored as they are; only what cannot be scored at all is left out.
AS_IT_IS = CheckConfig(max_chars=1_000_000, max_ratio=1_000_000, identical="keep", duplicates="keep")
FOR_TOKENIZER = 2_000_000  # pairs of each corpus that a tokenizer is trained on
ROW_STEP = 64  # rows are a multiple of this wide
TextPairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Data:
    """Everything a run reads."""

    train: list[TokenPairs]
    reports: list[tuple[str, CheckReport]]  # name of each training corpus and what checking found
    dev: TextPairs
    test: TextPairs
    dev_pairs: TokenPairs
    tokenizers: Tokenizers
    widths: tuple[int, int]  # of source and target rows


def prepare(recipe: TranslationRecipe[Any, Any], run: Path, progress: Progress, accept_changes: bool = False) -> Data:
    """Check and tokenise the corpora, and train the tokenizers if the run has none yet; fast the second time."""
    config = recipe.data
    trees = recipe.model.reads_trees
    dev, test = (_read_held_out(getattr(config, name), config, name, progress, trees) for name in ("dev", "test"))
    if not dev:
        raise DataError("no dev pairs are usable; data.dev must name a file with at least one pair")
    train = _read_train(config, pair_hashes([*dev, *test]), progress, trees)
    texts = [corpus.key for corpus in train]
    check_texts(run, texts, accept_changes)
    tokenizers = load_tokenizers(run)
    if tokenizers is None:
        tokenizers = _make_tokenizers(recipe, train, progress)
        save_tokenizers(run, tokenizers)
    check_tokenizers(run, tokenizers)
    save_config(run, recipe, tokenizers, texts, languages=config.languages)
    pairs = _tokenise(train, tokenizers, recipe, progress)
    dev_pairs = _tokenise_dev(dev, tokenizers, recipe)
    reports = [(c.name, found.report) for c, found in zip(config.train, train, strict=True)]
    widths = _row_widths(recipe.training.row_width, [*pairs, dev_pairs])
    return Data(pairs, reports, dev, test, dev_pairs, tokenizers, widths)


def read_corpora(
    corpora: tuple[ParallelCorpusConfig, ...], config: TranslationData, trees: bool = False
) -> tuple[TextPairs, list[CheckReport]]:
    """All pairs of dev or test sets, as they are."""
    found = [check_corpus(corpus, AS_IT_IS, config.languages, set(), quiet=True, trees=trees) for corpus in corpora]
    return [pair for corpus in found for pair in corpus], [corpus.report for corpus in found]


def _read_held_out(
    corpora: tuple[ParallelCorpusConfig, ...], config: TranslationData, name: str, progress: Progress, trees: bool
) -> TextPairs:
    pairs, reports = read_corpora(corpora, config, trees)
    for corpus, report in zip(corpora, reports, strict=True):
        if report.dropped:
            progress.say(report.table(f"{name}: {corpus.name}"))
    return pairs


def _read_train(config: TranslationData, held_out: set[int], progress: Progress, trees: bool) -> list[CheckedCorpus]:
    train = []
    for corpus in config.train:
        train.append(check_corpus(corpus, config.check, config.languages, held_out, not progress.live, trees))
        progress.say(train[-1].report.table(f"train: {corpus.name}"))
    if not sum(corpus.report.kept for corpus in train):
        raise DataError("no training pairs are left after checking; the table above says why each was dropped")
    return train


def _make_tokenizers(recipe: TranslationRecipe[Any, Any], train: list[CheckedCorpus], progress: Progress) -> Tokenizers:
    """Train the tokenizers on the training text, or take the ones the recipe names, or that of the run it starts from."""

    def texts(sides: tuple[int, ...]) -> Iterator[str]:
        for corpus in train:
            for pair in islice(corpus, FOR_TOKENIZER):
                yield from (pair[side] for side in sides)

    def make(wanted: TokenizerConfig, sides: tuple[int, ...]) -> Tokenizer:
        made = train_tokenizer(wanted, texts(sides))
        progress.say(f"tokenizer: {wanted.kind}, {len(made):,} pieces")
        return made

    if recipe.start is not None:
        taken = read_run(Path(recipe.start))[1].source
        return Tokenizers(taken, taken)
    config = recipe.tokenizer
    assert config is not None  # the recipe has seen to it
    if config.shared is not None:
        shared = make(config.shared, (0, 1))
        return Tokenizers(shared, shared)
    assert config.source is not None and config.target is not None
    return Tokenizers(make(config.source, (0,)), make(config.target, (1,)))


def _tokenise(
    train: list[CheckedCorpus], tokenizers: Tokenizers, recipe: TranslationRecipe[Any, Any], progress: Progress
) -> list[TokenPairs]:
    corpora, max_tokens = [], recipe.data.max_tokens
    for corpus in train:
        pairs, too_long = tokenise_corpus(
            corpus, tokenizers, max_tokens, quiet=not progress.live, source_format=recipe.source_format
        )
        if too_long:
            progress.warn(f"{too_long:,} pairs are longer than data.max_tokens={max_tokens} and are not used")
        corpora.append(pairs)
    if not sum(len(pairs) for pairs in corpora):
        raise DataError(f"no training pairs are left: all are longer than data.max_tokens={max_tokens}; raise it")
    return corpora


def _tokenise_dev(dev: TextPairs, tokenizers: Tokenizers, recipe: TranslationRecipe[Any, Any]) -> TokenPairs:
    """Dev in memory, for its loss; as in training, without the texts that are too long for a row."""
    max_tokens = recipe.data.max_tokens
    sources = encode_sources(tokenizers.source, [source for source, _ in dev], recipe.source_format)
    targets = tokenizers.target.encode_batch([target for _, target in dev])
    short = [(s, t) for s, t in zip(sources, targets, strict=True) if len(s) <= max_tokens and len(t) < max_tokens]
    if not short:
        raise DataError(f"no dev pairs are left: all are longer than data.max_tokens={max_tokens}; raise it")
    heads = [s.head for s, _ in short if isinstance(s, TokensWithHeads)]
    return TokenPairs(token_texts(s for s, _ in short), token_texts(t for _, t in short), token_texts(heads) if heads else None)


def _row_widths(wanted: int | None, corpora: list[TokenPairs]) -> tuple[int, int]:
    """Wide enough for the longest text, and for several of the usual length."""
    most = max(max(max_length(pairs.source), max_length(pairs.target) + 1) for pairs in corpora)
    if wanted is not None and wanted < most:
        raise ConfigError(f"training.row_width {wanted} is less than the longest text, {most} tokens; raise it")
    width = wanted or max(-(-most // ROW_STEP) * ROW_STEP, 2 * ROW_STEP)
    return width, width
