"""The kernel that attends to a cache on a CPU, against torch's attention to copies."""

import pytest
import torch

from qkv.parts.dot_product import attend
from qkv.parts.kernels import decode_step_cpu


@pytest.mark.parametrize(
    "texts, each, length, heads, width", [(1, 1, 1, 1, 1), (3, 1, 7, 2, 6), (4, 5, 40, 4, 64), (9, 2, 33, 3, 48)]
)
@pytest.mark.parametrize("threads", [1, 3])
def test_it_attends_as_torch_does(
    texts: int, each: int, length: int, heads: int, width: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_step_cpu, "FEW_NUMBERS", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    generator = torch.Generator().manual_seed(texts)
    log = 3 * torch.randn(texts * length + 5, 2 * width, generator=generator)
    index = torch.randint(len(log), (texts, length), generator=generator)
    first = torch.randint(length, (texts,), generator=generator)
    q = 3 * torch.randn(texts * each, width, generator=generator)
    k, v = log[index].unflatten(-1, (2, heads, -1)).permute(2, 0, 3, 1, 4)
    seen = (torch.arange(length) >= first[:, None])[:, None, None]
    wanted = attend(q.view(texts, each, heads, -1).transpose(1, 2), k, v, seen).transpose(1, 2).reshape(texts * each, width)
    torch.testing.assert_close(decode_step_cpu.attend_cached(q, log, index, first, heads), wanted, rtol=1e-4, atol=1e-4)


def test_a_text_without_positions_gives_zeros() -> None:
    """A text alone in its batch, or beside others, has the same: nothing that is only padding is read."""
    log, index = torch.full((3, 8), float("nan")), torch.zeros(2, 3, dtype=torch.long)
    log[1:] = torch.randn(2, 8)
    index[1] = torch.tensor([0, 1, 2])
    found = decode_step_cpu.attend_cached(torch.randn(2, 4), log, index, torch.tensor([3, 1]), heads=2)
    assert (found[0] == 0).all() and found[1].isfinite().all()
