"""UniLM's four ways to read: what each place sees, by enumeration, in packed rows."""

import random

import torch

from qkv.parts.modes import LEFT_TO_RIGHT, RIGHT_TO_LEFT, SOURCE, TARGET, visible_range

WAYS = {
    "both": (0, 1),
    "left": (LEFT_TO_RIGHT, LEFT_TO_RIGHT),
    "right": (RIGHT_TO_LEFT, RIGHT_TO_LEFT),
    "sequence": (SOURCE, TARGET),
}
WIDTH = 40


def random_row(rng: random.Random) -> list[tuple[int, str, bool]]:
    """For each place the number of its text, the way it is read, and whether it is of the second part; then padding."""
    row: list[tuple[int, str, bool]] = []
    for number in range(1, rng.randint(2, 7)):
        first, second = rng.randint(1, 4), rng.randint(0, 3)
        way = rng.choice(list(WAYS))
        row += [(number, way, position >= first) for position in range(first + second)]
    return row + [(0, "both", False)] * (WIDTH - len(row))


def sees(row: list[tuple[int, str, bool]], q: int, k: int) -> bool:
    """The definition, of one query and one key."""
    (text, way, _), (other, _, second) = row[q], row[k]
    if text != other:
        return False
    if way == "sequence":
        return not second or (row[q][2] and k <= q)
    return {"both": True, "left": k <= q, "right": k >= q}[way]


def test_every_way_is_its_definition() -> None:
    rng = random.Random(1)
    rows = [random_row(rng) for _ in range(60)]
    text = torch.tensor([[number for number, _, _ in row] for row in rows])
    segment = torch.tensor([[WAYS[way][second] for _, way, second in row] for row in rows])
    mask = visible_range(text, segment).dense()
    assert mask.shape == (60, 1, WIDTH, WIDTH)
    met = set()
    for r, row in enumerate(rows):
        for q in range(WIDTH):
            if not row[q][0]:
                assert mask[r, 0, q].all()  # padding looks anywhere: a softmax over nothing is no number
                continue
            met.add(row[q][1:])
            assert mask[r, 0, q].tolist() == [sees(row, q, k) for k in range(WIDTH)]
    assert len(met) == 8


def test_a_row_without_padding_and_one_of_nothing_else() -> None:
    text, segment = torch.tensor([[1, 1, 2, 2], [0, 0, 0, 0]]), torch.tensor([[4, 5, 3, 3], [0, 0, 0, 0]])
    found = visible_range(text, segment)
    assert found.first[0].tolist() == [0, 0, 2, 3] and found.last[0].tolist() == [0, 1, 3, 3]
    assert (found.last[1] < found.first[1]).all() and found.dense()[1].all()
