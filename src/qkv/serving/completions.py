"""Completions: what a request of OpenAI's API asks of a model, and its answer, whole or streamed."""

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response

from qkv.decoding.logprobs import LogprobRecord, TokenLogprob
from qkv.inference.text_generator import GeneratedText, Prompt
from qkv.inference.text_stream import TextStream
from qkv.serving.batching import PreparedRequest
from qkv.serving.completion_logprobs import LogprobWriter
from qkv.serving.errors import invalid
from qkv.serving.handlers import CompletionHandler
from qkv.serving.json_answer import write_with_list
from qkv.serving.registry import ServedModel
from qkv.serving.request_body import JSON
from qkv.serving.request_models import CompletionRequest
from qkv.serving.service import Service
from qkv.serving.streaming import EventStreamResponse, RequestStream

GREEDY_BELOW = 0.01  # temperature below which the most probable token is taken
DEFAULT_TOKENS = 16  # that OpenAI generates where max_tokens is null


@dataclass
class Choice:
    """One of the texts that a request asks for."""

    index: int
    given: str | list[int]  # the prompt
    text: str = ""  # of the prompt
    ids: list[int] | None = None
    record: LogprobRecord | None = None
    prompt_record: LogprobRecord | None = None


class Completion:
    """A request for completions of one model."""

    def __init__(self, service: Service, request: Request, body: CompletionRequest, model: ServedModel[CompletionHandler]):
        self.service, self.request, self.body, self.model = service, request, body, model
        self.handler = model.handler
        self.choices = [Choice(index, given) for index, given in enumerate(self._prompts())]
        # The fields that every part of a streamed answer repeats.
        self.fields = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model.name,
        }

    async def answer(self) -> Response:
        """Return all texts at once."""
        found = self._limited(await self.service.answer(self.request, self.model, self._prepare))

        fields = {**self.fields, "usage": self._usage(found)}
        choices = (self._whole_choice(choice, one) for choice, one in zip(self.choices, found, strict=True))
        written = await self.service.prepare(self.request, lambda: write_with_list(fields, "choices", choices))
        return Response(written, media_type=JSON)

    async def stream(self) -> Response:
        """Return the texts piece by piece."""
        stream = RequestStream(self.service, self.request, self.model)
        await stream.start(lambda: self._prepare(stream))
        return EventStreamResponse(self.request, self._events(stream), stream.close)

    async def _events(self, stream: RequestStream) -> AsyncIterator[list[Any]]:
        """Return the pieces of all texts as they are generated, then the reason why each ended."""
        writers = [self._writer(choice) for choice in self.choices]
        sent = [0] * len(self.choices)
        yield [{**self.fields, "choices": [_choice(choice.index, choice.text)]} for choice in self.choices if self.body.echo]
        async for pieces in stream.pieces():
            events = []
            for index, text, tokens in pieces:
                sent[index] += len(tokens)
                events.append({**self.fields, "choices": [_choice(index, text, None, self._logprobs(writers[index], tokens))]})
            yield events
        found, events = self._limited(await stream.results()), []
        for choice, one in zip(self.choices, found, strict=True):
            rest = choice.record.tokens[sent[choice.index] :] if choice.record else []
            last = self._logprobs(writers[choice.index], rest, self._end(choice, one)) if rest else None
            events.append({**self.fields, "choices": [_choice(choice.index, "", one, last)]})
        if self.body.stream_options and self.body.stream_options.include_usage:
            events.append({**self.fields, "choices": [], "usage": self._usage(found)})
        yield [*events, "[DONE]"]

    def _prompts(self) -> list[str | list[int]]:
        """Check a request's limits, and return the prompt of each choice."""
        body, settings = self.body, self.service.settings
        given = as_list(body.prompt)
        self.service.check_texts([*given, body.suffix or ""], "prompt", any_number=True)
        if (body.max_tokens or 0) > settings.new_tokens:
            most = settings.new_tokens
            raise invalid(f"{body.max_tokens:,} tokens; ask for {most:,} at most", "max_tokens", "too_many_tokens")
        prompts = [one for one in given for _ in range(body.n or 1)]
        if len(prompts) > settings.texts:
            raise invalid(f"{len(prompts):,} texts to generate; ask for {settings.texts:,} at most", "n", "too_many_texts")
        if body.logprobs is not None and not self.handler.has_logprobs:
            raise invalid(f"{self.model.name} gives no log-probabilities; leave logprobs out", "logprobs", "unsupported")
        if body.logprobs is not None and body.echo and body.stream:
            raise invalid("log-probabilities of a prompt are not streamed; leave stream or echo out", "stream", "unsupported")
        return prompts

    def _prepare(self, stream: RequestStream | None = None) -> PreparedRequest:
        """Prepare a prompt for each choice; without a seed, each choice samples from a random stream of its own."""
        body = self.body
        temperature = 1.0 if body.temperature is None else body.temperature
        options: dict[str, Any] = {
            "frequency_penalty": body.frequency_penalty or 0.0,
            "presence_penalty": body.presence_penalty or 0.0,
        }
        if temperature >= GREEDY_BELOW:
            options |= {"sampling": True, "temperature": temperature, "top_p": body.top_p or 1.0, "top_k": body.top_k or 0}
            options["seed"] = (body.seed or 0) % 2**64
        prompts = []
        for choice in self.choices:
            choice.ids = self.handler.prompt(choice.given, body.suffix)
            choice.text = choice.given if isinstance(choice.given, str) else self.handler.tokenizer.decode(choice.given)
            if body.logprobs is not None:
                choice.record = LogprobRecord(body.logprobs)
                choice.prompt_record = LogprobRecord(body.logprobs) if body.echo else None
            listens = stream if body.max_tokens != 0 else None
            # A text that may end at a string is decoded by the worker, token by token; others here, some tokens at a time.
            by_token = self.handler.grows and not body.stop_strings and choice.record is None
            decoder = TextStream(self.handler.tokenizer, choice.ids, ()) if listens and by_token else None
            prompts.append(
                Prompt(
                    choice.ids,
                    secrets.randbits(48) if body.seed is None else choice.index,
                    body.stop_strings,
                    listens.callback(choice.index, choice.record) if listens and not by_token else None,
                    DEFAULT_TOKENS if body.max_tokens is None else max(1, body.max_tokens),  # a prompt is read by the first one
                    choice.record,
                    choice.prompt_record,
                    listens.token_callback(choice.index, decoder) if listens and decoder else None,
                )
            )
        return self.handler.complete(prompts, self.handler.decoding(self.service.settings.new_tokens, **options))

    def _limited(self, found: list[GeneratedText]) -> list[GeneratedText]:
        """Return texts of no token where none is wanted, but the log-probabilities of a prompt."""
        if self.body.max_tokens != 0:
            return found
        for choice in self.choices:
            if choice.record is not None:
                choice.record.tokens.clear()
        return [GeneratedText("", [], ended=False) for _ in found]

    def _whole_choice(self, choice: Choice, found: GeneratedText) -> dict[str, Any]:
        """Return a choice with its text, and with the prompt if that is echoed."""
        text = (choice.text if self.body.echo else "") + found.text
        if choice.record is None:
            return _choice(choice.index, text, found)
        logprobs = self._prompt_logprobs(choice)
        writer = self._writer(choice, len(choice.text) if self.body.echo else 0)
        written = self._logprobs(writer, choice.record.tokens, writer.offset + self._end(choice, found))
        joined = {
            name: values if logprobs is None or logprobs[name] is None else logprobs[name] + values
            for name, values in written.items()
        }
        return _choice(choice.index, text, found, joined)

    def _prompt_logprobs(self, choice: Choice) -> Any:
        """Return the log-probabilities of an echoed prompt; its first token has none, and a bos that we add is left out."""
        if choice.prompt_record is None or choice.ids is None:
            return None
        tokens: list[TokenLogprob | None] = [None, *choice.prompt_record.tokens]
        added = isinstance(choice.given, str) and choice.ids[0] in self.handler.tokenizer.special_ids
        ids, tokens = (choice.ids[1:], tokens[1:]) if added else (choice.ids, tokens)
        return LogprobWriter(self.handler.tokenizer).write(tokens, ids, self.body.logprobs or 0)

    def _writer(self, choice: Choice, offset: int = 0) -> LogprobWriter:
        return LogprobWriter(self.handler.tokenizer, choice.ids or (), offset)

    def _logprobs(self, writer: LogprobWriter, tokens: Sequence[TokenLogprob], end: int | None = None) -> Any:
        """Return the log-probabilities of new tokens; None where they are not wanted."""
        if self.body.logprobs is None:
            return None
        return writer.write(tokens, [one.token for one in tokens], self.body.logprobs, end)

    def _end(self, choice: Choice, found: GeneratedText) -> int:
        """Return the length of a text from which tokens are left out: where a stop string ended it, else none are."""
        assert choice.record is not None
        return len(found.text) if len(found.text) < len(self.handler.tokenizer.decode(found.ids)) else 1 << 40

    def _usage(self, found: Sequence[GeneratedText]) -> dict[str, int]:
        prompted = sum(len(choice.ids or ()) for choice in self.choices[:: self.body.n or 1])
        generated = sum(len(one.ids) for one in found)
        return {"prompt_tokens": prompted, "completion_tokens": generated, "total_tokens": prompted + generated}


def as_list(given: str | list[str] | list[int] | list[list[int]]) -> list[str | list[int]]:
    """Return the texts of a request; a list of ids is one text."""
    if isinstance(given, str):
        return [given]
    ids = [one for one in given if isinstance(one, int)]
    return [ids] if ids else [one for one in given if not isinstance(one, int)]


def _choice(index: int, text: str, generated: GeneratedText | None = None, logprobs: Any = None) -> dict[str, Any]:
    """Return a choice, with the reason why it ended if it is complete."""
    reason = None if generated is None else "stop" if generated.ended else "length"
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}
