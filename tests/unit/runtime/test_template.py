"""Chat templates: what they make of messages, and that no template can do harm."""

import time

import pytest

from edgequant.errors import GGUFError, TextError
from edgequant.runtime import sandbox
from edgequant.runtime.template import render_chat

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "<Hi> & 'you'"}]
CHATML = """{% for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' -}}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


VARIABLES = {
    "messages": MESSAGES, "tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>"
}  # fmt: skip


def render(template: str, **options) -> str:
    return render_chat(template, MESSAGES, bos="<s>", eos="</s>", **options)


def test_a_conversation_is_written_out() -> None:
    said = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n<Hi> & 'you'<|im_end|>\n"
    assert render(CHATML) == said + "<|im_start|>assistant\n"
    assert render(CHATML, add_generation_prompt=False) == said


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ bos_token }}{{ eos_token }}{{ unk_token }}", "<s></s>"),
        ("{{ messages[1].content | tojson }}", "\"<Hi> & 'you'\""),
        ("{{ {'é': 1} | tojson(indent=1) }}", '{\n "é": 1\n}'),
        ("{% if tools is none and documents is none %}none{% endif %}", "none"),
        ("{% generation %}a{% endgeneration %}b", "ab"),
        ("{% for i in range(9) %}{% if i > 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
         "{% endfor %}{{ ns.n }}", "2"),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
        ("日本語", "日本語"),
    ],
)  # fmt: skip
def test_what_templates_rely_on(template: str, text: str) -> None:
    assert sandbox.render(template, VARIABLES) == {"text": text}


def test_a_template_may_object() -> None:
    with pytest.raises(TextError, match="objects to these messages: roles must alternate") as error:
        render("{{ raise_exception('roles must alternate.') }}")
    assert "--chat" in error.value.hint


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% if %}", "TemplateSyntaxError"),
        ("{{ messages[0].nothing.more }}", "UndefinedError"),
        ("{{ messages + 1 }}", "TypeError"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ cycler.__init__.__globals__ }}", "SecurityError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{% include '/etc/passwd' %}", "TypeError: no loader"),
        ("{{ range(10**9) | list }}", "OverflowError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "calls itself without end"),
        ("{{ 'a' * 2**25 }}", "writes 33,554,432 characters"),
    ],
)
def test_a_broken_or_hostile_template_is_found_out(template: str, message: str) -> None:
    assert message in sandbox.render(template, VARIABLES)["broken"]


@pytest.mark.parametrize(
    ("template", "message"),
    [("{% if %}", "TemplateSyntaxError"), ("{{ 'a' * 10**10 }}", "needs too much memory")],
)
def test_and_is_an_error_of_ours(template: str, message: str) -> None:
    with pytest.raises(GGUFError, match=message) as error:
        render(template)
    assert str(error.value).startswith("chat template: ")
    assert "--chat" in error.value.hint


def test_an_endless_template_is_stopped() -> None:
    loops = "{% for a in range(99999) %}" * 3 + "{% endfor %}" * 3
    begin = time.perf_counter()
    with pytest.raises(GGUFError, match="was not done after 1 seconds"):
        render(loops, seconds=1)
    assert time.perf_counter() - begin < 10


def test_a_sandbox_that_dies_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    dead = tmp_path / "dead.py"
    dead.write_text("raise SystemExit('no jinja here')")
    monkeypatch.setattr("edgequant.runtime.template.SANDBOX", dead)
    with pytest.raises(GGUFError, match="rendering failed: no jinja here"):
        render("")
