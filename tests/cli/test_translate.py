"""qkv translate: lines in, lines out, in order; and what it says of input that it cannot use."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import qkv
from workbench import WORDS, Commands, environment, write_recipe

LINES = ["sun rain tree", "", "old bird", "river stone small red house", "  ", "sings", "sun rain tree", "unknown wörds – 雨"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


def translated(commands: Commands, run: Path, lines: list[str], *options: object) -> list[str]:
    done = commands.run("translate", run, *options, stdin="".join(f"{line}\n" for line in lines).encode())
    assert done.code == 0 and done.err == "", done.err
    return done.out.split("\n")[:-1]


def test_each_line_has_its_translation_in_its_place(commands: Commands, run: Path, text: Path) -> None:
    done = commands.run("translate", run, text)
    assert done.code == 0 and done.err == ""
    found = done.out.split("\n")
    assert found.pop() == "" and len(found) == len(LINES)
    assert found == [translated(commands, run, [line])[0] for line in LINES]  # as each would be alone
    assert found[0] == found[6] and found[0]
    assert [i for i, line in enumerate(found) if not line] == [1, 4]  # an empty line stays empty


def test_python_gives_the_same_as_the_command(commands: Commands, run: Path) -> None:
    assert qkv.load(run).translate(LINES) == translated(commands, run, LINES)


def test_many_lines_of_any_length_keep_their_order(commands: Commands, run: Path) -> None:
    lines = [" ".join(WORDS[(i * k) % 12] for k in range(i % 7)) for i in range(1300)]
    found = translated(commands, run, lines, "--beam", 1)
    assert len(found) == 1300
    known = dict(zip(lines, found, strict=True))
    assert [known[line] for line in lines] == found and len(set(found)) > 20
    assert all(bool(line) == bool(out) for line, out in zip(lines, found, strict=True))


def test_lines_without_letters_stay_as_they_are(commands: Commands, run: Path) -> None:
    lines = ["42", "---", "%d %%"]
    assert translated(commands, run, lines) == lines
    assert translated(commands, run, lines, "--no-protect") != lines


def test_the_last_line_needs_no_end_and_windows_ends_are_ends(commands: Commands, run: Path) -> None:
    done = commands.run("translate", run, stdin=b"sun rain\r\nold bird")
    assert done.out.split("\n")[:-1] == translated(commands, run, ["sun rain", "old bird"])


def test_standard_input_has_a_name_too(commands: Commands, run: Path) -> None:
    assert translated(commands, run, LINES, "-") == translated(commands, run, LINES)


def test_nothing_in_nothing_out(commands: Commands, run: Path) -> None:
    assert translated(commands, run, []) == []


def test_n_best_prints_so_many_lines_for_each_line(commands: Commands, run: Path) -> None:
    lines = ["sun rain tree", "", "old bird"]
    found = translated(commands, run, lines, "--n-best", 3)
    assert len(found) == 9
    assert found[3:6] == ["", "", ""]
    assert found[0] == translated(commands, run, lines[:1], "--beam", 3)[0]
    assert len(set(found[:3])) == 3


def test_scores_come_first_and_fall(commands: Commands, run: Path) -> None:
    done = commands.run("translate", run, "--n-best", 3, "--scores", stdin=b"sun rain tree\nold\n")
    assert done.code == 0 and done.err.startswith("qkv: --scores prints scores of the search") and done.err.count("\n") == 1
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert all(len(row) == 2 for row in rows)
    scores = [float(row[0]) for row in rows]
    assert scores[:3] == sorted(scores[:3], reverse=True) and scores[3:] == sorted(scores[3:], reverse=True)
    assert max(scores) < 0  # logarithms of probabilities
    assert [row[1] for row in rows] == translated(commands, run, ["sun rain tree", "old"], "--n-best", 3)


def test_alignments_link_words_that_are_there(commands: Commands, run: Path) -> None:
    (text, links), empty = (line.split("\t") for line in translated(commands, run, ["sun rain tree", ""], "--alignments"))
    pairs = [tuple(map(int, link.split("-"))) for link in links.split()]
    assert {target for _, target in pairs} == set(range(len(text.split())))
    assert {source for source, _ in pairs} <= {0, 1, 2}
    assert empty == ["", ""]


def test_samples_differ_from_the_best_and_are_the_same_again(commands: Commands, run: Path) -> None:
    options = ("--sample", "--temperature", 2.0, "--top-k", 20)
    first, second = (translated(commands, run, ["sun rain tree red"] * 4, *options) for _ in range(2))
    assert first == second and first != translated(commands, run, ["sun rain tree red"] * 4)


def test_decoding_can_be_set(commands: Commands, run: Path) -> None:
    assert translated(commands, run, LINES, "--set", "beam=1") == translated(commands, run, LINES, "--beam", 1)


def test_a_line_of_a_million_characters(commands: Commands, run: Path) -> None:
    long = " ".join(WORDS[i % 12] for i in range(200_000))
    assert len(long) > 1_000_000
    found = translated(commands, run, ["old bird", long[:1_000_000], "old bird", "x" * 50_000], "--beam", 1)
    assert len(found) == 4 and found[0] == found[2] and len(found[1]) > 10_000


def test_an_answer_comes_as_soon_as_its_line(run: Path, tmp_path: Path) -> None:
    """A program that asks line by line must not wait for the end of the input; here with a process that was not forked."""
    process = subprocess.Popen(
        [sys.executable, "-m", "qkv", "translate", run],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(tmp_path), text=True,
    )  # fmt: skip
    assert process.stdin and process.stdout
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    for line in ("sun rain", "", "old bird"):
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer.endswith("\n") and bool(answer.strip()) == bool(line)
    _, err = process.communicate()
    watchdog.cancel()
    assert process.returncode == 0 and err == ""


def test_a_reader_that_goes_away_is_no_mistake(run: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("sun rain\n" * 3000)
    command = f"{sys.executable} -m qkv translate {run} {tmp_path / 'in.txt'} --beam 1 | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment(tmp_path))
    assert done.stdout.count("\n") == 1 and done.stderr == ""


def test_bad_utf8_names_its_line_after_the_good_ones(commands: Commands, run: Path) -> None:
    done = commands.run("translate", run, stdin=b"sun rain\nold bird\n\xff\xfe\nsun\n")
    assert "line 3 is not UTF-8 text; convert the input, for example with iconv" in done.complaint()
    assert done.out.count("\n") == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--beem", "3"], "--beem"),
        (["--beam", "many"], "--beam"),
        (["--beam", "0"], "beam: input should be greater than or equal to 1, got 0"),
        (["--beam", "2", "--n-best", "5"], "n_best must not exceed beam, 2; raise beam or lower n_best"),
        (["--n-best", "0"], "n_best"),
        (["--set", "length_penalti=1"], "unknown key 'length_penalti'; did you mean 'length_penalty'?"),
        (["--set", "length_penalty=long"], "length_penalty"),
        (["--set", "length_penalty"], "--set length_penalty: expected key=value"),
        (["--temperature", "0.5"], "temperature acts in sampling only"),
        (["--device", "tpu"], "device 'tpu'"),
        (["--device", "cuda"], "no GPU here; use device=cpu or auto"),
    ],
    ids=str,
)
def test_an_option_that_cannot_be_used(commands: Commands, run: Path, options: list[str], says: str) -> None:
    done = commands.run("translate", run, *options, stdin=b"sun\n")
    assert says in done.complaint() and done.out == ""


def test_files_that_cannot_be_read(commands: Commands, run: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "missing.txt", tmp_path):
        assert str(path) in commands.run("translate", run, path).complaint()
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)) * 10)
    assert "text in UTF-8 is wanted" in commands.run("translate", run, tmp_path / "binary.txt").complaint()


def test_ctrl_c_while_waiting_for_input_ends_quietly(run: Path) -> None:
    command = [sys.executable, "-m", "qkv", "translate", str(run)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, env=environment(run.parent / "cache"), **pipes) as process:
        assert process.stdin and process.stdout
        process.stdin.write(b"sun\n")
        process.stdin.flush()
        process.stdout.readline()  # it has answered, and waits
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=60)  # before its input is closed, at which it might end as usual
        finally:
            process.kill()
        _, err = process.communicate()
    assert process.returncode == 130 and b"Fatal" not in err, err


def test_a_prefix_and_a_vocabulary_are_kept_to(commands: Commands, run: Path, tmp_path: Path) -> None:
    assert all(line.startswith("avis") for line in translated(commands, run, ["sun rain", "old tree"], "--prefix", "avis"))
    (tmp_path / "words.txt").write_text("sol\npluvia arbor\n")
    (found,) = translated(commands, run, ["red bird sings old river"], "--words", tmp_path / "words.txt")
    tokenizer = qkv.load(run, "cpu").tokenizers.target
    pieces = {piece for word in ("sol", "pluvia", "arbor") for piece in tokenizer.encode(word)}
    assert set(tokenizer.encode(found)) <= pieces


def test_placeholders_and_sentences_by_options(commands: Commands, run: Path) -> None:
    lines = ["old {x} bird <b>sings</b>", "sun #12 rain", "Sun rain. Old bird."]
    found = translated(commands, run, lines, "--protect", "#[0-9]+")
    assert all(found[0].count(span) == 1 for span in ("{x}", "<b>", "</b>")) and found[1].count("#12") == 1
    assert found == qkv.load(run).translate(lines, protect=["#[0-9]+"])
    apart = translated(commands, run, ["Sun rain.", "Old bird."])
    assert translated(commands, run, lines[2:]) == [" ".join(apart)]  # this run was trained on single sentences
    assert translated(commands, run, lines[2:], "--split", "never") == qkv.load(run).translate(lines[2:], split="never")
    assert "{x}" not in translated(commands, run, lines, "--no-protect")[0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--protect", "("), "protect: '(' is not a valid regular expression"),
        (("--split", "words"), "split is sentences or never, got 'words'"),
        (("--protect", "a", "--no-protect"), "--protect and --no-protect exclude each other"),
    ],
)
def test_wrong_options_for_texts_are_refused(commands: Commands, run: Path, options: tuple[str, ...], said: str) -> None:
    assert said in commands.run("translate", run, *options, stdin=b"sun\n").complaint()


def test_a_glossary_is_kept_to_and_reported(commands: Commands, run: Path, tmp_path: Path) -> None:
    terms = tmp_path / "terms.tsv"
    terms.write_text("sun rain\tarbor\nbird\tavis|rubra\nriver\t=\n", encoding="utf-8")
    done = commands.run("translate", run, "--glossary", terms, stdin=b"Sun rain tree\nold bird\nold tree\n")
    first, second, third = done.out.split("\n")[:-1]
    assert "arbor" in first.lower() and ("avis" in second.lower() or "rubra" in second.lower())
    assert done.code == 0 and done.err == "qkv: terms of the glossary: 2 in the text, 2 translated as the glossary says\n"
    assert [third] == translated(commands, run, ["old tree"])
    best = qkv.load(run, "cpu").translate(["Sun rain tree"], glossary={"sun rain": "arbor"})
    assert best == [first]
    terms.write_text("bird\t" + "avis " * 30 + "\n", encoding="utf-8")
    done = commands.run("translate", run, "--glossary", terms, "--set", "max_length=4", stdin=b"old bird\n")
    assert done.code == 0 and done.out.strip()
    assert "1 in the text, 0 translated" in done.err and "avis: 1 of 1 occurrences do not follow the glossary" in done.err


def test_a_glossary_that_cannot_be_used(commands: Commands, run: Path, tmp_path: Path) -> None:
    terms = tmp_path / "terms.tsv"
    terms.write_text("sun\tsol\nbird\t\n", encoding="utf-8")
    missing = tmp_path / "no-run"  # the glossary is read before the run
    assert "terms.tsv: line 2 has an empty translation" in commands.run("translate", missing, "--glossary", terms).complaint()
    assert "give --glossary too" in commands.run("translate", run, "--ignore-case").complaint()
    assert "give --glossary too" in commands.run("translate", run, "--soft").complaint()
    terms.write_text("sun\tsol\n", encoding="utf-8")
    for options in (["--sample"], ["--engine", "ctranslate2"]):
        done = commands.run("translate", run, "--glossary", terms, *options, stdin=b"sun\n")
        assert "a glossary needs beam search" in done.complaint() and done.out == ""
    done = commands.run("translate", run, "--glossary", terms, "--soft", stdin=b"sun\n")
    assert "has not learned to copy translations" in done.complaint() and done.out == ""


def test_a_soft_glossary(commands: Commands, tmp_path: Path) -> None:
    terms = tmp_path / "terms.tsv"
    terms.write_text("sun\tsol\nbird\tavis\n", encoding="utf-8")
    recipe = write_recipe(tmp_path, data={"glossary": str(terms)})
    taught = tmp_path / "taught"
    assert commands.run("train", recipe, "--out", taught).code == 0
    done = commands.run("translate", taught, "--glossary", terms, "--soft", "--alignments", stdin=b"old bird\nsun sun\n")
    options = {"glossary": {"sun": "sol", "bird": "avis"}, "soft": True}
    outputs = [best for best, *_ in qkv.load(taught, "cpu").n_best(["old bird", "sun sun"], **options)]
    assert [line.split("\t")[0] for line in done.out.splitlines()] == [output.text for output in outputs]
    lost = sum(len(output.missing_terms) for output in outputs)
    assert done.err.startswith(f"qkv: terms of the glossary: 3 in the text, {3 - lost} translated as the glossary says\n")
