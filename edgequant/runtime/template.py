"""Chat messages to a prompt, by the Jinja template that a model file carries.

A template is a program from a stranger, so it runs in a process of its own (`sandbox`), for a few
seconds at most. It knows no tokenizer: the prompt is text in which control tokens are written out.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgequant.errors import GGUFError, TextError

SANDBOX = Path(__file__).with_name("sandbox.py")
MAX_SECONDS = 10.0
_WITHOUT = "leave out --chat and write the prompt as the model expects it."


def render_chat(
    template: str,
    messages: Sequence[Mapping[str, str]],
    *,
    bos: str,
    eos: str,
    add_generation_prompt: bool = True,
    seconds: float = MAX_SECONDS,
) -> str:
    """Return the prompt for a conversation.

    Args:
        template: Jinja, as Hugging Face's apply_chat_template reads it.
        messages: each with a "role" and a "content".
        bos: the text of BOS, "" if there is none.
        eos: the text of EOS.
        add_generation_prompt: end with the opening of the assistant's turn.
        seconds: after this long the template is stopped.

    Raises:
        GGUFError: the template is broken, hostile, or takes too long.
        TextError: the template objects to these messages.
    """
    variables = {
        "messages": [dict(message) for message in messages],
        "tools": None,
        "documents": None,
        "add_generation_prompt": add_generation_prompt,
        "bos_token": bos,
        "eos_token": eos,
    }
    answer = _ask(json.dumps({"template": template, "variables": variables}), seconds)
    if "refused" in answer:
        raise TextError(
            f"chat template: it objects to these messages: {answer['refused'].rstrip('.')}.",
            hint="change the messages, or " + _WITHOUT,
        )
    if "text" not in answer:
        raise GGUFError(f"chat template: {answer['broken'].rstrip('.')}.", hint=_WITHOUT)
    return answer["text"]


def _ask(request: str, seconds: float) -> Mapping[str, str]:
    """Run the sandbox on a request and return its answer."""
    # -P: the sandbox's folder is not searched for modules, or ours would hide others' names.
    command = [sys.executable, "-P", "-X", "utf8", str(SANDBOX)]
    try:
        done = subprocess.run(
            command, input=request, capture_output=True, encoding="utf-8", timeout=seconds,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"broken": f"it was not done after {seconds:g} seconds"}
    try:
        answer: Mapping[str, str] = json.loads(done.stdout)
    except ValueError:
        last = done.stderr.strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        return {"broken": f"rendering failed: {last}"}
    return answer
