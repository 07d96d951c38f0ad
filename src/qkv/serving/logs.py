"""Log lines as text or JSON, each with the id of its request."""

import contextlib
import io
import json
import logging
import re
import secrets
import sys
from contextvars import ContextVar
from datetime import UTC, datetime

REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
request_id: ContextVar[str] = ContextVar("request_id", default="")  # of the request that the current task answers


def choose_request_id(given: str) -> str:
    """Return the id that a client or a proxy sent if it is fit for a log, else a new one."""
    return given if REQUEST_ID.fullmatch(given) else secrets.token_hex(8)


class TextFormatter(logging.Formatter):
    """One line of text; the request's id stands at its end."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        found = getattr(record, "request_id", "") or request_id.get()
        return super().formatMessage(record) + (f" id={found}" if found else "")


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, message, process, the request's id, and the fields of `extra={"fields": ...}`."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "process": record.process,
        }
        if found := getattr(record, "request_id", "") or request_id.get():
            line["request_id"] = found
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps({**line, **getattr(record, "fields", {})}, ensure_ascii=False, default=str)


def set_up_logging(format: str) -> None:
    """Write log lines to standard error; a line that cannot be written, as on a full disk, is lost and stops nothing."""
    with contextlib.suppress(OSError):
        sys.stderr.flush()  # warnings come before the log
    raw = open(sys.stderr.fileno(), "wb", 0, closefd=False)  # noqa: SIM115  (nothing may be left to write at the end)
    handler = logging.StreamHandler(io.TextIOWrapper(raw, "utf-8", "replace", write_through=True))
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.raiseExceptions = False
