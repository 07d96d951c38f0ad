"""The Home Assistant data: joined by key, unusable pairs dropped with a reason, components and texts not shared."""

import json
import zipfile

import pytest


@pytest.fixture
def home(demo, monkeypatch):
    module = demo("homeassistant")
    monkeypatch.setattr(module, "MIN_COMPONENTS", 2)
    return module


def component_in(home, split: str, start: str = "c") -> str:
    """Return a made-up component name that the hash puts in the wanted split."""
    return next(name for i in range(1000) if home.split_of(name := f"{start}{i}") == split)


def make_wheel(path, catalogues):
    with zipfile.ZipFile(path, "w") as wheel:
        for (component, language), tree in catalogues.items():
            wheel.writestr(f"homeassistant/components/{component}/translations/{language}.json", json.dumps(tree))
        wheel.writestr("homeassistant/components/x/strings.json", "{}")
    return path


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("Hello {name}", "Hallo {name}", ""),
        ("{a} and {b}", "{b} und {a}", ""),
        ("Hello {name}", "Hallo", "placeholders differ"),
        ("Hello {name}", "Hallo {name }", "placeholders differ"),
        ("Hello {name}", "Hallo {name} }", "placeholders differ"),
        ("[%key:common::off%]", "[%key:common::off%]", "reference to another text"),
        ("Off", "", "empty"),
        ("{a} ({b})", "{a} – {b}", "no words"),
        ("42 %", "42%", "no words"),
        ("Port", "Port", "same on both sides"),
        ("Off", "关闭", ""),
    ],
)
def test_useless_pairs_are_dropped(home, source, target, reason):
    assert home.drop_reason(source, target) == reason


def test_join_on_nested_keys(home, tmp_path):
    english = {"title": "Lamp", "step": {"user": {"name": "Name of\nthe lamp", "gone": "Only here"}}}
    german = {"title": "Lampe", "step": {"user": {"name": "Name der\n\nLampe", "old": "Nur hier"}}}
    wheel = make_wheel(tmp_path / "w.whl", {("lamp", "en"): english, ("lamp", "de"): german, ("tv", "de"): {"a": "b"}})
    with zipfile.ZipFile(wheel) as opened:
        pairs = list(home.read_pairs(opened, "de"))
    assert pairs == [("lamp", "Lamp", "Lampe"), ("lamp", "Name of the lamp", "Name der Lampe")]


def test_split_holds_out_components_and_texts(home):
    train, dev, test = (component_in(home, part) for part in ("train", "dev", "test"))
    rows = [
        (train, "Off", "Aus"),
        (train, "Off", "Aus"),
        (test, "off!", "aus!"),
        (test, "Only test", "Nur Test"),
        (dev, "Only test", "Nur ein Test"),
        (dev, "Only dev", "Nur Dev"),
    ]
    kept, dropped = home.split_pairs(rows)
    assert kept == {"train": [("Off", "Aus")], "test": [("Only test", "Nur Test")], "dev": [("Only dev", "Nur Dev")]}
    assert dropped == {"repeated": 1, "of test also in another split": 1, "of dev also in another split": 1}


def test_shares_of_components(home):
    parts = [home.split_of(f"component{i}") for i in range(4000)]
    assert 0.06 < parts.count("test") / 4000 < 0.10
    assert 0.035 < parts.count("dev") / 4000 < 0.065


def test_make_writes_three_files(home, tmp_path, capsys):
    names = {part: component_in(home, part) for part in ("train", "dev", "test")}
    catalogues = {(name, "en"): {"a": f"The {part}"} for part, name in names.items()}
    catalogues |= {(name, "zh-Hans"): {"a": f"这是{part}"} for part, name in names.items()}
    wheel = make_wheel(tmp_path / "w.whl", catalogues)
    home.make_dataset(wheel, "zh-Hans", tmp_path / "out")
    texts = {path.name: path.read_text("utf-8") for path in (tmp_path / "out").iterdir()}
    assert texts == {f"{part}.tsv": f"The {part}\t这是{part}\n" for part in names}
    assert "train.tsv: 1 pairs" in capsys.readouterr().out


def test_unknown_language_names_the_known(home, tmp_path, capsys):
    trees = {(component, language): {"a": "b"} for component in "xy" for language in ("en", "de", "fr")}
    wheel = make_wheel(tmp_path / "w.whl", {**trees, ("x", "ne"): {"a": "b"}})
    with pytest.raises(SystemExit) as stop:
        home.make_dataset(wheel, "klingon", tmp_path / "out")
    assert stop.value.code == 2
    assert capsys.readouterr().err == "no Home Assistant translations to 'klingon'; choose from de fr\n"
    assert not (tmp_path / "out").exists()


def test_damaged_wheel(home, tmp_path, capsys):
    (tmp_path / "w.whl").write_bytes(b"half a file")
    with pytest.raises(SystemExit) as stop:
        home.make_dataset(tmp_path / "w.whl", "de", tmp_path / "out")
    assert stop.value.code == 2
    assert "delete it" in capsys.readouterr().err


def test_wheel_is_downloaded_once(home, tmp_path, monkeypatch):
    calls = []

    def pip(command):
        calls.append(command)
        (tmp_path / f"homeassistant-{home.VERSION}-py3-none-any.whl").touch()
        return home.subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(home.subprocess, "run", pip)
    assert home.download_wheel(tmp_path) == home.download_wheel(tmp_path)
    assert len(calls) == 1
    assert {"--no-deps", "--ignore-requires-python"} <= set(calls[0])


def test_failed_download(home, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(home.subprocess, "run", lambda command: home.subprocess.CompletedProcess(command, 1))
    with pytest.raises(SystemExit) as stop:
        home.download_wheel(tmp_path)
    assert stop.value.code == 2
    assert "check the network" in capsys.readouterr().err
