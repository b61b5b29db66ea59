"""A prompt and a model file become text, handed out as it comes."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from edgequant.blocks import Floats
from edgequant.device import Choice, open_device
from edgequant.device.protocol import Sampling
from edgequant.errors import TextError, UnsupportedError
from edgequant.progress import SILENT, Progress
from edgequant.runtime.memory import peak_bytes
from edgequant.runtime.model import Model, open_model
from edgequant.runtime.sampler import Sampler
from edgequant.runtime.session import BATCH, Session
from edgequant.runtime.template import render_chat


@dataclass(frozen=True)
class Generation:
    """What came, and how fast.

    Attributes:
        text: all of it; special tokens that end it are left out.
        tokens: how many were generated.
        prompt_tokens: how many the prompt has, BOS included.
        load_seconds: from opening the file to a program ready to run.
        prefill_tokens_per_second: of the prompt, once it is tokens.
        decode_tokens_per_second: of the steps after it, sampling included; None without any.
        peak_memory_bytes: of the process, mapped files included; None if the system does not say.
        device: its description.
        activations: what the inputs of linear layers were rounded to.
        seed: that gives this text again.
        stopped: why it ended: "end" (a token that ends a turn), "length", "context", "interrupt".
    """

    text: str
    tokens: int
    prompt_tokens: int
    load_seconds: float
    prefill_tokens_per_second: float
    decode_tokens_per_second: float | None
    peak_memory_bytes: int | None
    device: str
    activations: str
    seed: int
    stopped: str


def generate(
    path: Path,
    prompt: str,
    *,
    device: str | Choice = "auto",
    limit: int | None = None,
    chat: bool = False,
    sampling: Sampling | None = None,
    context: int | None = None,
    emit: Callable[[str], object] = lambda _text: None,
    progress: Progress = SILENT,
) -> Generation:
    """Continue a prompt.

    Ctrl-C while tokens come ends the text there and is no error; before, it is KeyboardInterrupt.

    Args:
        path: the model file.
        prompt: a text, or with `chat` the user's message.
        device: as given to `--device`, or with its options.
        limit: tokens at most; None: until the model ends, or the context is full.
        chat: wrap the prompt in the file's chat template.
        sampling: how tokens are chosen; None for the defaults of `Sampling`.
        context: tokens of prompt and text together; None for the model's, see `open_model`.
        emit: called with each piece of text as it comes, never with half a character.
        progress: told of loading and prefill.

    Raises:
        UnsupportedError: `chat`, but the file has no template.
        TextError: the prompt is empty, or longer than the context.
        EdgequantError: what `open_model` raises.
    """
    began = time.perf_counter()
    progress.begin("load", 1, "models")
    with open_model(path, partial(open_device, device), context=context) as model:
        loaded = time.perf_counter()
        ids = _prompt_ids(model, prompt, chat=chat)
        sampler = Sampler(sampling or Sampling())
        session = model.session()
        asked = time.perf_counter()
        progress.begin("prefill", len(ids), "tokens")
        for start in range(0, len(ids), BATCH):
            batch = ids[start : start + BATCH]
            if start + BATCH < len(ids):
                session.fill(batch)
            else:
                logits = session.prefill(batch)
            progress.advance(len(batch))
        progress.end()
        prefilled = time.perf_counter()
        tokens = _Continuation(session, sampler, model.tokenizer.end_of_generation, ids)
        pieces = model.tokenizer.stream()
        text = []
        try:
            for token in tokens.run(logits, limit):
                text.append(pieces.feed(token))
                if text[-1]:
                    emit(text[-1])
        except KeyboardInterrupt:
            tokens.stopped = "interrupt"
        text.append(pieces.finish())
        if text[-1]:
            emit(text[-1])
        seconds = time.perf_counter() - prefilled
        steps = session.past - len(ids)
        return Generation(
            text="".join(text),
            tokens=tokens.count,
            prompt_tokens=len(ids),
            load_seconds=loaded - began,
            prefill_tokens_per_second=len(ids) / (prefilled - asked),
            decode_tokens_per_second=steps / seconds if steps else None,
            peak_memory_bytes=peak_bytes(),
            device=model.device.description,
            activations=model.device.activations,
            seed=sampler.seed,
            stopped=tokens.stopped,
        )


def _prompt_ids(model: Model, prompt: str, *, chat: bool) -> list[int]:
    """Tokenize a prompt: special tokens in it count as such, and exactly one BOS if they add one.

    A template that writes BOS itself must not get a second; an EOS would end the text at once.
    """
    tokenizer = model.tokenizer
    if chat:
        if tokenizer.chat_template is None:
            raise UnsupportedError(
                f"{model.path}: has no chat template.",
                hint="leave out --chat and write the prompt as the model expects it.",
            )
        bos, eos = ("" if t is None else tokenizer.token(t) for t in (tokenizer.bos, tokenizer.eos))
        prompt = render_chat(
            tokenizer.chat_template, [{"role": "user", "content": prompt}], bos=bos, eos=eos
        )
    ids = [int(i) for i in tokenizer.encode(prompt, add_special=False, parse_special=True)]
    if tokenizer.add_bos and tokenizer.bos is not None and ids[:1] != [tokenizer.bos]:
        ids.insert(0, tokenizer.bos)
    if not ids:
        raise TextError("the prompt is empty.", hint="give -p some text to continue.")
    if len(ids) > model.context:
        raise TextError(
            f"the prompt has {len(ids):,} tokens, but the context holds {model.context:,}.",
            hint="shorten the prompt, or use a larger --ctx if the model allows it.",
        )
    return ids


class _Continuation:
    """Tokens after a prompt; `count` so far, and why it `stopped`."""

    def __init__(
        self, session: Session, sampler: Sampler, ends: frozenset[int], prompt: list[int]
    ) -> None:
        self.count = 0
        self.stopped = "length"
        self._session = session
        self._sampler = sampler
        self._ends = ends
        self._history = list(prompt)

    def run(self, logits: Floats, limit: int | None) -> Iterator[int]:
        """Yield tokens; the last one is not fed."""
        tokens = self._draw(logits, limit)
        while limit is None or self.count < limit:
            token = next(tokens, None)
            if token is None:
                self.stopped = "context"
                return
            if token in self._ends:
                self.stopped = "end"
                return
            self._history.append(token)
            self.count += 1
            yield token

    def _draw(self, logits: Floats, limit: int | None) -> Iterator[int]:
        """Yield tokens, each fed before the next is drawn, until the context is full.

        The device draws all but the first where it can: then nothing waits for the text.
        """
        session, sampling = self._session, self._sampler.sampling
        token = self._sampler.pick(logits, self._history)
        yield token
        if session.chains and sampling.repeat_penalty == 1.0:
            most = session.room if limit is None else min(session.room, limit - 1)
            yield from session.generate(token, most, replace(sampling, seed=self._sampler.seed))
            return
        while session.room:
            token = self._sampler.pick(session.decode(token), self._history)
            yield token
