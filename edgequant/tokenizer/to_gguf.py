"""The tokenizer keys of a GGUF file, from a Hugging Face directory.

The keys are those that convert_hf_to_gguf.py writes (llama.cpp 0c1e57098, with SpecialVocab of
gguf-py 0.19.0). It differs where llama.cpp's way loses something: a SentencePiece-style
tokenizer.json has no scores, and gets them from the ranks of its merges, not one score for all; BOS
and EOS are also sought in special_tokens_map.json and generation_config.json; an id outside the
embedding is an error, not a warning.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from edgequant.errors import CheckpointError
from edgequant.tokenizer.json_file import content_of, expect, read_object
from edgequant.tokenizer.listing import Listing, add_entry, fill, mark_control
from edgequant.tokenizer.sentencepiece import read_sentencepiece
from edgequant.tokenizer.tokenizer_json import read_tokenizer_json

_IDS = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}


def tokenizer_keys(directory: Path, vocab: int) -> dict[str, object]:
    """Return the `tokenizer.*` keys of a checkpoint, with plain values.

    Args:
        directory: of the checkpoint.
        vocab: rows of its embedding; a smaller vocabulary is padded with unused tokens.

    Raises:
        CheckpointError: no tokenizer, a broken one, or ids that have no row in the embedding.
        UnsupportedError: a tokenizer that no key of a GGUF file can describe.
    """
    listing = _read_listing(directory)
    config = read_object(directory / "tokenizer_config.json")
    entries = dict(listing.entries)
    for number, text, special in _added_tokens(directory, config):
        add_entry(entries, number, text, special=special)
    mark_control(entries, _named_texts(directory, config))
    filled = fill(entries, vocab, str(directory))
    keys: dict[str, object] = {
        "model": listing.model,
        "pre": listing.pre,
        "tokens": [entry.text for entry in filled],
        "token_type": [int(entry.type) for entry in filled],
    }
    if listing.model == "llama":
        keys["scores"] = [entry.score for entry in filled]
    else:
        keys["merges"] = list(listing.merges)
    ids = {entry.text: number for number, entry in enumerate(filled)}
    keys |= _special_ids(directory, config, ids)
    keys |= _additions(listing, config)
    result = {f"tokenizer.ggml.{name}": value for name, value in keys.items()}
    result |= _templates(directory, config)
    _check_unicode(result, directory)
    return result


def _check_unicode(keys: Mapping[str, object], directory: Path) -> None:
    """Refuse halves of surrogate pairs, which JSON can write and no GGUF file can hold."""
    for key, value in keys.items():
        for text in value if isinstance(value, list) else [value]:
            try:
                str(text).encode()
            except UnicodeEncodeError:
                raise CheckpointError(
                    f"{directory}: {key} would hold {text!a}, which is not Unicode.",
                    hint="download the tokenizer's files again.",
                ) from None


def _read_listing(directory: Path) -> Listing:
    """Read tokenizer.model if it is SentencePiece's, as llama.cpp does, else tokenizer.json."""
    old, new = directory / "tokenizer.model", directory / "tokenizer.json"
    if old.is_file():
        try:
            return read_sentencepiece(old)
        except CheckpointError:
            if not new.is_file():  # with one, the other may be of a kind that others read
                raise
    if not new.is_file():
        raise CheckpointError(
            f"{directory}: there is neither tokenizer.json nor tokenizer.model.",
            hint="put the tokenizer's files beside the weights.",
        )
    return read_tokenizer_json(new)


def _added_tokens(directory: Path, config: Mapping[str, object]) -> Iterator[tuple[int, str, bool]]:
    """Yield id, text and specialness of added tokens; the later of two with one id holds."""
    path = directory / "tokenizer.json"
    for token in expect(read_object(path).get("added_tokens", []), list, f"{path}: added_tokens"):
        token = expect(token, dict, f"{path}: added_tokens")
        number = expect(token.get("id"), int, f"{path}: id of an added token")
        text = expect(content_of(token), str, f"{path}: content of added token {number}")
        yield number, text, bool(token.get("special"))
    path = directory / "added_tokens.json"
    known = {content_of(token) for token in _decoder(config).values()}
    for text, value in read_object(path).items():
        if text not in known:  # this file does not say which are special
            yield expect(value, int, f"{path}: id of {text!r}"), text, False
    for key, token in _decoder(config).items():
        content = content_of(token)
        if not key.isdecimal() or content is None:
            raise CheckpointError(
                f"{directory / 'tokenizer_config.json'}: added_tokens_decoder has the entry "
                f"{key!r}: {token!r}, which is not an id and a token.",
                hint="download tokenizer_config.json again.",
            )
        yield int(key), content, bool(isinstance(token, dict) and token.get("special"))


def _decoder(config: Mapping[str, object]) -> dict[str, object]:
    value = config.get("added_tokens_decoder") or {}
    return expect(value, dict, "tokenizer_config.json: added_tokens_decoder")


def _named_texts(directory: Path, config: Mapping[str, object]) -> set[str]:
    """Return the texts that the configs name as BOS, EOS or padding."""
    sources = (config, read_object(directory / "special_tokens_map.json"))
    texts = {
        content_of(source.get(f"{s}_token")) for s in ("bos", "eos", "pad") for source in sources
    }
    return {text for text in texts if text}


def _special_ids(
    directory: Path, config: Mapping[str, object], ids: Mapping[str, int]
) -> dict[str, object]:
    """Find the ids of BOS, EOS and so on: by their texts, else by the numbers in the configs."""
    texts = (config, read_object(directory / "special_tokens_map.json"))
    numbers = {
        name: read_object(directory / name) for name in ("config.json", "generation_config.json")
    }
    found: dict[str, object] = {}
    for short, long in _IDS.items():
        by_text = [ids.get(content_of(source.get(f"{short}_token")) or "") for source in texts]
        number = next((number for number in by_text if number is not None), None)
        for name, source in numbers.items():
            value = source.get(f"{short}_token_id")
            if number is None and type(value) is int and value >= 0:
                number = value
                if number >= len(ids):
                    raise CheckpointError(
                        f"{directory / name}: {short}_token_id is {number:,}; the embedding has "
                        f"{len(ids):,} rows.",
                        hint=f"correct or remove {short}_token_id.",
                    )
        if number is not None:
            found[f"{long}_token_id"] = number
    return found


def _additions(listing: Listing, config: Mapping[str, object]) -> dict[str, object]:
    """Say whether BOS, EOS and a leading space are added; the post-processor knows best."""
    found: dict[str, object] = {}
    for name in ("bos", "eos"):
        value = listing.adds.get(name, config.get(f"add_{name}_token"))
        if isinstance(value, bool):
            found[f"add_{name}_token"] = value
    prefix = config.get("add_prefix_space")
    if not isinstance(prefix, bool):
        prefix = listing.space_prefix
    if prefix is not None:
        found["add_space_prefix"] = prefix
    return found


def _templates(directory: Path, config: Mapping[str, object]) -> dict[str, object]:
    """Return the chat templates, verbatim: the default one, and any others by name."""
    path = directory / "chat_template.jinja"
    template = config.get("chat_template")
    if template is None and path.is_file():
        try:
            template = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(
                f"{path}: cannot be read: {error}.", hint="download chat_template.jinja again."
            ) from error
    if template is None:
        template = read_object(directory / "chat_template.json").get("chat_template")
    if template is None:
        return {}
    where = f"{directory}: chat_template"
    if isinstance(template, str):
        return {"tokenizer.chat_template": template}
    found: dict[str, object] = {}
    names = []
    for item in expect(template, list, where):
        item = expect(item, dict, where)
        name = expect(item.get("name"), str, f"{where}: name")
        text = expect(item.get("template"), str, f"{where}: template")
        if name == "default":
            found["tokenizer.chat_template"] = text
        else:
            names.append(name)
            found[f"tokenizer.chat_template.{name}"] = text
    return found | ({"tokenizer.chat_templates": names} if names else {})
