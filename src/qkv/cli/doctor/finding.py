"""What a check of an installation found."""

from typing import Literal, NamedTuple

State = Literal["ok", "note", "fail"]  # note: slower, or less can be done; fail: something will end in an error


class Diagnosis(NamedTuple):
    """A line of `qkv doctor`; `advice` says what to do, and is empty where all is well."""

    check: str
    state: State
    found: str
    advice: str = ""
