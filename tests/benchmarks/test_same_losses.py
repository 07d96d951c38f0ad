"""Our losses are those of transformers' models, update by update, with the same weights, rows and random draws."""

import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import same_losses

from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer

TEXT = "\n".join(
    f"the {a} fox saw {b} old trees and {a} green {b} hills in the {a} valley" for a in "abcdefgh" for b in "ijklmnop"
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    config = TokenizerConfig(kind="wordpiece", vocab=300, sentinels=30, special_tokens=("[MASK]",))
    return train_tokenizer(config, TEXT.split("\n"))


@pytest.mark.parametrize("name", same_losses.COMPARISONS)
def test_losses_are_the_same(name: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    torch.manual_seed(1)
    rows = same_losses.TextRows(tmp_path / "text.txt", tokenizer, 1)
    losses = same_losses.train(same_losses.COMPARISONS[name](tokenizer), rows, 6)
    assert losses[-1][0] < losses[0][0]
    for ours, theirs in losses:
        assert ours == pytest.approx(theirs, rel=2e-5)
