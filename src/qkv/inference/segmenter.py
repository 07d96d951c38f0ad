"""Texts as sources of an engine: a text is cut into parts that are decoded one by one, and their translations are joined."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate, pairwise
from typing import Any, Literal

from qkv.base.errors import ConfigError, DataError, QkvWarning
from qkv.data.corpora import SourceStatistics, Tokenizers
from qkv.data.trees import encode_with_heads
from qkv.decoding.hypothesis import Hypothesis
from qkv.decoding.phrases import BEGIN, Phrase
from qkv.recipes import TranslationRecipe
from qkv.text.annotated_terms import NO_PLACE, annotate
from qkv.text.check import normalise
from qkv.text.coded_text import CodedPart, CodedText, cut_coded, extract_codes, insert_codes
from qkv.text.glossary import Glossary, Term, TermMatch, as_glossary, missing_terms, with_capital
from qkv.text.protected_text import compile_patterns, find_spans, has_letters, outside_spans
from qkv.text.sentences import split_long, split_sentences
from qkv.text.sentinels import Pieces, decode_with_names, encode_pieces, to_pieces, without_spelled_out
from qkv.text.treebank import TextWithHeads

WITHOUT_SPACES = ("zh", "cmn", "yue", "ja", "th", "lo", "km", "my")  # languages written without spaces between words
CHARS_PER_TOKEN = 20  # no text has more; a longer one is cut before it is tokenised
SINGLE_SENTENCES = 0.1  # below this share of training sources with several sentences, a model learned to translate one
FEW_WITHOUT_LETTERS = 0.1  # below this share of training sources without letters, a model did not learn to translate them
UNKNOWN = SourceStatistics()  # of a model that was trained elsewhere
QUOTES = "\"'„“”‚‘’«»‹›"
JOINING_SIGNS = f"([{{/-{QUOTES}"  # a word may follow without a space; languages have different quotes


@dataclass(frozen=True)
class TextOptions:
    """How texts become parts, beside the options of decoding."""

    split: Literal["sentences", "never"] | None = None  # None: as the run's training data suggest
    protect: tuple[str, ...] | None = ()  # regular expressions of more spans to protect; None protects nothing
    glossary: Glossary | None = None  # terms whose translations must occur; a mapping will do
    soft: bool = False  # whether the glossary's translations are put into the source, which does not constrain the search

    def __post_init__(self) -> None:
        if self.split not in (None, "sentences", "never"):
            raise ConfigError(f"split is sentences or never, got {self.split!r}")
        if isinstance(self.protect, str) or not (self.protect is None or isinstance(self.protect, Sequence)):
            raise ConfigError(f"protect takes a list of regular expressions, got {self.protect!r}")
        if self.protect is not None:
            object.__setattr__(self, "protect", tuple(self.protect))
            compile_patterns(self.protect)  # refuses a bad expression before any work
        object.__setattr__(self, "glossary", as_glossary(self.glossary))
        if self.soft and self.glossary is None:
            raise ConfigError("soft is a way to use a glossary; give a glossary too, or leave soft out")

    @classmethod
    def take_from(cls, options: dict[str, Any]) -> tuple["TextOptions", dict[str, Any]]:
        """Return the options for texts among all options, and the others, which are for decoding."""
        own = {field.name for field in fields(cls)}
        return cls(**{k: v for k, v in options.items() if k in own}), {k: v for k, v in options.items() if k not in own}

    @property
    def fingerprint(self) -> str:
        """A text that is the same for the same options."""
        terms = self.glossary and (*map(str, self.glossary.terms), self.glossary.ignore_case)
        return repr((self.split, self.protect, self.soft, terms))


DEFAULTS = TextOptions()


@dataclass(frozen=True)
class SourcePart:
    """A part of a text that is decoded as one source."""

    ids: list[int]  # none where there is nothing to translate
    phrases: tuple[Phrase, ...] = ()  # terms of a glossary that its translation must contain
    span_phrases: tuple[Phrase, ...] = ()  # sentinels of protected spans, which are repaired where an engine cannot constrain
    before: str = ""  # what stands before its translation: tags, or a text that is copied
    after: str = ""  # what stands after it: tags, and white space up to the next part
    coded: CodedText | None = None  # the text with its protected spans, where it has some
    starts: tuple[int, ...] = ()  # where each token begins in the coded text; NO_PLACE for bos, the task prefix and annotations
    sentinels: int = 0  # the first placeholders of the coded text that are sentinels; the others are spelled out
    terms: tuple[TermMatch, ...] = ()  # terms of a glossary in its text
    protect: tuple[str, ...] = ()  # regular expressions of spans, beside our own
    fallback: "SourcePart | None" = None  # without the spans that are spelled out, for a translation that loses one of them


@dataclass(frozen=True)
class TranslatedPart:
    """One translation of a part of a text."""

    text: str
    hypothesis: Hypothesis
    source: list[int]  # the ids that the model read


@dataclass(frozen=True)
class TranslatedText:
    """One translation of a text."""

    text: str
    score: float  # ranks the n-best list
    pieces: tuple[tuple[list[int], list[int]], ...] = ()  # source and target ids of each part; long texts have several
    terms: tuple[Term, ...] = ()  # terms of the glossary in the source, each as often as it occurs
    missing_terms: tuple[Term, ...] = ()  # those of them that are not translated as the glossary says
    confidence: float | None = None  # probability that it is good, where it was asked for; an empty text has none


class Segmenter:
    """Cuts texts into parts that a translator reads one by one, and joins the translations of a text's parts."""

    def __init__(self, tokenizers: Tokenizers, recipe: TranslationRecipe[Any, Any], sources: SourceStatistics = UNKNOWN):
        """`sources` are the statistics of the training sources."""
        self.tokenizers, self.recipe = tokenizers, recipe
        languages = recipe.data.languages
        code = languages[1].replace("_", "-").split("-")[0].lower() if languages else ""
        self.spaced = code not in WITHOUT_SPACES  # the target language
        # Most public translators learned from single sentences; tasks with prefixes often read whole paragraphs.
        several = sources.several_sentences
        single = not recipe.data.prefixes if several is None else several < SINGLE_SENTENCES
        self.split: Literal["sentences", "never"] = "sentences" if single else "never"
        # Some tasks, such as spelling out numbers, are about texts without letters.
        self.copies_without_letters = (sources.without_letters or 0.0) < FEW_WITHOUT_LETTERS
        self.sentinels = min(len(t.sentinels) for t in tokenizers) if recipe.data.protect else 0
        self._warned = False  # of texts without a task prefix

    def cut(self, text: str, options: TextOptions = DEFAULTS) -> list[SourcePart]:
        """Return the parts of a text; none if it is empty.

        A text is cut at sentence ends if the options or the run say so. One that is longer than any in training is also cut at
        clauses or words, unless it has a tree. A part without letters outside of protected spans is copied, not translated,
        unless it holds a term of the glossary, the options protect nothing, or the model learned from such texts.
        """
        copies = self.copies_without_letters and options.protect is not None
        if self.recipe.model.reads_trees:
            if not isinstance(text, TextWithHeads):
                raise DataError(
                    "this model's positions follow dependency trees, and these texts have no heads; "
                    "give qkv.text.treebank.TextWithHeads(text, heads)"
                )
            if copies and not has_letters(text):
                return [SourcePart([], before=str(text))]
            return [SourcePart(found) for found in [encode_with_heads(self.tokenizers.source, text)] if found]
        task = self._task_prefix(text)
        spans = [] if options.protect is None else find_spans(text, compile_patterns(options.protect))
        moved = [s._replace(start=s.start - len(task), end=s.end - len(task)) for s in spans if s.start >= len(task)]
        rest = text[len(task) :]
        if (copies or moved) and options.glossary is None and not has_letters(outside_spans(rest, moved)):
            copied = extract_codes(rest, [span._replace(kind="alone") for span in moved]).text  # tags stay in the text
            return [SourcePart([], before=copied)] if copied else []
        coded = extract_codes(rest, moved, self._takes_out)
        if not coded.text and not coded.codes:
            return []
        task = f"{normalise(task)} " if task else ""
        parts = cut_coded(coded, self._part_ends(coded, task, options.split or self.split))
        between = ["" if not self.spaced else part.space or " " for part in parts[:-1]]
        encoded = []
        for part, space in zip(parts, [*between, ""], strict=True):
            taken = [(placeholder.start, placeholder.end) for placeholder in part.coded.placeholders]
            terms = tuple(options.glossary.find(part.coded.text, taken)) if options.glossary is not None else ()
            one = self._encode(part, task, space, terms, options, copies)
            if terms and one.ids:
                phrases = () if options.soft else self._term_phrases(terms, part.coded.text)
                fallback = one.fallback and replace(one.fallback, phrases=phrases, terms=terms)
                one = replace(one, phrases=phrases, terms=terms, fallback=fallback)
            encoded.append(one)
        return encoded

    def _term_phrases(self, terms: Sequence[TermMatch], source: str) -> tuple[Phrase, ...]:
        """Return phrases for the terms that the tokenizer can spell.

        A translation may also follow a sign without a space, such as a bracket, if the source has such a sign.
        """
        signs = [sign for sign in JOINING_SIGNS if sign in source or (sign in QUOTES and any(q in source for q in QUOTES))]
        forms = [self._term_forms(match.targets, signs) for match in terms]
        return tuple(Phrase(each) for each in forms if each)

    def _term_forms(self, targets: Sequence[str], signs: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """Return the tokens of some targets as a translation would have them, with a capital too: inside it, and in first place.

        Empty if the tokenizer can spell none of them.
        """
        tokenizer = self.tokenizers.target
        written = list(dict.fromkeys(text for target in targets for text in (target, with_capital(target))))
        after_signs = [f"{sign}{text}" for sign in signs for text in written]
        forms = [tuple(ids) for ids in tokenizer.encode_words([*written, *after_signs])]
        forms += [tuple(encode_pieces(tokenizer, ["", text])[0]) for text in after_signs]  # and no space before the sign
        forms += [(BEGIN, *ids) for ids in tokenizer.encode_batch([*written, *after_signs]) if ids and tuple(ids) not in forms]
        spelled = tuple(dict.fromkeys(form for form in forms if form and tokenizer.unk not in form))
        return spelled if any(form[0] != BEGIN for form in spelled) else ()

    def _takes_out(self, span: str) -> bool:
        """Return whether a standalone code is taken out of the source, to be inserted into the translation by alignment.

        A model that knows sentinels reads one in its place. Another reads the span, unless it is a tag or cannot be spelled.
        """
        return not self.sentinels and (span.startswith("<") or any(t.decode(t.encode(span)) != span for t in self.tokenizers))

    def _part_ends(self, coded: CodedText, task: str, split: str) -> list[int]:
        """Return where the parts of a text end: never inside a placeholder, at sentence ends never between two tags."""
        plain, whole = coded.text, len(coded.text)
        for placeholder in coded.placeholders:  # looks like a word, so that nothing in it ends a sentence or a clause
            plain = f"{plain[: placeholder.start]}{'X' * (placeholder.end - placeholder.start)}{plain[placeholder.end :]}"
        encode, longest = self.tokenizers.source.encode, self.recipe.data.max_tokens - sum(self.recipe.source_format)
        most = CHARS_PER_TOKEN * longest
        inside_tags = [code for code in coded.codes if (code.start, code.end) != (0, whole)]

        def is_between(end: int, spans: Sequence[Any]) -> bool:
            return not any(span.start < end < span.end for span in spans)

        sentences = accumulate(map(len, split_sentences(plain))) if split == "sentences" else ()
        ends = [0, *(end for end in sentences if end < whole and is_between(end, [*coded.placeholders, *inside_tags])), whole]
        found = []
        for start, end in pairwise(ends):
            pieces = split_long(plain[start:end], lambda piece: len(piece) <= most and len(encode(task + piece)) <= longest)
            cuts = list(accumulate(map(len, pieces), initial=start))
            cuts = [cut for cut in cuts if start < cut < end and is_between(cut, coded.placeholders)]
            found += [cut for cut in cuts if plain[start:cut].strip()]
            found += [end]
        return found

    def _encode(
        self, part: CodedPart, task: str, space: str, terms: Sequence[TermMatch], options: TextOptions, copies: bool
    ) -> SourcePart:
        """Return a part of a text as the model reads it; `space` stands between its translation and the next one.

        The translations of `terms` follow them if the glossary is soft. `copies` says whether a part without letters is copied.
        """
        coded, before, after = part.coded, part.before, part.after + space
        has_spans = bool(coded.placeholders or coded.codes)
        if (copies or has_spans) and not terms and not has_letters("".join(coded.around_placeholders())):
            copied = insert_codes(coded.text, [(code.start, code.end, code) for code in coded.codes])
            return SourcePart([], before=before + copied, after=after)
        annotated = terms if options.soft else ()
        if not has_spans and not annotated:
            ids = self.tokenizers.source.encode(task + coded.text)
            formatted = self.recipe.source_format.apply(ids, self.tokenizers.source) if ids else []
            return SourcePart(formatted, before=before, after=after)
        masked = min(self.sentinels, len(coded.placeholders))
        pieces = to_pieces(coded, range(len(coded.placeholders)), masked)
        ids, starts = self._encode_pieces(pieces, coded, task, annotated)
        if not has_spans:
            return SourcePart(ids, before=before, after=after)
        phrases = tuple(Phrase(((token,),), once=True) for token in self.tokenizers.target.sentinels[:masked])
        made = SourcePart(ids, (), phrases, before, after, coded, starts, masked, protect=options.protect or ())
        if masked == len(coded.placeholders):
            return made
        pieces, places = without_spelled_out(coded, masked)
        ids, starts = self._encode_pieces(pieces, coded, task, annotated, places)
        return replace(made, fallback=replace(made, ids=ids, starts=starts))

    def _encode_pieces(
        self, pieces: Pieces, coded: CodedText, task: str, terms: Sequence[TermMatch], places: Sequence[int] | None = None
    ) -> tuple[list[int], tuple[int, ...]]:
        """Return the ids of a part's pieces with annotated terms, and where each token begins in the coded text.

        `places` says where each character of the pieces stands there, if not in the same place.
        """
        tokenizer, source_format = self.tokenizers.source, self.recipe.source_format
        spans = [placeholder.text for placeholder in coded.placeholders]
        ids, begun = encode_pieces(tokenizer, [f"{task}{pieces[0]}", *pieces[1:]], spans)
        starts = [max(NO_PLACE, start - len(task)) for start in begun]
        if places is not None:
            starts = [NO_PLACE if start == NO_PLACE else [*places, len(coded.text)][start] for start in starts]
        if terms:
            ids, starts = annotate(tokenizer, ids, starts, terms, self.recipe.data.max_tokens - sum(source_format))
        return source_format.apply(ids, tokenizer), (*[NO_PLACE] * source_format.bos, *starts)

    def encode_prefix(self, prefix: str, part: SourcePart) -> list[int]:
        """Return the ids of the beginning of a part's translation; the part's protected spans in it are sentinels."""
        tokenizer = self.tokenizers.target
        known = part.coded.placeholders[: part.sentinels] if part.coded else ()
        numbers = {one.text: number for number, one in reversed([*enumerate(known)])}
        spans = [s for s in find_spans(prefix, compile_patterns()) if prefix[s.start : s.end] in numbers]
        if not spans:
            return tokenizer.encode(normalise(prefix))
        coded = extract_codes(prefix, [span._replace(kind="alone") for span in spans])
        return encode_pieces(tokenizer, to_pieces(coded, [numbers[one.text] for one in coded.placeholders], self.sentinels))[0]

    def _task_prefix(self, text: str) -> str:
        """Return the beginning of a text that is a task prefix with the white space around it; "" if it has none."""
        known = [prefix for prefix in self.recipe.data.prefixes if normalise(text).startswith(f"{normalise(prefix)} ")]
        for prefix in sorted(known, key=len, reverse=True):
            wanted = normalise(prefix)
            end = next((i for i in range(len(wanted), len(text)) if normalise(text[:i]) == wanted and text[i].isspace()), 0)
            if end:
                return text[: end + len(text[end:]) - len(text[end:].lstrip())]
        return ""

    def warn_of_missing_prefixes(self, texts: Sequence[str]) -> None:
        """Warn, once, of texts without a task prefix, where all texts in training had one."""
        if self._warned or not self.recipe.data.prefixes:
            return
        missing = sum(bool(text.strip()) and not self._task_prefix(text) for text in texts)
        if missing:
            self._warned = True
            known = ", ".join(map(repr, self.recipe.data.prefixes))
            warnings.warn(
                f"{missing:,} of {len(texts):,} texts have no task prefix, and all in training had one; "
                f"begin them with one of {known}",
                QkvWarning,
                stacklevel=4,
            )

    def join(self, parts: Sequence[SourcePart], found: Sequence[list[TranslatedPart]]) -> list[TranslatedText]:
        """Join the translations of a text's parts: the k-th best text has the k-th best of each part."""
        if not parts:
            return [TranslatedText("", 0.0)]
        outputs = []
        for rank in range(max(len(translations) for translations in found)):
            chosen = [translations[min(rank, len(translations) - 1)] for translations in found]
            both = list(zip(parts, chosen, strict=True))
            text = "".join(f"{part.before}{one.text}{part.after}" for part, one in both)
            pieces = tuple((one.source, one.hypothesis.ids) for part, one in both if part.ids)
            terms = tuple(match.term for part in parts for match in part.terms)
            missing = tuple(term for part, one in both for term in self._missing_terms(part, one.hypothesis))
            score = sum(one.hypothesis.score for one in chosen)
            outputs.append(TranslatedText(text, score, pieces, terms, missing))
        return outputs

    def _missing_terms(self, part: SourcePart, found: Hypothesis) -> list[Term]:
        """Return the terms of a part that its translation, without tags, does not have."""
        written = decode_with_names(self.tokenizers.target, found.ids) if part.terms else ""
        return [match.term for match in missing_terms(part.terms, written)]
