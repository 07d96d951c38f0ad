"""The data of a translator's training: corpora checked and tokenised, tokenizers trained, taken over or grown."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from qkv.base.errors import ConfigError, DataError
from qkv.data.batches import max_length
from qkv.data.cache import cache_key
from qkv.data.corpora import CheckedCorpus, SourceStatistics, Tokenizers, check_corpus, count_sources, sample_pairs
from qkv.data.tokenised_pairs import PairFormat, TokenisedCorpus, encode_pairs, tokenise_corpus
from qkv.data.tokens import TokenPairs, token_texts
from qkv.data.trained_tokenizers import cached_pair
from qkv.data.trees import TokensWithHeads
from qkv.data.workers import Work
from qkv.folder.adapters import BASE, base_digest
from qkv.folder.language_profiles import PROFILES, ProfilePair, save_language_profiles
from qkv.folder.run import check_texts, check_tokenizers, load_tokenizers, read_run, save_config, save_tokenizers
from qkv.inference.evaluation import describe_detected
from qkv.jobs.before_after import HeldOut
from qkv.jobs.growth import add_sentinels, add_term_tokens, grow_tokenizers
from qkv.recipes import TranslationData, TranslationRecipe
from qkv.text.annotated_terms import TermAnnotator
from qkv.text.check import CheckConfig, CheckReport, pair_hashes
from qkv.text.corpus import ParallelCorpusConfig, table_layouts
from qkv.text.glossary import Glossary
from qkv.text.language_profile import LanguageProfile
from qkv.text.scripts import detect_language
from qkv.text.sentinels import COUNT as SENTINELS
from qkv.text.sentinels import mask_pair
from qkv.text.special_tokens import SENTINEL
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from qkv.training.progress import Progress

# Dev and test sets are scored as they are; only pairs that cannot be scored are left out.
UNFILTERED = CheckConfig(max_chars=1_000_000, max_ratio=1_000_000, identical="keep", duplicates="keep")
TOKENIZER_PAIRS = 2_000_000  # pairs of each corpus that a tokenizer is trained on
MANY_PLACEHOLDERS = 0.02  # share of dev pairs
ROW_STEP = 64  # widths of rows are multiples of this
TextPairs = list[tuple[str, str]]


@dataclass(frozen=True)
class PreparedPairs:
    """The checked and tokenised data of a run."""

    tokenised: list[TokenisedCorpus]
    reports: list[tuple[str, CheckReport]]  # name of each training corpus, and the report of its check
    dev: TextPairs
    test: TextPairs
    also_test: dict[str, TextPairs]  # by name
    dev_pairs: TokenPairs
    tokenizers: Tokenizers
    widths: tuple[int, int]  # of source and target rows
    sources: SourceStatistics  # of the training pairs
    detected_language: str | None = None  # of dev and test targets, by their script, where the recipe names no languages

    @property
    def train(self) -> list[TokenPairs]:
        """The token ids of the training corpora."""
        return [corpus.pairs for corpus in self.tokenised]

    @property
    def held_out(self) -> HeldOut:
        """The sets that are scored at the end, by name: test, or dev without one, and those of data.also_test."""
        return {"test": self.test} | self.also_test if self.test else {"dev": self.dev} | self.also_test

    def counts(self) -> dict[str, Any]:
        """Return the numbers of pairs in each set, and of tokens to train on."""
        tokens = {side: sum(getattr(pairs, side).tokens for pairs in self.train) for side in ("source", "target")}
        named = [{"corpus": name, "pairs": report.kept, "dropped": report.read - report.kept} for name, report in self.reports]
        return {
            "train": {"pairs": sum(map(len, self.train)), **{f"{side} tokens": count for side, count in tokens.items()}},
            "corpora": named,
            "dev": {"pairs": len(self.dev)},
            **{name: {"pairs": len(pairs)} for name, pairs in self.held_out.items()},
        }


def prepare(recipe: TranslationRecipe[Any, Any], run: Path, progress: Progress, accept_changes: bool = False) -> PreparedPairs:
    """Check and tokenise the corpora, and train the tokenizers if the run has none yet; the second time is fast (cached)."""
    config = recipe.data
    trees = recipe.model.reads_trees
    _say_columns(config, progress)
    dev, test, also_test = sets = read_held_out(recipe, progress)
    detected = None if config.languages else detect_language(target for pairs in (dev, test) for _, target in pairs)
    if detected is not None and {"bleu", "ter"} & {*recipe.metrics}:  # the others count characters, or words between spaces
        progress.say(describe_detected(detected))
    train = read_train(config, sets.hashes, Work(quiet=not progress.live), progress, trees)
    annotator = term_annotator(recipe)
    texts = [corpus.key for corpus in train] + ([cache_key(annotator.key)] if annotator else [])
    check_texts(run, texts, accept_changes)
    tokenizers = load_tokenizers(run)
    if tokenizers is None:
        tokenizers = cached_tokenizers(recipe, train, progress)
        save_tokenizers(run, tokenizers)
    check_tokenizers(run, tokenizers)
    sample = list(sample_pairs(train))
    sources = count_sources(sample)
    base = {} if recipe.model.adapter is None else {BASE: base_digest(run, recipe)}
    save_config(run, recipe, tokenizers, texts, languages=config.languages, **sources._asdict(), **base)
    if not (run / PROFILES).exists():
        save_language_profiles(run, ProfilePair(*(LanguageProfile.of(pair[side] for pair in sample) for side in (0, 1))))
    tokenised = _tokenise(train, tokenizers, recipe, annotator, progress)
    dev_pairs = _tokenise_dev(dev, tokenizers, recipe)
    _say_untaught_placeholders(recipe, dev, progress)
    reports = [(c.name, found.report) for c, found in zip(config.train, train, strict=True)]
    widths = _row_widths(recipe.training.row_width, [corpus.longest for corpus in tokenised], dev_pairs)
    return PreparedPairs(tokenised, reports, dev, test, also_test, dev_pairs, tokenizers, widths, sources, detected)


def term_annotator(recipe: TranslationRecipe[Any, Any]) -> TermAnnotator | None:
    """Return what annotates the sources of training pairs; None where nothing does."""
    if recipe.data.glossary is None:
        return None
    return TermAnnotator(Glossary.read(recipe.data.glossary), recipe.data.glossary_share, recipe.seed)


def _say_untaught_placeholders(recipe: TranslationRecipe[Any, Any], dev: TextPairs, progress: Progress) -> None:
    """Advise to teach placeholders, where many dev pairs have some and the run to start from has not learned them."""
    if recipe.start is None or recipe.data.protect or recipe.model.reads_trees or recipe.model.adapter is not None:
        return
    count = sum(mask_pair(source, target, SENTINELS) is not None for source, target in dev)
    if count > MANY_PLACEHOLDERS * len(dev):
        progress.say(
            f"{count:,} of {len(dev):,} dev pairs have placeholders, tags or addresses, which {recipe.start} has not learned to "
            "carry over; --set data.protect=true teaches it"
        )


def _say_columns(config: TranslationData, progress: Progress) -> None:
    """Show which columns of tables are read; files of the same layout share a line."""
    files: dict[str, list[str]] = {}
    for corpus in (*config.train, *config.dev, *config.test, *config.also_test):
        for file, layout in table_layouts(corpus, config.languages).items():
            files.setdefault(str(layout), []).append(file.name)
    for layout_text, names in files.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        progress.say(f"{', '.join(names[:3])}{more}: {layout_text}")


def read_corpora(
    corpora: tuple[ParallelCorpusConfig, ...], config: TranslationData, trees: bool = False
) -> tuple[TextPairs, list[CheckReport]]:
    """Return all pairs of dev or test sets, unfiltered, and the reports of their checks."""
    found = [check_corpus(corpus, UNFILTERED, config.languages, set(), Work(), trees) for corpus in corpora]
    return [pair for corpus in found for pair in corpus], [corpus.report for corpus in found]


class HeldOutSets(NamedTuple):
    """The pairs that are scored and not trained on."""

    dev: TextPairs
    test: TextPairs
    also_test: dict[str, TextPairs]  # by name

    @property
    def hashes(self) -> set[int]:
        """Hashes of their sources and pairs, by which training pairs are compared with them."""
        return pair_hashes([*self.dev, *self.test, *(pair for pairs in self.also_test.values() for pair in pairs)])


def read_held_out(recipe: TranslationRecipe[Any, Any], progress: Progress) -> HeldOutSets:
    """Return the pairs of dev, test and data.also_test."""
    config, trees = recipe.data, recipe.model.reads_trees
    dev, test = (_read_set(getattr(config, name), config, name, progress, trees) for name in ("dev", "test"))
    if not dev:
        raise DataError("no dev pairs are usable; data.dev must name a file with at least one pair")
    return HeldOutSets(dev, test, {c.name: _read_set((c,), config, "also_test", progress, trees) for c in config.also_test})


def _read_set(
    corpora: tuple[ParallelCorpusConfig, ...], config: TranslationData, name: str, progress: Progress, trees: bool
) -> TextPairs:
    pairs, reports = read_corpora(corpora, config, trees)
    for corpus, report in zip(corpora, reports, strict=True):
        if report.dropped:
            progress.say(report.table(f"{name}: {corpus.name}"))
    return pairs


def read_train(
    config: TranslationData, held_out: set[int], work: Work, progress: Progress, trees: bool, thorough: bool = False
) -> list[CheckedCorpus]:
    """Return the training corpora, checked; `held_out` are the hashes of dev and test."""
    train = []
    for corpus in config.train:
        train.append(check_corpus(corpus, config.check, config.languages, held_out, work, trees, thorough))
        progress.say(train[-1].report.table(f"train: {corpus.name}"))
    if not sum(corpus.report.kept for corpus in train):
        raise DataError("no training pairs are left after checking; the table above says why each was dropped")
    return train


def cached_tokenizers(recipe: TranslationRecipe[Any, Any], train: list[CheckedCorpus], progress: Progress) -> Tokenizers:
    """Return the tokenizers of a recipe; those that are trained come from the cache if they are there."""
    config = recipe.tokenizer
    if (
        recipe.start is not None
        or config is None
        or any(one and one.file for one in (config.shared, config.source, config.target))
    ):
        return _make_tokenizers(recipe, train, progress)
    texts = [corpus.key for corpus in train]
    content = ["pairs", config.model_dump(mode="json"), texts, recipe.data.protect, recipe.data.glossary is None]
    return cached_pair(content, lambda: _make_tokenizers(recipe, train, progress))


def _make_tokenizers(recipe: TranslationRecipe[Any, Any], train: list[CheckedCorpus], progress: Progress) -> Tokenizers:
    """Take the tokenizers of the run to start from, and grow them if wanted; or train or load those of the recipe.

    They have the special tokens that the data need.
    """
    protect = recipe.data.protect

    def texts(sides: tuple[int, ...]) -> Iterator[str]:
        for corpus in train:
            for pair in islice(corpus, TOKENIZER_PAIRS):
                masked = mask_pair(*pair, SENTINELS) if protect else None
                for side in sides:
                    yield from [pair[side]] if masked is None else (text for text in masked[side] if isinstance(text, str))

    def make(wanted: TokenizerConfig, sides: tuple[int, ...]) -> Tokenizer:
        if protect and wanted.file is None:
            wanted = wanted.model_copy(update={"sentinels": max(wanted.sentinels, SENTINELS)})
        trained = train_tokenizer(wanted, texts(sides))
        if protect and not trained.sentinels:
            trained = trained.with_special_tokens(map(SENTINEL.format, range(SENTINELS)))
        progress.say(f"tokenizer: {wanted.kind}, {len(trained):,} pieces")
        return trained

    config = recipe.tokenizer
    if recipe.start is not None:
        made = read_run(Path(recipe.start))[1]
        if config is not None and config.grow is not None:
            made = grow_tokenizers(made, texts, config.grow, progress)
        if recipe.model.adapter is not None:
            _refuse_new_special_tokens(recipe, made)
        made = add_sentinels(made) if protect else made
    elif config is not None and config.shared is not None:
        shared = make(config.shared, (0, 1))
        made = Tokenizers(shared, shared)
    else:
        assert config is not None and config.source is not None and config.target is not None  # the recipe has checked this
        made = Tokenizers(make(config.source, (0,)), make(config.target, (1,)))
    return made if recipe.data.glossary is None else add_term_tokens(made)


def _refuse_new_special_tokens(recipe: TranslationRecipe[Any, Any], tokenizers: Tokenizers) -> None:
    """Refuse keys that need special tokens which the tokenizers of an adapter's base lack."""
    new = ["protect"] if recipe.data.protect and not all(one.sentinels for one in tokenizers) else []
    new += ["glossary"] if recipe.data.glossary is not None and not all(one.term_tokens for one in tokenizers) else []
    if new:
        raise ConfigError(
            f"data.{new[0]} adds special tokens to the tokenizer of {recipe.start}, and an adapter trains no embeddings; "
            f"leave data.{new[0]} or model.adapter out"
        )


def _tokenise(
    train: list[CheckedCorpus],
    tokenizers: Tokenizers,
    recipe: TranslationRecipe[Any, Any],
    annotator: TermAnnotator | None,
    progress: Progress,
) -> list[TokenisedCorpus]:
    corpora, max_tokens = [], recipe.data.max_tokens
    how = pair_format(recipe, annotator)
    for corpus in train:
        corpora.append(tokenise_corpus(corpus, tokenizers, how, Work(quiet=not progress.live)))
        if too_long := corpora[-1].too_long:
            progress.warn(f"{too_long:,} pairs are longer than data.max_tokens={max_tokens} and are not used")
    if not sum(len(corpus.pairs) for corpus in corpora):
        raise DataError(f"no training pairs are left: all are longer than data.max_tokens={max_tokens}; raise it")
    if annotator is not None:
        terms = sum(corpus.terms for corpus in corpora)
        if not terms:
            raise DataError(
                f"no training source is annotated: no pair has a term of {recipe.data.glossary} and its translation, or "
                f"data.glossary_share={annotator.share} is too little; leave data.glossary out, or give another"
            )
        progress.say(f"{recipe.data.glossary}: {len(annotator.glossary):,} terms, annotated {terms:,} times in training sources")
    return corpora


def _tokenise_dev(dev: TextPairs, tokenizers: Tokenizers, recipe: TranslationRecipe[Any, Any]) -> TokenPairs:
    """Tokenise dev in memory, for its loss; without texts that are too long, as in training."""
    max_tokens = recipe.data.max_tokens
    encoded = encode_pairs(dev, tokenizers, pair_format(recipe, None))
    short = [(s, t) for s, t in encoded if len(s) <= max_tokens and len(t) < max_tokens]
    if not short:
        raise DataError(f"no dev pairs are left: all are longer than data.max_tokens={max_tokens}; raise it")
    heads = [s.head for s, _ in short if isinstance(s, TokensWithHeads)]
    return TokenPairs(token_texts(s for s, _ in short), token_texts(t for _, t in short), token_texts(heads) if heads else None)


def pair_format(recipe: TranslationRecipe[Any, Any], annotator: TermAnnotator | None) -> PairFormat:
    """Return how a recipe's pairs become token ids."""
    return PairFormat(recipe.data.max_tokens, recipe.source_format, recipe.data.protect, annotator)


def _row_widths(wanted: int | None, longest: list[tuple[int, int]], dev: TokenPairs) -> tuple[int, int]:
    """Return the widths of rows: wide enough for the longest text of the training corpora and of dev."""
    lengths = [*longest, (max_length(dev.source), max_length(dev.target))]
    most = max(max(source, target + 1) for source, target in lengths)
    if wanted is not None and wanted < most:
        raise ConfigError(f"training.row_width {wanted} is less than the longest text, {most} tokens; raise it")
    width = wanted or max(-(-most // ROW_STEP) * ROW_STEP, 2 * ROW_STEP)
    return width, width
