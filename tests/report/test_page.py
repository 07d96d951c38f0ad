"""The report is one file that fetches and runs nothing, shows what it was given, and shows text as text."""

import math
import re
from html.parser import HTMLParser

import pytest

from qkv.report.charts import Line, chart, chart_over_key, reliability_chart, short, smooth, thin, ticks
from qkv.report.page import write_report

VOID = {"meta", "br", "wbr"}


class Page(HTMLParser):
    """Collects the text, the tags and the attributes, and checks that every tag is closed."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source, self.open, self.tags, self.words = source, [], [], []
        self.feed(source)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.words)

    def having(self, name: str) -> list[tuple[str, dict[str, str | None]]]:
        return [(tag, attributes) for tag, attributes in self.tags if attributes.get("class") == name]


def report(folder, **parts) -> Page:
    nothing = {"facts": {}, "metrics": [], "scores": [], "samples": [], "corpus": [], "attention": []}
    return Page(write_report(folder, parts.pop("title", "A run"), **{**nothing, **parts}).read_text("utf-8"))


FULL = {
    "facts": {"Parameters": "3,000,000", "Device": "CPU"},
    "metrics": [
        *({"step": s, "loss": 9 / s, "learning_rate": 1e-4, "tokens_per_second": 900.0} for s in range(1, 101)),
        *({"step": s, "dev_loss": 10 / s, "dev_bleu": s / 4} for s in range(10, 101, 10)),
    ],
    "scores": [
        {"name": "bleu", "value": 25.04, "low": 24.0, "high": 26.1, "signature": "nrefs:1|tok:13a"},
        {"name": "token_errors", "value": 8.0, "low": None, "high": None, "signature": "nrefs:var"},
    ],
    "samples": [
        {"source": "read", "reference": ["R EH1 D", "R IY1 D"], "output": "R IY1 D"},
        {"source": "cat", "reference": "K AE1 T", "output": "K AH1 T"},
    ],
    "corpus": [{"file": "train.tsv", "kept": 131945}, {"file": "dev.tsv", "dropped": 2}],
    "attention": ['<svg class="attention"><text>seen</text></svg>'],
}


def test_everything_given_is_shown(tmp_path):
    page = report(tmp_path, title="Spelling", **FULL)
    headings = ["Scores", "Curves", "Held-out samples", "Attention", "Corpus"]
    charts = ["Loss", "Dev scores", "Learning rate", "Tokens per second"]
    for words in ["Spelling", "3,000,000", *headings, *charts, "25.0", "95 %: 24.0 – 26.1", "131,945", "seen"]:
        assert words in page.words, words
    assert "nrefs:1|\ntok:13a" in page.text
    assert "1 of 2 exactly right" in page.text


def test_only_the_parts_that_exist(tmp_path):
    page = report(tmp_path)
    assert "A run" in page.words
    assert not any(tag == "section" for tag, _ in page.tags)


def test_nothing_is_fetched_or_run(tmp_path):
    page = report(tmp_path, **FULL)
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object", "embed"}
    assert not {name for _, attributes in page.tags for name in attributes} & {"src", "href", "onclick", "onload"}
    assert "url(" not in page.source and "@import" not in page.source and "https:" not in page.source
    policies = [a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policies and policies[0].startswith("default-src 'none'")


def test_light_and_dark_and_phone(tmp_path):
    source = report(tmp_path).source
    assert "prefers-color-scheme: dark" in source and 'name="viewport"' in source and "max-width: 640px" in source


EVIL = "<script>alert(1)</script>\" onload='x' & </td>"


@pytest.mark.parametrize(
    "parts",
    [
        {"title": EVIL},
        {"facts": {EVIL: EVIL}},
        {"samples": [{"source": EVIL, "reference": EVIL, "output": EVIL}]},
        {"samples": [{"source": "x", "reference": ["y", "<i>z"], "output": EVIL}]},
        {"samples": [{"source": "x", "reference": f"a {EVIL}", "output": "a"}]},
        {"corpus": [{EVIL: EVIL}]},
        {"scores": [{"name": EVIL, "value": 1.0, "low": None, "high": None, "signature": EVIL}]},
        {"metrics": [{"step": 1, f"dev_{EVIL}": 1.0}]},
    ],
)
def test_text_stays_text(tmp_path, parts):
    page = report(tmp_path, **parts)
    assert "script" not in {tag for tag, _ in page.tags}
    assert not [attributes for _, attributes in page.tags if "onload" in attributes]
    shown = page.words + [value or "" for _, attributes in page.tags for value in attributes.values()]
    assert any("<script>alert(1)</script>" in words for words in shown)


def marked(tmp_path, reference, output) -> str:
    source = report(tmp_path, samples=[{"source": "s", "reference": reference, "output": output}]).source
    return source.partition('data-name="output">')[2].partition("</td>")[0]


def test_wrong_samples_are_marked_where_they_differ(tmp_path):
    assert marked(tmp_path, "K AE1 T", "K AH1 T") == "K <mark>AH1</mark> T"
    assert marked(tmp_path, ["A B", "K AE1 T"], "K AE1 T S") == "K AE1 T <mark>S</mark>"
    assert marked(tmp_path, "K AE1 T", "K T") == 'K <span class="gap" title="missing: AE1"></span> T'
    assert marked(tmp_path, "流程失败", "流程已失败") == "流程<mark>已</mark>失败"
    assert "gap" in marked(tmp_path, "cat", "")
    assert marked(tmp_path, "a b", "a b") == "a b"


def test_right_and_wrong_rows(tmp_path):
    page = report(tmp_path, samples=FULL["samples"])
    assert len(page.having("right")) == 1 and len(page.having("wrong")) == 1


def test_numbers_that_are_missing_or_not_finite_are_left_out(tmp_path):
    metrics = [{"step": 1, "loss": None}, {"step": 2, "loss": math.nan}, {"step": 3, "loss": 1.0}, {"step": 4}]
    source = report(tmp_path, metrics=metrics).source
    assert source.count("<circle") == 1 and "nan" not in source


def test_replaces_an_older_report(tmp_path):
    report(tmp_path, title="old")
    assert "old" not in report(tmp_path, title="new").words
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_half_of_a_character_does_not_stop_the_report(tmp_path):
    assert "half ?" in report(tmp_path, title="half \ud800").words


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [(0, 100, [0, 25, 50, 75, 100]), (0, 6000, [0, 2000, 4000, 6000]), (0.9, 1.3, [0.9, 1.0, 1.1, 1.2, 1.3])],
)
def test_ticks_are_round(low, high, wanted):
    assert list(ticks(low, high)) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (0, "0"),
        (0.527, "0.527"),
        (31.26, "31.3"),
        (5432.1, "5,432"),
        (31_260, "31.3k"),
        (2.5e6, "2.5M"),
        (3e-4, "3e-4"),
        (-math.inf, "-inf"),
    ],
)
def test_short_numbers(value, wanted):
    assert short(value) == wanted


def test_long_series_are_thinned_to_the_last_point():
    points = [(float(i), 1.0) for i in range(10_001)]
    assert len(thin(points)) <= 400
    assert thin(points)[-1] == points[-1]
    assert thin(points[:5]) == points[:5]


def test_smoothing_does_not_lag():
    slope = [(float(i), 10.0 * i) for i in range(200)]
    assert smooth(slope)[:190] == slope[:190]


@pytest.mark.parametrize("points", [[(0, 0.0)], [(5, 2.0)], [(1, -3.0), (2, -3.0)], [(1, 1e-9), (9, 1e9)]])
def test_odd_series_make_a_chart(points):
    drawn = chart("odd", [Line("x", points)])
    assert "nan" not in drawn and drawn.count("<polyline") == 1


@pytest.mark.parametrize(("tried", "at"), [([1e-4, 1e-3, 1e-2], 0.5), ([2, 3, 6], 0.25), ([-1, 0, 99], 0.01)])
def test_values_of_a_key_fill_the_width_and_powers_of_ten_are_even(tried, at):
    drawn = chart_over_key("chrf over rate", [Line("best", [(value, 7.0) for value in tried])])
    first, middle, last = map(float, re.findall(r'<circle[^>]*cx="([\d.]+)"', drawn))
    assert (middle - first) / (last - first) == pytest.approx(at, abs=0.001)
    assert f">{short(tried[0])}</text>" in drawn


def test_losses_have_charts_of_their_own_and_scores_share_one(tmp_path):
    metrics = [
        {"step": 1, "loss": 9.0, "generator_loss": 7.0, "recall_replaced": 0.5},
        {"step": 1, "dev_loss": 9.0, "dev_generator_loss": 7.0, "dev_recall_replaced": 0.1, "dev_recall_original": 0.9},
    ]
    page = report(tmp_path, metrics=metrics, figures=[{"figure": "recall", "held out": "0.10"}])
    charts = "".join(page.words).split("Curves")[1]
    assert charts.startswith("Losstrain 9dev 9") and "Generator losstrain 7dev 7" in charts
    assert "Dev scoresRecall replaced 0.1Recall original 0.9" in charts
    assert page.words.index("Scores") < page.words.index("recall") < page.words.index("Curves")


def test_the_bins_of_confidence_are_drawn_where_they_belong(tmp_path) -> None:
    drawn = Page(reliability_chart("a <b> title", [(0.0, 0.0, 100), (0.5, 0.25, 25), (1.0, 1.0, 1)]))
    dots = [attributes for tag, attributes in drawn.tags if tag == "circle"]
    left, middle, right = ([float(dot[name]) for name in ("cx", "cy", "r")] for dot in dots)
    assert middle[0] == pytest.approx((left[0] + right[0]) / 2)
    assert middle[1] == pytest.approx(0.75 * left[1] + 0.25 * right[1], abs=0.1)
    assert left[2] > middle[2] > right[2] > 2  # by count
    assert "a <b> title" in drawn.text and "predicted 0.50, observed 0.25: 25 texts" in drawn.text
    bins = [{"confidence": "0.1 to 0.2", "predicted": 0.15, "observed": 0.2, "texts": 1000}]
    page = report(tmp_path, confidence="AUC <0.9>", reliability=bins)
    assert "Confidence" in page.text and "AUC <0.9>" in page.text and "1,000" in page.text
    assert "Confidence" not in report(tmp_path).text
