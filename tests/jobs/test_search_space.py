"""What --try means: lists, ranges, all combinations, and draws that more draws begin with."""

import itertools
import math

import pytest

from qkv.base.errors import ConfigError
from qkv.jobs.search_space import Dimension, draws, grid, read_dimensions


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("training.learning_rate=1e-4,3e-4,1e-3", (1e-4, 3e-4, 1e-3)),
        ("model.norm=pre,post", ("pre", "post")),
        ("training.betas=[0.9, 0.98],[0.9, 0.999]", ([0.9, 0.98], [0.9, 0.999])),
        ("model.dropout=0,0.1", (0, 0.1)),
        ("data.protect=true", (True,)),
    ],
)
def test_lists_of_values(text, values):
    (found,) = read_dimensions([text])
    assert found == Dimension(text.partition("=")[0], values)


def test_ranges():
    layers, rate = read_dimensions({"model.layers": "2..6", "training.learning_rate": "1e-5..1e-2"})
    assert list(layers.all_values()) == [2, 3, 4, 5, 6] and layers.whole and not layers.log
    assert (rate.low, rate.high, rate.whole, rate.log) == (1e-5, 1e-2, False, True)
    with pytest.raises(ConfigError, match="a range of real numbers has no list of values"):
        grid([rate])


@pytest.mark.parametrize("tries", [["x"], ["=3"], ["x="], ["x=6..2"], ["x=1", "x=2"], ["seed=1,2"], [], {"x": 3}, {"x": []}])
def test_what_cannot_be_tried_is_refused(tries):
    with pytest.raises(ConfigError, match=r"^[^\n]+$"):
        read_dimensions(tries)


def test_a_grid_is_every_combination():
    found = grid(read_dimensions(["a=1,2,3", "b=x,y"]))
    assert found == [{"a": a, "b": b} for a, b in itertools.product((1, 2, 3), "xy")]


def test_draws_are_in_their_ranges_and_more_of_them_begin_alike():
    dimensions = read_dimensions(["rate=1e-5..1e-1", "layers=1..3", "width=5..900", "kind=a,b", "share=0..0.5"])
    many = draws(dimensions, 200, 7)
    assert draws(dimensions, 20, 7) == many[:20] != draws(dimensions, 20, 8)
    assert len({str(one) for one in many}) == 200
    assert all(1e-5 <= one["rate"] <= 1e-1 and one["layers"] in (1, 2, 3) and 0 <= one["share"] <= 0.5 for one in many)
    assert {one["kind"] for one in many} == {"a", "b"} and {one["layers"] for one in many} == {1, 2, 3}
    assert all(isinstance(one["width"], int) and 5 <= one["width"] <= 900 for one in many)
    below = sum(math.log10(one["rate"]) < -3 for one in many)
    assert 60 < below < 140  # the middle of a range on a log scale


def test_a_small_space_has_few_draws():
    found = draws(read_dimensions(["a=1,2", "b=1,2"]), 10, 1)
    assert sorted((one["a"], one["b"]) for one in found) == [(1, 1), (1, 2), (2, 1), (2, 2)]
