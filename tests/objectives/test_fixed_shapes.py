"""No pretraining loss fetches values from the device, so that an update can be recorded (CUDA graphs)."""

import pytest
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from pretraining_models import MAKERS
from qkv.base.rows import map_tensors
from toy_passages import random_passages


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", MAKERS)
def test_a_loss_can_be_computed_without_values(kind: str, training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use fake tensors, which have only shapes: reading a value is an error."""
    monkeypatch.setattr(nn.init, "trunc_normal_", lambda tensor, **_: tensor)  # it looks at what it drew
    real = random_passages(rows=4)
    with FakeTensorMode() as unreal:
        objective, model = MAKERS[kind]()
        passages = map_tensors(real, unreal.from_tensor)
        for _ in range(2):  # the second adds to tallies that are there
            lost = objective.loss(model.train(training), passages)
        lost.backward()
        assert lost.shape == () and all(p.grad is not None for p in model.parameters())
        with pytest.raises(DataDependentOutputException):
            lost.item()
