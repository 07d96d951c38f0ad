"""Everything a service answers that is not what was asked for: a status, a short code and one line for people."""


class Refusal(Exception):
    """A request that is not answered, and why."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None, retry_after: int | None = None):
        super().__init__(message)
        self.status, self.code, self.message, self.param, self.retry_after = status, code, message, param, retry_after


class Gone(Exception):
    """Whoever asked has hung up: nobody is there to be answered."""


def wrong(message: str, param: str | None = None, code: str = "invalid_value") -> Refusal:
    """A request that cannot be meant."""
    return Refusal(400, code, message, param)


def busy(queue: int) -> Refusal:
    """More requests than there are places."""
    return Refusal(429, "busy", f"{queue:,} requests are waiting already; try again in a moment", retry_after=1)


def too_late(begun: bool, seconds: float) -> Refusal:
    """A request whose time is up."""
    if begun:
        return Refusal(422, "time_limit", f"the answer took longer than {seconds:g} s; send less at a time")
    return Refusal(429, "time_limit", f"no turn came within {seconds:g} s; try again in a moment", retry_after=2)
