"""qkv translate RUN [FILE...]: lines in, lines out, in the same order; or whole files."""

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qkv.base.errors import ConfigError
from qkv.cli.batch import BatchOptions, Column, On, WorkerCount, run_batch_command
from qkv.cli.lines import input_lines
from qkv.cli.options import Decoding, Device, run_folder
from qkv.cli.translate_documents import is_for_files, refuse_with_files, refuse_with_shards, translate_documents
from qkv.cli.translate_lines import translate_lines
from qkv.text.pair import as_side_names
from qkv.text.translatable import FORMATS, ReadOptions

if TYPE_CHECKING:
    from qkv.inference.translator import TranslatedText
    from qkv.text.glossary import Term


def translate_command(
    run: Annotated[
        Path,
        typer.Argument(parser=run_folder, metavar="RUN", help="Folder of a translator's run, or one that `qkv export` wrote."),
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Text file, one text per line (standard input by default, or -); or files of other formats, folders, patterns; "
            "with --on shards of text, JSONL or Parquet, or URLs of such.",
        ),
    ] = None,
    out_place: Annotated[
        str | None,
        typer.Option("--out", help="New file, or for several files a folder, for whole translated files; for shards also a URL."),
    ] = None,
    all_segments: Annotated[bool, typer.Option("--all", help="Translate again what has a translation in its file.")] = False,
    file_format: Annotated[
        str | None, typer.Option("--format", help=f"Format of files whose suffix does not tell: {', '.join(FORMATS)}.")
    ] = None,
    beam: Annotated[int | None, typer.Option(help="Beam size; 1 is greedy.")] = None,
    n_best: Annotated[int, typer.Option(help="Translations printed per line, best first.")] = 1,
    length_penalty: Annotated[float | None, typer.Option(help="Higher prefers longer translations.")] = None,
    scores: Annotated[
        bool,
        typer.Option(
            "--scores",
            help="Print the probability that a translation is good before it; of a run without a calibration the score.",
        ),
    ] = False,
    alignments: Annotated[bool, typer.Option("--alignments", help="Print word alignments after each translation.")] = False,
    prefix: Annotated[str | None, typer.Option(help="Text that every translation must begin with.")] = None,
    words: Annotated[Path | None, typer.Option(help="File of words; translations use no others.")] = None,
    sampling: Annotated[bool, typer.Option("--sample", help="Sample instead of searching for the best.")] = False,
    temperature: Annotated[float | None, typer.Option(help="With --sample: below 1 sharpens, above 1 flattens.")] = None,
    top_k: Annotated[int | None, typer.Option(help="With --sample: the k most likely tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="With --sample: the tokens that hold this probability.")] = None,
    split: Annotated[
        str | None, typer.Option(help="sentences or never: whether lines are cut at sentence ends; by default as in training.")
    ] = None,
    protect: Annotated[
        list[str] | None, typer.Option(help="Regular expression of spans to carry over unchanged, beside placeholders and tags.")
    ] = None,
    no_protect: Annotated[
        bool, typer.Option("--no-protect", help="Translate placeholders, tags and lines without letters like other text.")
    ] = False,
    glossary: Annotated[
        Path | None, typer.Option(help="File of terms and their translations, separated by a tab, which translations keep to.")
    ] = None,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", help="With --glossary: find its terms in any case.")] = False,
    soft: Annotated[
        bool, typer.Option("--soft", help="With --glossary: put its translations into the source, for a run that learned it.")
    ] = False,
    settings: Decoding = None,
    device: Device = "auto",
    engine: Annotated[
        str | None, typer.Option(help="own, ctranslate2 (fast on a CPU) or onnx; the first use converts the run.")
    ] = None,
    precision: Annotated[str | None, typer.Option(help="With --engine ctranslate2: float32, int8 or bf16.")] = None,
    adapter: Annotated[Path | None, typer.Option(help="Folder of an adapter that was trained for this run.")] = None,
    on: On = None,
    workers: WorkerCount = None,
    column: Column = "text",
) -> None:
    """Translate text line by line, where an empty line stays empty; or whole files, with everything but their texts kept.

    With --on, translate many shards, on this machine or on a cluster.
    """
    from qkv.base.config import with_settings
    from qkv.inference.file_translation import AlreadyTranslated, plan_files
    from qkv.inference.load import load_translator, read_languages
    from qkv.inference.segmenter import TextOptions
    from qkv.inference.translation_lines import LineOptions

    given_texts = _text_options(split, protect, no_protect, glossary, ignore_case, soft)
    text_options, _ = TextOptions.take_from(given_texts)  # refuses a wrong option before the run is loaded
    given = {"beam": beam, "n_best": n_best, "length_penalty": length_penalty, "sampling": sampling or None,
             "temperature": temperature, "top_k": top_k, "top_p": top_p}  # fmt: skip
    options = with_settings({name: value for name, value in given.items() if value is not None}, settings or [])
    batch = BatchOptions(inputs or [], out_place, on, workers, device)
    if batch.asked:
        refuse_with_shards({"--all": all_segments, "--format": file_format is not None})
        texts = {"split": split, "protect": given_texts["protect"], "ignore_case": ignore_case, "soft": soft, "prefix": prefix}
        shown = {"n_best": options.pop("n_best"), "scores": scores, "alignments": alignments, "column": column}
        paths = {"glossary": glossary, "words": words, "adapter": adapter, "engine": engine, "precision": precision}
        named = {name: None if value is None else str(value) for name, value in paths.items()}
        run_batch_command("translate", run, batch, {"decoding": options, **texts, **shown, **named})
        return
    files, out = [Path(given) for given in inputs or []], Path(out_place) if out_place is not None else None
    languages = as_side_names("languages", options.pop("languages", None))  # accepted for lines too
    plan = None
    if files and is_for_files(files, out, file_format):
        refuse_with_files(
            {"--n-best": n_best > 1, "--scores": scores, "--alignments": alignments, "--prefix": prefix is not None}
        )
        read = ReadOptions(languages or read_languages(run), as_side_names("columns", options.pop("columns", None)))
        command = (run.resolve(), adapter and adapter.resolve(), engine, precision, words, options, text_options.fingerprint)
        try:
            plan = plan_files(files, out, all_segments, file_format, read, repr(command))
        except AlreadyTranslated as done:
            print(f"qkv: {done}", file=sys.stderr)
            if out is None:  # a single file, whose translation is the file itself
                sys.stdout.buffer.write(files[0].expanduser().read_bytes())
            raise typer.Exit(0) from None
    elif out is not None or all_segments:
        raise ConfigError("--out and --all are for files; name a file")
    lines = input_lines(files[0] if files else None)
    translator = load_translator(run, device, engine, precision, adapter)
    if not sampling and "beam" not in options:
        options["beam"] = max(n_best, translator.recipe.decoding.beam)
    config = translator.decoding(**options)  # refuses a wrong option before the first line is read
    translator.check_glossary(text_options, config)
    vocabulary = [word for line in input_lines(words) for word in line.split()] if words is not None else None
    counts, exit_code = TermCounts(), 0

    def translate(texts: list[str], **more: Any) -> "list[list[TranslatedText]]":
        found = translator.n_best(texts, words=vocabulary, **given_texts, **options, **more)
        counts.add(found)
        return found

    if plan is not None:
        exit_code = translate_documents(plan, lambda texts: [best.text for best, *_ in translate(texts)], text_options.protect)
    else:
        translate_lines(lines, translator, translate, LineOptions(config.n_best, prefix, scores, alignments))
    if glossary is not None:
        counts.report()
    raise typer.Exit(exit_code)


def _text_options(
    split: str | None, protect: list[str] | None, no_protect: bool, glossary: Path | None, ignore_case: bool, soft: bool
) -> dict[str, Any]:
    """Return the options for texts, with the glossary read; refuse those that exclude or need each other."""
    from qkv.text.glossary import Glossary

    if protect and no_protect:
        raise ConfigError("--protect and --no-protect exclude each other; leave one out")
    if ignore_case and glossary is None:
        raise ConfigError("--ignore-case is for the terms of a glossary; give --glossary too")
    if soft and glossary is None:
        raise ConfigError("--soft is a way to use a glossary; give --glossary too")
    terms = None if glossary is None else Glossary.read(glossary, ignore_case)
    return {"split": split, "protect": None if no_protect else tuple(protect or ()), "glossary": terms, "soft": soft}


class TermCounts:
    """Counts the terms of a glossary in the text, and those that are not translated as the glossary says."""

    def __init__(self) -> None:
        self.occurrences: Counter[Term] = Counter()
        self.missing: Counter[Term] = Counter()

    def add(self, found: "list[list[TranslatedText]]") -> None:
        """Count the terms of the best translation of each text."""
        for best, *_ in found:
            self.occurrences.update(best.terms)
            self.missing.update(best.missing_terms)

    def report(self) -> None:
        """Print how many terms were found and translated as the glossary says, and each that was not."""
        total, lost = self.occurrences.total(), self.missing.total()
        kept = f"{total - lost:,} translated as the glossary says"
        print(f"qkv: terms of the glossary: {total:,} in the text, {kept}", file=sys.stderr)
        for term, count in self.missing.most_common():
            print(f"qkv: {term}: {count:,} of {self.occurrences[term]:,} occurrences do not follow the glossary", file=sys.stderr)
