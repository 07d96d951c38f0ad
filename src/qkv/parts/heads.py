"""Heads: small networks on top of an encoder that turn hidden states into logits, and the model that holds both.

A head reads the hidden states that its task needs, such as those of masked tokens or of first tokens, (N, D). Devlin et al. 2019
(BERT), sections 3 and 4; the replaced-token head is that of Clark et al. 2020 (ELECTRA), section 2.
N positions, D width, E width of embeddings, V vocabulary.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.base.errors import CheckpointError, ConfigError
from qkv.parts.activations import ACTIVATIONS
from qkv.parts.dropout import dropout
from qkv.parts.encoder import initialise
from qkv.parts.linear import Linear

ENCODER = "encoder"  # the name of the encoder's weights beside those of its heads
# Number of labels of each ERNIE 2.0 task on texts or tokens. One, two or three parts have 1! + 2! + 3! orders; two sentences are
# adjacent, from the same document, or from two documents.
LABELS = {"next": 2, "order": 2, "reorder": 9, "distance": 3, "capital": 2, "document": 2}


class LanguageModelHead(nn.Module):
    """Predicts a token: an output layer that shares the token embedding's weights and has its own bias."""

    def __init__(self, token_embedding: nn.Embedding):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(token_embedding.num_embeddings))
        self._token_embedding = (token_embedding,)  # a tuple hides it from torch, so that only the encoder names and saves it

    @property
    def weight(self) -> Tensor:
        """The output weights (V, E). `loss.cross_entropy_sum` computes a loss from them without holding all logits."""
        return self._token_embedding[0].weight

    def features(self, hidden: Tensor) -> Tensor:
        """Return the input of the output layer. (N, D) -> (N, E)."""
        return hidden

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the logits of every token. (N, D) -> (N, V)."""
        return F.linear(self.features(hidden), self.weight, self.bias)


class MaskedLanguageModelHead(LanguageModelHead):
    """Predicts a masked token: dense layer, activation and norm before the output layer."""

    def __init__(self, width: int, token_embedding: nn.Embedding, activation: str, epsilon: float):
        super().__init__(token_embedding)
        self.dense = Linear(width, token_embedding.embedding_dim)
        self.activation = activation
        self.norm = nn.LayerNorm(token_embedding.embedding_dim, eps=epsilon)

    def features(self, hidden: Tensor) -> Tensor:
        return self.norm(self.dense.then(self.activation, hidden))


class Pooler(nn.Module):
    """Turns the hidden state of a text's first token into the text's vector. ELECTRA adds dropout and uses GELU, not tanh."""

    def __init__(self, width: int, activation: str = "tanh", dropout: float = 0.0):
        super().__init__()
        self.dense = Linear(width, width)
        self.activation = activation
        self.dropout = dropout

    def forward(self, first: Tensor) -> Tensor:
        """first (N, D), hidden states of first tokens -> (N, D)."""
        return self.dense.then(self.activation, dropout(first, self.dropout, self.training))


class Classifier(nn.Module):
    """Predicts a label, of a text from the pooler's output or of a token from its hidden state."""

    def __init__(self, width: int, labels: int, dropout: float):
        super().__init__()
        self.output = Linear(width, labels)
        self.dropout = dropout

    def forward(self, hidden: Tensor) -> Tensor:
        """(N, D) -> (N, labels)."""
        return self.output(dropout(hidden, self.dropout, self.training))


class SpanHead(nn.Module):
    """Predicts at which positions an answer begins and ends."""

    def __init__(self, width: int):
        super().__init__()
        self.output = Linear(width, 2)

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of the answer's beginning and of its end. (B, T, D) -> (B, T) each."""
        begin, end = self.output(hidden).unbind(-1)
        return begin, end


class ReplacedTokenHead(nn.Module):
    """ELECTRA's discriminator head: dense layer, activation, one logit, above 0 if the generator replaced the token."""

    def __init__(self, width: int, activation: str):
        super().__init__()
        self.dense = Linear(width, width)
        self.activation = activation
        self.output = Linear(width, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., D) -> (...)."""
        return self.output(self.dense.then(self.activation, hidden)).squeeze(-1)


def states_at(hidden: Tensor, positions: Tensor) -> Tensor:
    """Gather the hidden states at some positions of each row. (B, T, D), positions (B, N) -> (B, N, D)."""
    return hidden.gather(1, positions[..., None].expand(-1, -1, hidden.size(-1)))


def make_head(name: str, encoder: Any, labels: int = 2) -> nn.Module:
    """Build the head called `name` for an encoder, with initial weights."""
    c = encoder.config

    def supported(activation: str) -> str:
        if activation not in ACTIVATIONS:
            raise ConfigError(f"heads have no activation {activation!r}; give {type(encoder).__name__} another head_activation")
        return activation

    builders: dict[str, Callable[[], nn.Module]] = {
        "masked": lambda: MaskedLanguageModelHead(
            c.width, encoder.embedding.token_embedding, supported(encoder.head_activation or c.activation), c.epsilon
        ),
        "language_model": lambda: LanguageModelHead(encoder.embedding.token_embedding),
        "pooler": lambda: Pooler(c.width, encoder.pooler_activation, 0.0 if encoder.pooler_activation == "tanh" else c.dropout),
        # Next-sentence or sentence-order prediction: label 0 as in the text, 1 for another second segment or swapped segments.
        "sentence_task": lambda: Classifier(c.width, 2, c.dropout),
        "classes": lambda: Classifier(c.width, labels, c.dropout),
        "tags": lambda: Classifier(c.width, labels, c.dropout),
        "span": lambda: SpanHead(c.width),
        "replaced": lambda: ReplacedTokenHead(c.width, supported(c.activation)),
        # ELMo's softmax over words, shared by both directions, each of which has half of the width.
        "bidirectional": lambda: Linear(c.width // 2, encoder.output_size),
        **{task: partial(Classifier, c.width, count, c.dropout) for task, count in LABELS.items()},
    }
    if name not in builders:
        raise ConfigError(f"no head {name!r}; known are {', '.join(builders)}")
    head = builders[name]()
    initialise(head)
    return head


class ModelWithHeads(nn.Module):
    """An encoder with heads by name, such as `heads["masked"]`; weights are saved separately for the encoder and each head."""

    def __init__(self, encoder: Any, heads: Iterable[str], labels: int = 2):
        super().__init__()
        self.encoder = encoder
        # A GPT needs no pooler: a classifier reads the last token's hidden state directly (Radford et al. 2018, section 3.2).
        wanted = [name for name in heads if name != "pooler" or encoder.summary != "last"]
        self.heads = nn.ModuleDict({name: make_head(name, encoder, labels) for name in wanted})

    def layers_above(self, name: str) -> int:
        """Count the layers above a parameter: none above a head's, all of them above an embedding.

        Layers that share their parameters count once.
        """
        part, module, number, *_ = name.split(".")
        if part != ENCODER:
            return 0
        if number.isdigit():
            return len(getattr(self.encoder, module)) - int(number)
        return max(len(layers) for layers in self.encoder.children() if isinstance(layers, nn.ModuleList)) + 1

    @property
    def multiply_adds_per_token(self) -> int:
        """Approximate multiply-adds per token: one for each use of a parameter."""
        return self.encoder.multiply_adds_per_token + sum(p.numel() for p in self.heads.parameters())

    def weights(self) -> dict[str, dict[str, Tensor]]:
        """Return the weights of the encoder and of each head, by part and name."""
        parts = {ENCODER: self.encoder, **self.heads}
        return {name: {key: value.detach() for key, value in part.state_dict().items()} for name, part in parts.items()}

    def load(self, weights: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Load weights in the form that `weights` returns; a head that is missing there keeps its initial weights."""
        for name, part in {ENCODER: self.encoder, **self.heads}.items():
            try:
                if name in weights or name == ENCODER:
                    part.load_state_dict(weights.get(name, {}))
            except RuntimeError as error:
                problem = str(error).partition("\n")[2].strip().partition("\n")[0]
                raise CheckpointError(f"these weights are not for this {name}: {problem}") from None
