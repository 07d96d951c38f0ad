"""The errors and the warning that qkv raises on purpose; a message says what was got, what was wanted and what to do."""


class QkvError(Exception):
    """The base class of all these errors; the command line prints it as one line and exits with 2.

    `option` says what to do with options of the command line or keys of a recipe. A service, whose clients have neither,
    answers with `message` alone.
    """

    def __init__(self, message: str = "", option: str = ""):
        super().__init__(f"{message}, {option}" if option else message)
        self.message = message


class ConfigError(QkvError):
    """A recipe or an option is wrong."""


class DataError(QkvError):
    """Text cannot be read, or nothing in it can be learned from."""


class StorageError(QkvError):
    """A file or an object cannot be reached, or it may not be read or written."""


class CheckpointError(QkvError):
    """A run folder or a checkpoint is damaged, or of another kind than expected."""


class TrainingError(QkvError):
    """Training cannot continue: a loss that is not finite, or too little memory."""


class QkvWarning(UserWarning):
    """A result is available, and the user should know something about it; the command line prints it as one line."""
