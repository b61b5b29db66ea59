"""Which tokens end a generation.

Files name one, EOS; chat models end their turn with another, which llama.cpp finds by its text. The
texts are those of llama-vocab.cpp at llama.cpp 0c1e57098.
"""

from collections.abc import Mapping

from edgequant.tokenizer.tokenizer import TokenType
from edgequant.tokenizer.vocabulary import Vocabulary

_ENDS = frozenset({
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<｜end▁of▁sentence｜>", "[e~[",
})  # fmt: skip
# A key names the token, else the first of these texts that is a token.
_NAMED: Mapping[str, tuple[str, ...]] = {
    "eot_token_id": (),
    "eom_token_id": (),
    "fim_pad_token_id": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep_token_id": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep_token_id": ("<|file_sep|>",),
}
# In these families "<|end|>" closes a part of an answer, and "</s>" is an ordinary token.
_END_IS_A_PART = ({"<|return|>", "<|call|>"}, {"<|return|>", "<|calls|>"},
                  {"<|flush|>", "<|call|>"}, {"<|flush|>", "<|calls|>"})  # fmt: skip
_S_IS_ORDINARY = {"<|tool_response>", "<|plamo:eos|>"}


def find_stops(vocabulary: Vocabulary, eos: int | None) -> frozenset[int]:
    """Return the ids of all tokens after which a model has finished speaking."""
    stops = {*_found_by_text(vocabulary.ids).values(), eos}
    for key, texts in _NAMED.items():
        found = next((vocabulary.ids[text] for text in texts if text in vocabulary.ids), None)
        stops.add(vocabulary.special(key, found))
    return frozenset(number for number in stops if number is not None)


def mark_stops(vocabulary: Vocabulary) -> None:
    """Make control tokens of those that end a generation by their text.

    Some files call them normal, and then a chat template's "<|im_end|>" would be ten letters.
    """
    for number in _found_by_text(vocabulary.ids).values():
        vocabulary.mark(number, TokenType.CONTROL)


def _found_by_text(ids: Mapping[str, int]) -> dict[str, int]:
    found = {text: ids[text] for text in _ENDS & ids.keys()}
    if any(family <= ids.keys() for family in _END_IS_A_PART):
        found.pop("<|end|>", None)
    if _S_IS_ORDINARY & ids.keys():
        found.pop("</s>", None)
    return found
