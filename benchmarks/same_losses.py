"""Train each pretrained model beside a plain loop over transformers' model: are the losses the same, update by update?

    python benchmarks/same_losses.py TEXT --updates 300 --out runs/same-losses

Both begin with the weights that transformers draws, read the same rows with the same masks, orders or spans, and step by torch's
AdamW with the same schedule; dropout is off, since the two programs draw it in another order. Ours runs its own model and its
own objective. The table has both losses at some updates, and the largest difference before and after the rounding of float32
has grown by training.
"""

import argparse
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

from qkv.base.rows import IGNORE_INDEX, padded_rows
from qkv.data.inputs import BEGINS_WORD, Passages
from qkv.interop.huggingface.runs import BY_KIND
from qkv.interop.huggingface.t5 import read_t5_model
from qkv.models.electra import Electra
from qkv.models.t5 import T5
from qkv.objectives.causal import CausalConfig, CausalLanguageModelling
from qkv.objectives.masked import MaskedConfig, MaskedLanguageModelling
from qkv.objectives.masking import MaskingVocabulary, mask_tokens
from qkv.objectives.permutation import PermutationConfig, PermutationLanguageModelling, draw_order, split_segments, summary_last
from qkv.objectives.replaced import ReplacedConfig, ReplacedTokenDetection, replace_tokens, sample_from
from qkv.objectives.spans import SpanCorruption, SpansConfig
from qkv.parts.draws import random_int64
from qkv.text.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer

VOCAB, LENGTH, ROWS = 4000, 64, 16
WIDTH, LAYERS, HEADS, FEEDFORWARD = 128, 4, 2, 512
HEAD_WIDTH = WIDTH // HEADS
RATE, WARMUP = 1e-3, 50
SHOWN = (1, 10, 50, 100, 200, 300, 500, 1000, 2000)  # updates in the table


class Comparison(ABC):
    """One model in both programs; a loss is the mean over predicted tokens, ELECTRA's the weighted sum of two such means."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.build()

    @abstractmethod
    def build(self) -> None:
        """Set `ours`, `theirs` (modules with the same weights) and the objective."""

    @abstractmethod
    def losses(self, passages: Passages, step: int) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
        """Return functions that compute our loss and theirs on the same rows; random draws depend on the step."""


def read_network(model: Any) -> Any:
    """Return the config and weights of transformers' encoder or GPT as ours."""
    config = {**model.config.to_dict(), "architectures": [type(model).__name__]}
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    return BY_KIND[OURS.get(config["model_type"], config["model_type"])].read_network(config, weights)


OURS = {"gpt2": "gpt"}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout_prob": 0.0}


class MaskedComparison(Comparison):
    kind = "bert"

    def build(self) -> None:
        shape = {
            "vocab_size": len(self.tokenizer), "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
            "intermediate_size": FEEDFORWARD, "max_position_embeddings": LENGTH, **NO_DROPOUT, **self.more(),
        }  # fmt: skip
        config = getattr(transformers, f"{self.kind.capitalize()}Config")(**shape)
        self.theirs = getattr(transformers, f"{self.kind.capitalize()}ForMaskedLM")(config).train()
        self.ours = read_network(self.theirs).model().train()
        self.vocabulary = MaskingVocabulary.of(self.tokenizer)
        self.objective = MaskedLanguageModelling(MaskedConfig(), self.vocabulary)

    def more(self) -> dict[str, Any]:
        return {}

    def losses(self, passages: Passages, step: int) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
        torch.manual_seed(step)
        masked = mask_tokens(passages, self.objective.config, self.vocabulary)
        labels = torch.full_like(passages.ids, IGNORE_INDEX).scatter(1, masked.columns, masked.labels)
        count = (labels != IGNORE_INDEX).sum()
        rate = self.objective.config.rate  # our loss counts a masked token for 1 / rate tokens
        return (
            lambda: self.objective.loss(self.ours, passages, masked) * rate / count,
            lambda: self.theirs(input_ids=masked.ids, labels=labels).loss,
        )


class AlbertComparison(MaskedComparison):
    kind = "albert"

    def more(self) -> dict[str, Any]:
        return {"embedding_size": WIDTH // 2}


class ElectraComparison(Comparison):
    def build(self) -> None:
        shape = {
            "vocab_size": len(self.tokenizer), "embedding_size": WIDTH, "num_hidden_layers": LAYERS,
            "max_position_embeddings": LENGTH, **NO_DROPOUT,
        }  # fmt: skip
        size = 0.5
        small = transformers.ElectraConfig(
            hidden_size=int(WIDTH * size), num_attention_heads=1, intermediate_size=int(FEEDFORWARD * size), **shape
        )
        large = transformers.ElectraConfig(hidden_size=WIDTH, num_attention_heads=HEADS, intermediate_size=FEEDFORWARD, **shape)
        generator = transformers.ElectraForMaskedLM(small).train()
        discriminator = transformers.ElectraForPreTraining(large).train()
        generator.electra.embeddings = discriminator.electra.embeddings  # shared, as in the paper
        generator.tie_weights()
        self.theirs = nn.ModuleDict({"generator": generator, "discriminator": discriminator})
        saved = {name: read_network(model) for name, model in self.theirs.items()}
        config = saved["discriminator"].config.model_copy(update={"generator_size": size})
        self.ours = Electra(config, len(self.tokenizer)).train()
        for name, network in saved.items():
            self.ours.get_submodule(name).load(network.weights)  # type: ignore[operator]
        self.vocabulary = MaskingVocabulary.of(self.tokenizer)
        self.objective = ReplacedTokenDetection(ReplacedConfig(), self.vocabulary)

    def losses(self, passages: Passages, step: int) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
        torch.manual_seed(step)
        masked = mask_tokens(passages, self.objective.config, self.vocabulary)
        labels = torch.full_like(passages.ids, IGNORE_INDEX).scatter(1, masked.columns, masked.labels)
        tokens, c = passages.ids.numel(), self.objective.config

        def ours() -> Tensor:
            torch.manual_seed(step)  # of the samples
            return self.objective.loss(self.ours, passages, masked) / tokens

        def theirs() -> Tensor:
            model: Any = self.theirs
            logits = model.generator(input_ids=masked.ids).logits
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
            torch.manual_seed(step)
            slots = logits.gather(1, masked.columns[..., None].expand(-1, -1, logits.size(-1)))
            samples, _ = sample_from(slots.detach().flatten(0, 1), random_int64(masked.labels.numel(), slots.device))
            ids = replace_tokens(passages.ids, masked, samples.view_as(masked.labels))
            found = model.discriminator(input_ids=ids).logits
            detection = F.binary_cross_entropy_with_logits(found, (ids != passages.ids).float(), reduction="sum")
            return (loss / c.rate + c.discriminator_weight * detection) / tokens

        return ours, theirs


class GptComparison(Comparison):
    def build(self) -> None:
        config = transformers.GPT2Config(
            vocab_size=len(self.tokenizer), n_positions=LENGTH, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_inner=FEEDFORWARD,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )  # fmt: skip
        self.theirs = transformers.GPT2LMHeadModel(config).train()
        self.ours = read_network(self.theirs).model().train()
        self.objective = CausalLanguageModelling(CausalConfig(), self.tokenizer.byte_lengths())

    def losses(self, passages: Passages, step: int) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
        count = passages.ids[:, 1:].numel()
        return (
            lambda: self.objective.loss(self.ours, passages) / count,
            lambda: self.theirs(input_ids=passages.ids, labels=passages.ids).loss,
        )


class XlnetComparison(Comparison):
    def build(self) -> None:
        config = transformers.XLNetConfig(
            vocab_size=len(self.tokenizer), d_model=WIDTH, n_layer=LAYERS, n_head=HEADS, d_inner=FEEDFORWARD, dropout=0.0,
        )  # fmt: skip
        self.theirs = transformers.XLNetLMHeadModel(config).train()
        self.ours = read_network(self.theirs).model().train()
        self.vocabulary = MaskingVocabulary.of(self.tokenizer, masks=False)
        self.objective = PermutationLanguageModelling(PermutationConfig(segment_length=None), self.vocabulary)

    def losses(self, passages: Passages, step: int) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
        torch.manual_seed(step)
        passages = summary_last(passages)
        order = draw_order(split_segments(passages, LENGTH), self.objective.config, self.vocabulary)
        count, rate = (order.labels != IGNORE_INDEX).sum(), self.objective.config.rate
        predicted = torch.zeros_like(passages.ids).scatter(1, order.columns, (order.labels != IGNORE_INDEX).long()) > 0
        own, other = order.rank[:, :, None], order.rank[:, None]
        hidden = torch.where(predicted[:, :, None], other >= own, other > own)
        mapping = F.one_hot(order.columns, LENGTH).float()

        def theirs() -> Tensor:
            logits = self.theirs(
                input_ids=passages.ids, token_type_ids=passages.segment, perm_mask=hidden.float(), target_mapping=mapping
            ).logits
            return F.cross_entropy(logits.flatten(0, 1), order.labels.flatten(), reduction="sum") / count

        return lambda: self.objective.loss_on(self.ours, passages, order) * rate / count, theirs


class ScaledLinear(nn.Module):
    """A linear map by weights times a factor."""

    def __init__(self, weight: nn.Parameter, factor: float):
        super().__init__()
        self.weight, self.factor = weight, factor

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight) * self.factor


class ScaledEmbedding(ScaledLinear):
    """An embedding by weights times a factor."""

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight) * self.factor


class T5Comparison(Comparison):
    def build(self) -> None:
        config = transformers.T5Config(
            vocab_size=len(self.tokenizer), d_model=WIDTH, d_kv=HEAD_WIDTH, d_ff=FEEDFORWARD, num_layers=LAYERS,
            num_decoder_layers=LAYERS, num_heads=HEADS, dropout_rate=0.0, pad_token_id=self.tokenizer.pad,
            eos_token_id=self.tokenizer.eos, decoder_start_token_id=self.tokenizer.bos,
        )  # fmt: skip
        self.theirs = transformers.T5ForConditionalGeneration(config).train()
        c, weights = read_t5_model(self.theirs.config.to_dict(), {n: w.clone() for n, w in self.theirs.state_dict().items()})
        self.ours = T5(c, len(self.tokenizer), len(self.tokenizer))
        self.ours.load_state_dict(weights, strict=False)
        self.ours.train()
        # Our queries' weights are theirs times the root of the head's width, by which our scores are divided, and our embeddings
        # are theirs divided by the root of the width, by which the model multiplies them. Adam's steps do not depend on the size
        # of a weight, so theirs get the same form here.
        for module in self.theirs.modules():
            if hasattr(module, "EncDecAttention") or hasattr(module, "SelfAttention"):
                attention: Any = getattr(module, "EncDecAttention", None) or module.SelfAttention
                attention.q = ScaledLinear(nn.Parameter(attention.q.weight.detach() * HEAD_WIDTH**0.5), HEAD_WIDTH**-0.5)
        embeddings = nn.Parameter(self.theirs.shared.weight.detach() * WIDTH**-0.5)
        self.theirs.shared = ScaledEmbedding(embeddings, WIDTH**0.5)
        self.theirs.encoder.embed_tokens = self.theirs.decoder.embed_tokens = self.theirs.shared
        self.theirs.lm_head = ScaledLinear(embeddings, WIDTH**0.5)
        self.objective = SpanCorruption.build(SpansConfig(), self.tokenizer)

    def losses(self, passages: Passages, step: int) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
        rng = np.random.default_rng(step)
        ids = passages.ids.numpy()
        source, target = self.objective.corrupt((ids.reshape(-1), np.full(len(ids), ids.shape[1])), rng)
        sources, targets = (self._padded(*texts, end=end) for texts, end in ((source, False), (target, True)))
        keep, real = sources != self.tokenizer.pad, targets != self.tokenizer.pad
        labels = targets.masked_fill(~real, IGNORE_INDEX)
        begun = F.pad(targets[:, :-1], (1, 0), value=self.tokenizer.bos)
        return (
            lambda: self.objective.loss(self.ours, padded_rows(sources, keep), padded_rows(targets, real)) / real.sum(),
            lambda: self.theirs(input_ids=sources, attention_mask=keep.long(), decoder_input_ids=begun, labels=labels).loss,
        )

    def _padded(self, ids: np.ndarray, lengths: np.ndarray, end: bool) -> Tensor:
        texts = np.split(ids, np.cumsum(lengths)[:-1])
        rows = [torch.from_numpy(np.append(text, self.tokenizer.eos) if end else text) for text in texts]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.tokenizer.pad)


COMPARISONS: dict[str, type[Comparison]] = {
    "bert": MaskedComparison, "albert": AlbertComparison, "electra": ElectraComparison, "gpt": GptComparison,
    "xlnet": XlnetComparison, "t5": T5Comparison,
}  # fmt: skip


class TextRows:
    """Rows of a text: one passage each, all of the same length."""

    def __init__(self, file: Path, tokenizer: Tokenizer, seed: int):
        lines = [line for line in file.read_text(encoding="utf-8").split("\n") if line]
        self.ids = np.concatenate([np.array(ids, dtype=np.int64) for ids in tokenizer.encode_batch(lines)])
        self.tokenizer, self.rng = tokenizer, np.random.default_rng(seed)

    def batch(self) -> Passages:
        starts = self.rng.integers(0, len(self.ids) - LENGTH, ROWS)
        words = torch.from_numpy(np.stack([self.ids[start : start + LENGTH - 2] for start in starts]))
        ids = F.pad(F.pad(words, (1, 0), value=self.tokenizer.bos), (0, 1), value=self.tokenizer.eos)
        position = torch.arange(LENGTH).expand_as(ids)
        one, zero = torch.ones_like(ids), torch.zeros_like(ids)
        first = zero[:, :1]
        return Passages(ids, one, position, zero, one * BEGINS_WORD, zero, first, first + IGNORE_INDEX)


def train(comparison: Any, rows: TextRows, updates: int) -> list[tuple[float, float]]:
    """Train both models and return their losses at each update."""
    optimisers = [
        torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0)
        for model in (comparison.ours, comparison.theirs)
    ]
    losses = []
    for step in range(1, updates + 1):
        functions, found = comparison.losses(rows.batch(), step), []
        for optimiser, function in zip(optimisers, functions, strict=True):
            for group in optimiser.param_groups:
                group["lr"] = RATE * min(1.0, step / WARMUP) * max(0.0, 1 - step / (updates + 1))
            loss = function()
            loss.backward()
            optimiser.step()
            optimiser.zero_grad()
            found.append(float(loss.detach()))
        losses.append((found[0], found[1]))
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("text", type=Path, help="plain text, a sentence or paragraph a line")
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--only", choices=COMPARISONS, action="append", help="only these models; may be repeated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/same-losses"))
    options = parser.parse_args()
    lines = options.text.read_text(encoding="utf-8").split("\n")
    config = TokenizerConfig(kind="wordpiece", vocab=VOCAB, sentinels=100, special_tokens=("[MASK]",))
    tokenizer = train_tokenizer(config, filter(None, lines))
    options.out.mkdir(parents=True, exist_ok=True)
    shown = [step for step in SHOWN if step <= options.updates]
    print("| model | " + " | ".join(f"update {step:,}" for step in shown) + " | largest difference, first 20 updates | all |")
    print("|---" * (len(shown) + 3) + "|")
    for name in options.only or COMPARISONS:
        began = time.monotonic()
        torch.manual_seed(options.seed)
        losses = train(COMPARISONS[name](tokenizer), TextRows(options.text, tokenizer, options.seed), options.updates)
        cells = [f"{losses[step - 1][0]:.4f} / {losses[step - 1][1]:.4f}" for step in shown]
        apart = [abs(ours - theirs) for ours, theirs in losses]
        print(f"| {name} | " + " | ".join(cells) + f" | {max(apart[:20]):.1e} | {max(apart):.1e} |", flush=True)
        result = {"model": name, "seed": options.seed, "seconds": time.monotonic() - began, "losses": losses}
        (options.out / f"{name}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
