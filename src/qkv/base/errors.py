"""Every mistake a user can make ends in one of these: what was got, what was wanted, what to do. And what is to be known."""


class QkvError(Exception):
    """The root of all errors that qkv raises on purpose; the command line prints it as one line and exits 2."""


class ConfigError(QkvError):
    """A recipe or an option that cannot be used as written."""


class DataError(QkvError):
    """Text that cannot be read, or that leaves nothing to learn from."""


class CheckpointError(QkvError):
    """A run folder or checkpoint that is damaged, or is not what was asked for."""


class TrainingError(QkvError):
    """Training that cannot go on: numbers that are no longer finite, or memory that does not suffice."""


class QkvWarning(UserWarning):
    """What a user should know of a result that is there nevertheless; the command line prints it as one line."""
