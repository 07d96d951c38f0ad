"""Depths and distances in trees: of one made by hand, and against a search through the graph; the attention made of them."""

import random
from collections import deque

import pytest
import torch
from torch import Tensor

from qkv.base.errors import ConfigError
from qkv.base.rows import Rows, padded_rows
from qkv.parts.attention import SelfAttention
from qkv.parts.masks import DenseMask
from qkv.parts.positions import StructuralPositions
from qkv.parts.relative import TreeRelative, make_position_scheme
from qkv.parts.trees import tree_depths, tree_distances

WIDTH, HEADS, DISTANCE = 16, 4, 2
# "the cat saw a small dog": saw governs cat and dog, cat governs the, dog governs a and small. Heads as in CoNLL-U.
SENTENCE = [2, 3, 0, 6, 6, 3]


def coded(heads: list[int], pieces: list[int] | None = None) -> list[int]:
    """Heads of words, from 1 and 0 at roots, as rows hold them, for words of so many pieces."""
    pieces = pieces or [1] * len(heads)
    begins = [sum(pieces[:word]) for word in range(len(heads))]
    made = []
    for word, head in enumerate(heads):
        made += [2 * begins[head - 1 if head else word]] + [2 * begins[word] + 1] * (pieces[word] - 1)
    return made


def row_of(*texts: list[int], width: int = 0) -> Rows:
    """Coded texts side by side, then padding."""
    head = [value for text in texts for value in text]
    position = [position for text in texts for position in range(len(text))]
    number = [number for number, text in enumerate(texts, 1) for _ in text]
    rest = [0] * (width - len(head))
    made = [torch.tensor([values + rest]) for values in (head, number, position, head)]
    return Rows(*made)


def at(rows: Rows) -> tuple[Tensor, Tensor]:
    assert rows.head is not None
    return rows.position, rows.head


def test_a_tree_made_by_hand() -> None:
    rows = row_of(coded(SENTENCE))
    assert tree_depths(*at(rows)).tolist() == [[2, 1, 0, 2, 2, 1]]
    assert tree_distances(*at(rows)).tolist() == [
        [
            [0, -1, -2, 4, 4, 3],  # the: up to cat and saw; over saw to the others, which come after
            [1, 0, -1, 3, 3, 2],  # cat
            [2, 1, 0, 2, 2, 1],  # saw: all are below it
            [-4, -3, -2, 0, 2, -1],  # a: small, which comes after, hangs on the same word
            [-4, -3, -2, -2, 0, -1],  # small
            [-3, -2, -1, 1, 1, 0],  # dog
        ]
    ]


def random_heads(rng: random.Random, words: int, roots: int) -> list[int]:
    """A forest: each word hangs on one that stands before it in some order."""
    order = rng.sample(range(words), words)
    heads = [0] * words
    for position, word in enumerate(order[roots:], roots):
        heads[word] = 1 + rng.choice(order[max(0, position - 3) : position])
    return heads


def steps_from(first: int, heads: list[int]) -> list[int]:
    """Edges to each node by a search through the graph, in which node 0 governs the roots."""
    near: list[list[int]] = [[] for _ in range(len(heads) + 1)]
    for word, head in enumerate(heads, 1):
        near[word].append(head)
        near[head].append(word)
    steps, queue = {first: 0}, deque([first])
    while queue:
        here = queue.popleft()
        for there in near[here]:
            if there not in steps:
                steps[there] = steps[here] + 1
                queue.append(there)
    return [steps[node] for node in range(len(heads) + 1)]


def governors(word: int, heads: list[int]) -> set[int]:
    found = {word}
    while (word := heads[word - 1]) > 0:
        found.add(word)
    return found


@pytest.mark.parametrize("words", [1, 2, 7, 30])
@pytest.mark.parametrize("roots", [1, 2])
def test_random_trees_by_a_search_through_the_graph(words: int, roots: int) -> None:
    rng = random.Random(words)
    for _ in range(5):
        heads = random_heads(rng, words, min(roots, words))
        rows = row_of(coded(heads))
        depth = [steps - 1 for steps in steps_from(0, heads)[1:]]
        assert tree_depths(*at(rows)).tolist() == [depth]
        found = tree_distances(*at(rows))[0].tolist()
        for i in range(words):
            steps = steps_from(i + 1, heads)[1:]
            for j in range(words):
                branch = j + 1 in governors(i + 1, heads) or i + 1 in governors(j + 1, heads)
                wanted = depth[j] - depth[i] if branch else steps[j] * (1 if j > i else -1)
                assert found[i][j] == wanted
                assert abs(found[i][j]) == steps[j]


def test_a_chain_as_deep_as_the_row_is_wide() -> None:
    rows = row_of(coded([*range(33)]))
    assert tree_depths(*at(rows)).tolist() == [[*range(33)]]
    assert tree_distances(*at(rows))[0, 0].tolist() == [*range(33)]


def test_all_pieces_stand_where_their_word_stands() -> None:
    pieces = [2, 1, 3, 1, 1, 2]
    word = [number for number, many in enumerate(pieces) for _ in range(many)]
    whole, cut = row_of(coded(SENTENCE)), row_of(coded(SENTENCE, pieces))
    assert torch.equal(tree_depths(*at(cut)), tree_depths(*at(whole))[:, word])
    assert torch.equal(tree_distances(*at(cut))[0], tree_distances(*at(whole))[0][word][:, word])


def test_texts_side_by_side_are_as_they_are_alone() -> None:
    texts = [coded(SENTENCE, [1, 2, 1, 1, 1, 1]), coded([0]), coded([2, 0, 2])]
    rows = row_of(*texts, width=16)
    deep, far = tree_depths(*at(rows)), tree_distances(*at(rows))
    for number, text in enumerate(texts, 1):
        here, single = rows.text[0] == number, at(row_of(text))
        assert torch.equal(deep[:, here], tree_depths(*single))
        assert torch.equal(far[0][here][:, here], tree_distances(*single)[0])


def test_padding_at_the_end_of_a_text_changes_nothing() -> None:
    text = coded(SENTENCE)
    ids = torch.zeros(1, 9, dtype=torch.long)
    rows = padded_rows(ids, ids >= 0, torch.tensor([text + [0] * 3]))
    assert torch.equal(tree_depths(*at(rows))[:, :6], tree_depths(*at(row_of(text))))
    assert torch.equal(tree_distances(*at(rows))[:, :6, :6], tree_distances(*at(row_of(text))))


# What is made of them


@torch.no_grad()
def test_vectors_for_both_distances_are_added_to_keys_and_values_of_every_pair() -> None:
    torch.manual_seed(3)
    scheme = make_position_scheme("structural", WIDTH, HEADS, DISTANCE)
    module = SelfAttention(WIDTH, HEADS, scheme)
    rows, x = row_of(coded(SENTENCE)), torch.randn(1, 6, WIDTH)
    found = module(x, scheme.context_of_rows(DenseMask(None), rows, x))[0]
    far = tree_distances(*at(rows))[0].tolist()
    queries, keys, values = module.qkv(x[0]).unflatten(-1, (3, HEADS, -1)).permute(1, 2, 0, 3)
    assert module.relative is not None
    sequential, structural = module.relative
    out = torch.zeros(HEADS, 6, WIDTH // HEADS)
    for h in range(HEADS):
        for i in range(6):
            near = [max(-DISTANCE, min(DISTANCE, j - i)) + DISTANCE for j in range(6)]
            tree = [max(-DISTANCE, min(DISTANCE, far[i][j])) + DISTANCE for j in range(6)]
            key = [keys[h, j] + sequential.keys[near[j]] + structural.keys[tree[j]] for j in range(6)]
            value = [values[h, j] + sequential.values[near[j]] + structural.values[tree[j]] for j in range(6)]
            weights = torch.tensor([float(queries[h, i] @ k) / 2 for k in key]).softmax(0)  # sqrt(K) = 2
            out[h, i] = sum((w * v for w, v in zip(weights, value, strict=True)), torch.zeros(()))
    torch.testing.assert_close(found, module.out(out.transpose(0, 1).flatten(1)), rtol=0, atol=1e-5)


def test_places_and_depths_go_through_one_layer() -> None:
    positions, rows = StructuralPositions(8), row_of(coded(SENTENCE))
    found = positions.of_rows(rows)
    sines = [positions.sines(torch.arange(6)[None]), positions.sines(torch.tensor([[2, 1, 0, 2, 2, 1]]))]
    torch.testing.assert_close(found, (torch.cat(sines, -1) @ positions.mix.T).tanh())
    assert found.abs().max() < 1


def test_rows_without_trees_are_refused() -> None:
    rows = row_of(coded(SENTENCE))._replace(head=None)
    with pytest.raises(ConfigError, match="structural positions and needs texts with heads; these have none"):
        StructuralPositions(8).of_rows(rows)
    with pytest.raises(ConfigError, match="needs texts with heads"):
        TreeRelative(2).context_of_rows(DenseMask(None), rows, torch.zeros(1, 6, 8))
