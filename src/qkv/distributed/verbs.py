"""The verbs of batch work: a loaded run that computes an output for each row of a shard, and the form of its outputs.

Options are plain values. Each verb has its config, which refuses wrong ones before any work, and its class, which loads the run.
"""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

from pydantic import Field

from qkv.base.config import Config
from qkv.base.errors import ConfigError, QkvError, QkvWarning
from qkv.base.seeds import seed_at
from qkv.distributed.shard_writers import RowOutputs
from qkv.distributed.shards import VECTORS

Columns = tuple[str, ...]


class BatchVerb(RowOutputs, Protocol):
    """A loaded run that does one thing with texts."""

    columns: Columns  # of JSONL and Parquet, that are read

    def compute(self, values: Sequence[Any], shard: str, first: int) -> Any:
        """Return an output for each row; `first` is the number of the first row in the shard, on which samples depend."""
        ...


class VerbOptions(Config):
    """Options of all verbs."""

    needs: ClassVar[tuple[str, ...]] = ()  # fields that name files or run folders, whose content counts
    text_suffix: ClassVar[str] = ""  # of the outputs of shards of text, where they are no text
    suffix: ClassVar[str] = ""  # of all outputs, where they have another format than the shard
    column: str = "text"  # key of JSONL, column of Parquet


class TranslateOptions(VerbOptions):
    """Options of `qkv translate`; paths are those of files."""

    needs: ClassVar[tuple[str, ...]] = ("words", "glossary", "adapter")
    decoding: dict[str, Any] = Field(default_factory=dict)
    n_best: int = 1
    prefix: str | None = None
    scores: bool = False
    alignments: bool = False
    words: str | None = None
    split: str | None = None
    protect: tuple[str, ...] | None = ()
    glossary: str | None = None
    ignore_case: bool = False
    soft: bool = False
    engine: str | None = None
    precision: str | None = None
    adapter: str | None = None


class TranslateVerb:
    """Translates each text."""

    def __init__(self, run: Path, device: str, options: TranslateOptions):
        from qkv.inference.load import load_translator
        from qkv.inference.segmenter import TextOptions
        from qkv.inference.translation_lines import LineOptions
        from qkv.text.files import read_lines
        from qkv.text.glossary import Glossary

        o = options
        glossary = None if o.glossary is None else Glossary.read(o.glossary, o.ignore_case)
        self.text_options = {"split": o.split, "protect": o.protect, "glossary": glossary, "soft": o.soft}
        parsed, _ = TextOptions.take_from(self.text_options)
        self.translator = load_translator(run, device, o.engine, o.precision, o.adapter)
        self.decoding = {**o.decoding, "n_best": o.n_best}
        if not o.decoding.get("sampling") and "beam" not in o.decoding:
            self.decoding["beam"] = max(o.n_best, self.translator.recipe.decoding.beam)
        config = self.translator.decoding(**self.decoding)
        self.translator.check_glossary(parsed, config)
        self.seed = config.seed
        self.words = None
        if o.words is not None:
            self.words = [word for line in read_lines(Path(o.words)) for word in (line or "").split()]
        self.confidence = o.scores and self._has_confidence()
        self.form, self.columns = LineOptions(config.n_best, o.prefix, o.scores, o.alignments), (o.column,)
        fields = {"translation": str, **({"score": float} if o.scores else {}), **({"alignment": str} if o.alignments else {})}
        self.types: Mapping[str, Any] = fields if o.n_best == 1 else {name: [kind] for name, kind in fields.items()}

    def _has_confidence(self) -> bool:
        try:
            _ = self.translator.confidence_model
        except QkvError as error:
            warnings.warn(f"--scores gives scores of the search, not probabilities: {error}", QkvWarning, stacklevel=2)
            return False
        return True

    def compute(self, values: Sequence[str], shard: str, first: int) -> Any:
        from qkv.text.treebank import TextWithHeads

        texts: Sequence[str] = values
        if self.translator.trees:
            texts = [TextWithHeads.from_line(line, f"line {first + number}") for number, line in enumerate(values, 1)]
        prefixes = None if self.form.prefix is None else [self.form.prefix] * len(texts)
        options = {**self.decoding, **self.text_options, "seed": seed_at(self.seed, shard)}
        return self.translator.n_best(texts, prefixes, self.words, first, self.confidence, **options)

    def lines(self, values: Sequence[Any], outputs: Sequence[Any]) -> Iterable[str]:
        from qkv.inference.translation_lines import format_translations

        for one in outputs:
            yield from format_translations(one, self.translator, self.form, self.confidence)

    def fields(self, value: Any, output: Any) -> dict[str, Any]:
        from qkv.inference.translation_lines import format_alignment

        found: dict[str, list[Any]] = {"translation": [one.text for one in output]}
        if self.form.scores:
            found["score"] = [one.confidence if self.confidence else one.score for one in output]
        if self.form.alignments:
            found["alignment"] = [format_alignment(self.translator, one) for one in output]
        return found if self.form.n_best > 1 else {name: several[0] for name, several in found.items()}


class EmbedOptions(VerbOptions):
    """Options of `qkv embed`."""

    suffix: ClassVar[str] = VECTORS
    pooling: str = "mean"
    layer: int | str = -1
    normalise: bool = False


class EmbedVerb:
    """Embeds each text as a vector."""

    types: Mapping[str, Any] = {}

    def __init__(self, run: Path, device: str, options: EmbedOptions):
        from qkv.inference.text_encoder import load_text_encoder

        self.encoder, self.columns = load_text_encoder(run, device), (options.column,)
        self.options: dict[str, Any] = options.model_dump(exclude={"column"})
        self.encoder.embed([], **self.options)  # refuses a wrong option

    def compute(self, values: Sequence[str], shard: str, first: int) -> Any:
        return self.encoder.embed(values, **self.options)

    def lines(self, values: Sequence[Any], outputs: Sequence[Any]) -> Iterable[str]:
        raise NotImplementedError("vectors are written as an array")

    def fields(self, value: Any, output: Any) -> dict[str, Any]:
        raise NotImplementedError("vectors are written as an array")


class PredictOptions(VerbOptions):
    """Options of `qkv predict`; columns are those of training unless they are given."""

    column: str | None = None  # type: ignore[assignment]
    pair: str | None = None


class PredictVerb:
    """Predicts what a run was fine-tuned for."""

    def __init__(self, run: Path, device: str, options: PredictOptions):
        from qkv.inference.text_encoder import load_text_encoder

        self.encoder = load_text_encoder(run, device)
        recipe, self.task = self.encoder.finetuned(), self.encoder.task
        if recipe.model.reads_trees:
            raise ConfigError(f"{run} reads texts with heads, and shards have none; use qkv predict with single files")
        text, pair = options.column or recipe.data.text, options.pair or recipe.data.pair
        self.columns: Columns = (text,) if pair is None else (text, pair)
        if self.task.input_format == "question":
            self.columns = ("question", "context")
        self.types = {"prediction": dict(self.task.prediction_types)}

    def compute(self, values: Sequence[Any], shard: str, first: int) -> Any:
        return self.encoder.predict(values)

    def lines(self, values: Sequence[Any], outputs: Sequence[Any]) -> Iterable[str]:
        if self.task.input_format == "question":
            return (" ".join(self.task.to_json(answer)["text"].split()) for answer in outputs)
        return self.task.lines([self.task.parse_example(value) for value in values], outputs)

    def fields(self, value: Any, output: Any) -> dict[str, Any]:
        return {"prediction": self.task.to_json(output)}


class ScoreOptions(VerbOptions):
    """Options of `qkv score`; a translator scores a target given its source."""

    how: str | None = None
    source: str = "source"
    target: str = "target"


class ScoreVerb:
    """Scores each text, or each pair, by its log-probability."""

    types: Mapping[str, Any] = {"score": float}

    def __init__(self, run: Path, device: str, options: ScoreOptions):
        from qkv.inference.load import load
        from qkv.recipes.abilities import NAMES

        self.model = cast(Any, load(run, device))
        if not hasattr(self.model, "score"):
            raise ConfigError(f"{run} is {NAMES[self.model.loads_as]}, which has no probabilities of texts; give another run")
        self.options: dict[str, Any] = {"how": options.how}
        self.columns: Columns = (options.column,)
        if self.model.loads_as == "translator":
            if options.how is not None:
                raise ConfigError(f"--how {options.how} is for encoders and language models, and {run} is a translator")
            self.options, self.columns = {}, (options.source, options.target)
        self.model.score([], **self.options)  # refuses a wrong option

    def compute(self, values: Sequence[Any], shard: str, first: int) -> Any:
        return self.model.score(values, **self.options)

    def lines(self, values: Sequence[Any], outputs: Sequence[Any]) -> Iterable[str]:
        return (f"{score:.4f}" for score in outputs)

    def fields(self, value: Any, output: Any) -> dict[str, Any]:
        return {"score": output}


class GenerateOptions(VerbOptions):
    """Options of `qkv generate`."""

    text_suffix: ClassVar[str] = ".jsonl"  # a continuation may have several lines
    max_tokens: int = 200
    stop: tuple[str, ...] = ()
    decoding: dict[str, Any] = Field(default_factory=dict)


class GenerateVerb:
    """Continues each prompt."""

    def __init__(self, run: Path, device: str, options: GenerateOptions):
        from qkv.inference.text_generator import load_text_generator

        self.generator, self.options, self.columns = load_text_generator(run, device), options, (options.column,)
        config = self.generator.decoding(options.max_tokens, **options.decoding)
        self.generator.generate([], options.max_tokens, options.stop, **options.decoding)  # refuses a wrong option
        self.seed, self.several = config.seed, config.n_best > 1
        self.types: Mapping[str, Any] = {"generated": [str] if self.several else str}

    def compute(self, values: Sequence[str], shard: str, first: int) -> Any:
        options = {**self.options.decoding, "seed": seed_at(self.seed, shard)}
        return self.generator.generate(values, self.options.max_tokens, self.options.stop, first=first, **options)

    def lines(self, values: Sequence[Any], outputs: Sequence[Any]) -> Iterable[str]:
        raise NotImplementedError("continuations are written as records")

    def fields(self, value: Any, output: Any) -> dict[str, Any]:
        texts = [one.text for one in output]
        return {"generated": texts if self.several else texts[0]}


VERBS: dict[str, tuple[type[VerbOptions], Any]] = {
    "translate": (TranslateOptions, TranslateVerb),
    "embed": (EmbedOptions, EmbedVerb),
    "predict": (PredictOptions, PredictVerb),
    "score": (ScoreOptions, ScoreVerb),
    "generate": (GenerateOptions, GenerateVerb),
}
