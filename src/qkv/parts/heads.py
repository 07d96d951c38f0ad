"""What stands on top of an encoder: small networks that turn what it knows at some places into scores.

Each takes only the places that are asked for: hidden states gathered at masked tokens or at first tokens, (N, D). Devlin et al.
2019 (BERT), sections 3 and 4; the replaced-token head is Clark et al. 2020's (ELECTRA), section 2.
N places, D width, E width of embeddings, V vocabulary.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qkv.base.errors import CheckpointError, ConfigError
from qkv.parts.dropout import dropout
from qkv.parts.encoder import initialise
from qkv.parts.linear import Linear

ENCODER = "encoder"  # the name of the encoder's weights beside those of its heads
# Labels of ERNIE 2.0's tasks, of texts and of tokens. There are 1! + 2! + 3! orders of one, two or three parts; two sentences are
# neighbours, of one document, or of two.
LABELS = {"next": 2, "order": 2, "reorder": 9, "distance": 3, "capital": 2, "document": 2}


class LanguageModelHead(nn.Module):
    """Which word it is: the word embedding as output, with a bias of its own."""

    def __init__(self, words: nn.Embedding):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(words.num_embeddings))
        self._words = (words,)  # in a tuple, so that it stays the encoder's: named and saved there alone

    @property
    def weight(self) -> Tensor:
        """Of the output, (V, E): for a loss over all words that never holds all scores, see `loss.cross_entropy_sum`."""
        return self._words[0].weight

    def features(self, hidden: Tensor) -> Tensor:
        """What the output is multiplied with. (N, D) -> (N, E)."""
        return hidden

    def forward(self, hidden: Tensor) -> Tensor:
        """Scores of every word. (N, D) -> (N, V)."""
        return F.linear(self.features(hidden), self.weight, self.bias)


class MaskedLanguageModelHead(LanguageModelHead):
    """Which word was masked: dense, activation and norm before the output."""

    def __init__(self, width: int, words: nn.Embedding, activation: str, epsilon: float):
        super().__init__(words)
        self.dense = Linear(width, words.embedding_dim)
        self.activation = activation
        self.norm = nn.LayerNorm(words.embedding_dim, eps=epsilon)

    def features(self, hidden: Tensor) -> Tensor:
        return self.norm(self.dense.then(self.activation, hidden))


class Pooler(nn.Module):
    """A text as one vector, made of its first token. ELECTRA's drops out before it and has GELU instead of tanh."""

    def __init__(self, width: int, activation: str = "tanh", dropout: float = 0.0):
        super().__init__()
        self.dense = Linear(width, width)
        self.activation = activation
        self.dropout = dropout

    def forward(self, first: Tensor) -> Tensor:
        """(N, D) at first tokens of texts -> (N, D)."""
        return self.dense.then(self.activation, dropout(first, self.dropout, self.training))


class Classifier(nn.Module):
    """A score for each label: of a text if it is given what a pooler made, of a token if it is given a hidden state."""

    def __init__(self, width: int, labels: int, dropout: float):
        super().__init__()
        self.output = Linear(width, labels)
        self.dropout = dropout

    def forward(self, hidden: Tensor) -> Tensor:
        """(N, D) -> (N, labels)."""
        return self.output(dropout(hidden, self.dropout, self.training))


class Span(nn.Module):
    """How well an answer would begin and end at each place."""

    def __init__(self, width: int):
        super().__init__()
        self.output = Linear(width, 2)

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T, D) -> beginning and end, (B, T) each."""
        begin, end = self.output(hidden).unbind(-1)
        return begin, end


class Replaced(nn.Module):
    """Whether a token was put there by the generator: dense, activation, one score, above 0 if it was."""

    def __init__(self, width: int, activation: str):
        super().__init__()
        self.dense = Linear(width, width)
        self.activation = activation
        self.output = Linear(width, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., D) -> (...)."""
        return self.output(self.dense.then(self.activation, hidden)).squeeze(-1)


def states_at(hidden: Tensor, where: Tensor) -> Tensor:
    """Hidden states at some places of each row. (B, T, D), where (B, N) -> (B, N, D)."""
    return hidden.gather(1, where[..., None].expand(-1, -1, hidden.size(-1)))


def make_head(name: str, encoder: Any, labels: int = 2) -> nn.Module:
    """The head of that name for that encoder, with its first weights."""
    c = encoder.config
    made: dict[str, Callable[[], nn.Module]] = {
        "masked": lambda: MaskedLanguageModelHead(
            c.width, encoder.embedding.token_embedding, encoder.head_activation or c.activation, c.epsilon
        ),
        "words": lambda: LanguageModelHead(encoder.embedding.token_embedding),
        "pooler": lambda: Pooler(c.width, encoder.pooler_activation, 0.0 if encoder.pooler_activation == "tanh" else c.dropout),
        # Next sentence or order of segments: label 0 if they are as in the text, 1 if the second is another or they are swapped.
        "relation": lambda: Classifier(c.width, 2, c.dropout),
        "classes": lambda: Classifier(c.width, labels, c.dropout),
        "tags": lambda: Classifier(c.width, labels, c.dropout),
        "span": lambda: Span(c.width),
        "replaced": lambda: Replaced(c.width, c.activation),
        # An ELMo's softmax over words, one for both directions, each of which is half of the width.
        "neighbours": lambda: Linear(c.width // 2, encoder.answered),
        **{task: partial(Classifier, c.width, count, c.dropout) for task, count in LABELS.items()},
    }
    if name not in made:
        raise ConfigError(f"no head {name!r}; known are {', '.join(made)}")
    head = made[name]()
    initialise(head)
    return head


class ModelWithHeads(nn.Module):
    """An encoder and the heads on it, by name: `heads["masked"]`. Its weights are kept by head, the encoder's beside them."""

    def __init__(self, encoder: Any, heads: Iterable[str], labels: int = 2):
        super().__init__()
        self.encoder = encoder
        # A GPT's last token has seen the whole text, and a classifier reads it as it is (Radford et al. 2018, section 3.2).
        wanted = [name for name in heads if name != "pooler" or encoder.summary != "last"]
        self.heads = nn.ModuleDict({name: make_head(name, encoder, labels) for name in wanted})

    def layers_above(self, name: str) -> int:
        """How many layers lie above the parameter of that name: none above a head, all of them above the embeddings.

        Layers that share their parameters are one.
        """
        part, kept, number, *_ = name.split(".")
        if part != ENCODER:
            return 0
        if number.isdigit():
            return len(getattr(self.encoder, kept)) - int(number)
        return max(len(layers) for layers in self.encoder.children() if isinstance(layers, nn.ModuleList)) + 1

    @property
    def work_per_token(self) -> int:
        """Multiply-adds that a token takes, nearly: a parameter is one each time it is used."""
        return self.encoder.work_per_token + sum(p.numel() for p in self.heads.parameters())

    def weights(self) -> dict[str, dict[str, Tensor]]:
        """Weights by name, of the encoder and of each head."""
        parts = {ENCODER: self.encoder, **self.heads}
        return {name: {key: value.detach() for key, value in part.state_dict().items()} for name, part in parts.items()}

    def load(self, weights: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Take weights over as `weights` gives them; a head that they do not have stays new."""
        for name, part in {ENCODER: self.encoder, **self.heads}.items():
            try:
                if name in weights or name == ENCODER:
                    part.load_state_dict(weights.get(name, {}))
            except RuntimeError as error:
                problem = str(error).partition("\n")[2].strip().partition("\n")[0]
                raise CheckpointError(f"these weights are not for this {name}: {problem}") from None
