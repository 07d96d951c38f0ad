"""The options of decoding, with their checks."""

from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from qkv.base.config import Config


class DecodingConfig(Config):
    """Options that turn a model's probabilities into text."""

    sampling: bool = False  # draw tokens at random instead of searching for the most probable text
    beam: int = Field(default=4, ge=1, le=1000)  # hypotheses kept side by side; 1 is greedy; not used when sampling
    n_best: int = Field(default=1, ge=1, le=1000)  # hypotheses returned for each input, or independent samples
    length_penalty: float = Field(default=0.6, ge=0, le=10)  # alpha: divides log-probability by ((5 + length) / 6) ** alpha
    coverage_penalty: float = Field(default=0.0, ge=0, le=100)  # beta: penalty for source tokens without attention
    max_ratio: float = Field(default=1.0, ge=0, le=1000)  # longest output, end included: max_ratio * input length + max_extra
    max_extra: int = Field(default=50, ge=0)  # see max_ratio
    max_length: int | None = Field(default=None, ge=1)  # and never more than this, such as a model's number of positions
    min_length: int = Field(default=0, ge=0)  # tokens before the end may come
    no_repeat_ngram: int = Field(default=0, ge=0)  # no n-gram of this size twice in an output; 0 allows all
    repetition_penalty: float = Field(
        default=1.0, gt=0, le=100
    )  # makes tokens less likely that were there already; 1 does nothing
    frequency_penalty: float = Field(default=0.0, ge=-2, le=2)  # lowers a token's logit by this for each time it was generated
    presence_penalty: float = Field(default=0.0, ge=-2, le=2)  # lowers the logits of tokens that were generated, once
    temperature: float = Field(default=1.0, gt=0, le=1000)  # sampling: below 1 sharpens, above 1 flattens
    top_k: int = Field(default=0, ge=0)  # sampling: draw from the k most probable tokens; 0: from all
    top_p: float = Field(default=1.0, gt=0, le=1)  # sampling: draw from the fewest tokens that hold this share of probability
    seed: int = Field(default=1, ge=0)  # sampling: another seed draws other texts
    precision: Literal["auto", "bf16", "float32"] = "auto"  # of matrix products; auto: bf16 on a GPU that has it, else float32
    batch_tokens: int = Field(default=4096, ge=1)  # source tokens of a decoding batch, padding included

    @property
    def searches(self) -> bool:
        """Whether decoding takes tokens back, as only beam search does."""
        return self.beam > 1 and not self.sampling

    @property
    def penalties(self) -> list[str]:
        """The options by which tokens become less or more likely once they were there."""
        names = ("repetition_penalty", "frequency_penalty", "presence_penalty")
        return [name for name in names if getattr(self, name) != type(self).model_fields[name].default]

    @field_validator("n_best")
    @classmethod
    def _within_beam(cls, value: int, info: ValidationInfo) -> int:
        beam = info.data.get("beam", value)
        if not info.data.get("sampling") and value > beam:
            raise ValueError(f"n_best must not exceed beam, {beam}; raise beam or lower n_best")
        return value

    @field_validator("coverage_penalty")
    @classmethod
    def _only_in_beam_search(cls, value: float, info: ValidationInfo) -> float:
        if value and (info.data.get("sampling") or info.data.get("beam") == 1):
            raise ValueError("coverage_penalty acts in beam search only; set beam above 1, or leave it out")
        return value

    @field_validator("repetition_penalty", "frequency_penalty", "presence_penalty")
    @classmethod
    def _not_in_beam_search(cls, value: float, info: ValidationInfo) -> float:
        name = str(info.field_name)
        if value != cls.model_fields[name].default and not info.data.get("sampling") and info.data.get("beam") != 1:
            raise ValueError(f"{name} acts in greedy search and in sampling; set beam: 1 or sampling: true, or leave it out")
        return value

    @field_validator("min_length")
    @classmethod
    def _leaves_room_for_the_end(cls, value: int, info: ValidationInfo) -> int:
        limit = info.data.get("max_length")
        if limit is not None and value >= limit:
            raise ValueError(f"min_length must be below max_length, {limit}, which counts the end too")
        return value

    @field_validator("temperature", mode="before")
    @classmethod
    def _above_zero(cls, value: Any) -> Any:
        if isinstance(value, int | float) and value <= 0:
            raise ValueError(
                "must be above 0, where 1 keeps the model's own distribution; "
                "for the most probable token each time leave temperature and sampling out"
            )
        return value

    @field_validator("temperature", "top_k", "top_p")
    @classmethod
    def _only_when_sampling(cls, value: Any, info: ValidationInfo) -> Any:
        name = str(info.field_name)
        if value != cls.model_fields[name].default and not info.data.get("sampling"):
            raise ValueError(f"{name} acts in sampling only; set sampling: true, or leave it out")
        return value
