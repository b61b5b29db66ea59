"""Chat templates, as transformers' apply_chat_template renders them."""

from pathlib import Path

import pytest
import transformers

from edgequant.errors import TextError
from edgequant.runtime.template import render_chat

pytestmark = pytest.mark.oracle

# Ours, in the manner of the families they are named after.
TEMPLATES = {
    "chatml": """\
{%- if messages[0]['role'] != 'system' %}
    {{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message.content | trim + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "llama3": """\
{{- bos_token }}
{%- if tools is not none %}{{ raise_exception('no tools here') }}{% endif %}
{%- set system = '' %}
{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content | trim %}
    {%- set messages = messages[1:] %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\nToday: " + strftime_now("%d %b %Y") + "\\n" }}
{{- system + "<|eot_id|>" }}
{%- for message in messages %}
    {%- generation %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content }}
    {%- endgeneration %}
    {{- '<|eot_id|>' }}
{%- endfor %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' if add_generation_prompt }}
""",
    "mistral": """\
{{ bos_token }}
{% set ns = namespace(turn=0, system='') %}
{% for message in messages %}
    {% if message.role == 'system' %}
        {% set ns.system = message.content + '\\n\\n' %}
        {% continue %}
    {% endif %}
    {% if (message['role'] == 'user') != (ns.turn % 2 == 0) %}
        {{ raise_exception('Roles must alternate user/assistant') }}
    {% endif %}
    {% if message.role == 'user' %}
{{ '[INST] ' + ns.system + message.content + ' [/INST]' }}
        {% set ns.system = '' %}
    {% else %}
{{ ' ' + message.content + eos_token }}
    {% endif %}
    {% set ns.turn = ns.turn + 1 %}
{% endfor %}
""",
    "tools": """\
{%- macro turn(message, last) %}
  {{- {"role": message.role, "text": message.content, "last": last} | tojson(indent=2) -}}
{% endmacro %}
{% for message in messages %}
{{ turn(message, loop.last) }}
{% if loop.index0 > 1 %}{% break %}{% endif %}
{% endfor %}
{{ messages | map(attribute='role') | join(', ') }}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }}
""",
}
CHATS = {
    "one turn": [("user", "Hello <b>there</b> & 'you'")],
    "with a system prompt": [("system", " Be brief. "), ("user", "日本語 🦙\n")],
    "three turns": [("user", "a"), ("assistant", 'b "quoted"'), ("user", "c")],
}


@pytest.fixture(scope="module")
def theirs(books_6m: Path) -> transformers.PreTrainedTokenizerFast:
    return transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(books_6m / "tokenizer.json"), bos_token="<s>", eos_token="</s>"
    )


@pytest.mark.parametrize("prompted", [True, False])
@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_means_the_same(theirs, name: str, chat: str, prompted: bool) -> None:
    messages = [{"role": role, "content": content} for role, content in CHATS[chat]]
    expected = theirs.apply_chat_template(
        messages, chat_template=TEMPLATES[name], tokenize=False, add_generation_prompt=prompted
    )
    prompt = render_chat(
        TEMPLATES[name], messages, bos="<s>", eos="</s>", add_generation_prompt=prompted
    )
    assert prompt == expected


def test_an_objection_is_passed_on(theirs) -> None:
    messages = [{"role": "assistant", "content": "I begin."}]
    with pytest.raises(TextError, match="Roles must alternate user/assistant"):
        render_chat(TEMPLATES["mistral"], messages, bos="<s>", eos="</s>")
