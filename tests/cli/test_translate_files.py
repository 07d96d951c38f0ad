"""qkv translate with whole files: what it writes, says, refuses, and how Python does the same."""

from pathlib import Path

import pytest

import qkv
from qkv.base.errors import QkvError
from workbench import Commands

PO = 'msgid ""\nmsgstr "Language: de\\n"\n\nmsgid "sun rain tree"\nmsgstr ""\n\nmsgid "old"\nmsgstr "alt"\n'


@pytest.fixture
def po(tmp_path: Path) -> Path:
    path = tmp_path / "messages.po"
    path.write_text(PO, encoding="utf-8")
    return path


def test_a_file_is_written_or_printed(commands: Commands, run: Path, po: Path, tmp_path: Path) -> None:
    best = qkv.load(run).translate(["sun rain tree"])[0]
    wanted = PO.replace('msgid "sun rain tree"\nmsgstr ""', f'#, fuzzy\nmsgid "sun rain tree"\nmsgstr "{best}"')
    done = commands.run("translate", run, po)
    assert done.code == 0 and done.out == wanted
    assert done.err == "qkv: files written 1, skipped 0, failed 0; segments translated 1, left as they were 1, with problems 0\n"
    out = tmp_path / "new" / "messages.de.po"
    done = commands.run("translate", run, po, "--out", out)
    assert done.code == 0 and done.out == "" and out.read_text(encoding="utf-8") == wanted
    report = qkv.load(run).translate_files([po], tmp_path / "python.po")
    assert (tmp_path / "python.po").read_text(encoding="utf-8") == wanted and report.translated == 1
    again = commands.run("translate", run, po, "--out", out)
    assert again.code == 2 and "exists already" in again.err


def test_folders_all_and_formats(commands: Commands, run: Path, po: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("# sun rain\n", encoding="utf-8")
    done = commands.run("translate", run, po.parent, "--all", "--out", tmp_path / "out")
    assert done.code == 0 and done.err.startswith(
        f"qkv: skipped {tmp_path / 'notes'}: unknown format\nqkv: files written 1, skipped 1,"
    )
    assert "alt" not in (tmp_path / "out/messages.po").read_text(encoding="utf-8")
    done = commands.run("translate", run, tmp_path / "notes", "--format", "markdown")
    assert done.code == 0 and done.out.startswith("# ") and done.out != "# sun rain\n"


def test_files_that_are_translated_already_are_no_error(commands: Commands, run: Path, po: Path, tmp_path: Path) -> None:
    po.write_text(PO.replace('msgid "sun rain tree"\nmsgstr ""', 'msgid "sun"\nmsgstr "Sonne"'), encoding="utf-8")
    done = commands.run("translate", run, po)
    assert (done.code, done.out) == (0, po.read_text(encoding="utf-8"))
    assert done.err == f"qkv: {po}: everything has a translation; --all translates it again\n"
    (tmp_path / "notes").write_text("x", encoding="utf-8")
    done = commands.run("translate", run, tmp_path, "--out", tmp_path / "out")
    assert (done.code, done.out) == (0, "") and not (tmp_path / "out").exists()
    assert done.err == "qkv: everything has a translation in 1 of 2 files; --all translates it again\n"


def test_a_table_by_its_columns(commands: Commands, run: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("1,sun rain,\n2,old bird,x\n", encoding="utf-8")
    done = commands.run("translate", run, table, "--set", "columns=[2,3]")
    assert done.code == 0 and done.out == f"1,sun rain,{qkv.load(run).translate(['sun rain'])[0]}\n2,old bird,x\n"
    assert "such as columns=[2,3]" in commands.run("translate", run, table, "--set", "columns=2").err
    report = qkv.load(run).translate_files([table], columns=[2, 3])
    assert report.content.decode() == done.out and report.written == [None]


def test_languages_are_taken_for_lines_too(commands: Commands, run: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("sun rain\n", encoding="utf-8")
    done = commands.run("translate", run, tmp_path / "a.txt", "--set", "languages=[en,de]")
    assert done.code == 0 and done.out == f"{qkv.load(run).translate(['sun rain'])[0]}\n"


def test_python_names_formats_and_languages_and_continues_only_the_same_call(
    monkeypatch: pytest.MonkeyPatch, run: Path, po: Path, tmp_path: Path
) -> None:
    translator, notes = qkv.load(run), tmp_path / "in" / "notes"
    notes.parent.mkdir()
    notes.write_text("# sun rain\n", encoding="utf-8")
    assert translator.translate_files([notes], file_format="markdown").content.startswith(b"# ")
    with pytest.raises(QkvError, match="its language is de, not fr; choose a model that translates to de"):
        translator.translate_files([po], languages=["en", "fr"])
    for name in ("a.md", "b.md"):
        (tmp_path / "in" / name).write_text(f"sun rain {name}", encoding="utf-8")

    def stop(*_: object, **__: object) -> list[str]:
        raise KeyboardInterrupt

    out = tmp_path / "out"
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(translator, "translate", stop)
        translator.translate_files([tmp_path / "in"], out, beam=1)
    (out / "a.md").write_text("written before the interruption", encoding="utf-8")
    with pytest.raises(QkvError, match="exists already"):
        translator.translate_files([tmp_path / "in"], out, beam=2)
    assert len(translator.translate_files([tmp_path / "in"], out, beam=1).written) == 2


def test_the_summary_counts_identifiers(commands: Commands, run: Path, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"icon": "mdi:home", "text": "sun rain"}', encoding="utf-8")
    done = commands.run("translate", run, tmp_path / "a.json")
    assert done.code == 0 and '"mdi:home"' in done.out
    assert done.err.endswith("with problems 0; identifiers, paths and addresses skipped 1\n")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--scores"], "--scores is for text line by line"),
        (["--n-best", "2"], "--n-best is for"),
        (["--alignments"], "--alignments is for"),
        (["--format", "doc"], "no format 'doc'; known are po,"),
        (["--set", "beam=0"], "beam"),
        (["--set", "languages=[en]"], "languages takes two values"),
    ],
)
def test_wrong_options_are_one_line_and_write_nothing(
    commands: Commands, run: Path, po: Path, tmp_path: Path, options: list[str], reason: str
) -> None:
    done = commands.run("translate", run, po, "--out", tmp_path / "out.po", *options)
    assert done.code == 2 and reason in done.err and done.err.count("\n") == 1
    assert not (tmp_path / "out.po").exists()


def test_a_damaged_file_is_refused_before_the_model_is_loaded(commands: Commands, run: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.xlf").write_text("<xliff>\n<source>", encoding="utf-8")
    (tmp_path / "good.md").write_text("sun", encoding="utf-8")
    done = commands.run("translate", run, tmp_path, "--out", tmp_path / "out", "--engine", "none")
    assert done.code == 2 and "bad.xlf, line 2: not well-formed XML" in done.err and not (tmp_path / "out").exists()
    assert "name a file" in commands.run("translate", run, "--all").err
