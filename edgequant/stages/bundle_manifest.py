"""The manifest of a bundle: what an app must know to run the model, as one JSON object.

`bundle_text/README.md` says what every key means; a test holds the two together. It knows what is
in the folder, and writes nothing itself.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgequant import __version__
from edgequant.device.buckets import batches, contexts
from edgequant.device.step import STEP
from edgequant.device.targets import Target
from edgequant.device.transcript import Transcript
from edgequant.graph.kernels.sample import NOT_FINITE, RING
from edgequant.graph.launch import Limits
from edgequant.runtime.model import Model
from edgequant.tokenizer.tokenizer import Tokenizer

FORMAT = "edgequant bundle"
VERSION = 1
MANIFEST, TOKENIZER, PIECES, TABLES = "manifest.json", "tokenizer.json", "pieces.bin", "tables.bin"
_SCALARS = {"u": "uint32", "f": "float32"}


def make_manifest(
    model: Model,
    target: Target,
    limits: Limits,
    transcript: Transcript,
    files: Sequence[Mapping[str, object]],
    manifests: Sequence[Mapping[str, object]],
) -> dict[str, Any]:
    """Return the manifest.

    Args:
        model: opened on the null GPU that `transcript` was recorded on.
        target: what for.
        limits: assumed.
        transcript: what the model's program does.
        files: of the model, with their bytes.
        manifests: all that are in the bundle, with the lanes of a subgroup.
    """
    h = model.hparams
    return {
        "format": FORMAT,
        "version": VERSION,
        "made_by": f"edgequant {__version__}",
        "target": target.name,
        "manifests": list(manifests),
        "model": {
            "name": str(model.file.values().get("general.name", model.path.stem)),
            "architecture": model.architecture.name,
            "files": list(files),
            "vocab": h.vocab,
            "context": model.context,
            "cache": model.device.cache,
            "activations": model.device.activations,
        },
        "limits": {
            "subgroup": limits.subgroup,
            "workgroup": limits.workgroup,
            "shared_bytes": limits.shared_bytes,
            "max_buffer_bytes": limits.max_alloc_bytes,
            "cooperative_matrix": limits.cooperative_matrix,
            "integer_dot": limits.integer_dot,
            "argument_bytes": max(
                8 * len(item["arguments"]) + len(item["scalars"]) // 2  # type: ignore[arg-type]
                for item in transcript.dispatches
            ),
        },
        "needs": target.needed(transcript.kernels),
        "step": {
            "buffer": transcript.step,
            "bytes": STEP.itemsize,
            "fields": list(map(_field, STEP.names or ())),
        },
        "tokens": {"buffer": transcript.tokens, "length": batches(model.context)[-1]},
        "ring": {"buffer": transcript.ring, "length": RING, "not_finite": NOT_FINITE},
        "batches": batches(model.context),
        "contexts": contexts(model.context),
        "tokenizer": _tokenizer(model.tokenizer, model.file.values()),
        "buffers": transcript.buffers,
        "pipelines": transcript.pipelines,
        "recordings": transcript.recordings,
        "dispatches": transcript.dispatches,
    }


def to_json(manifest: Mapping[str, Any]) -> bytes:
    """Return the manifest's text: what is a list of objects has one in each line."""
    parts = []
    for key, value in manifest.items():
        text = json.dumps(value)
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], dict):
            text = "[\n" + ",\n".join(f"  {json.dumps(item)}" for item in value) + "\n ]"
        parts.append(f" {json.dumps(key)}: {text}")
    return ("{\n" + ",\n".join(parts) + "\n}\n").encode()


def pieces(tokenizer: Tokenizer) -> bytes:
    """Return the bytes of every token: (size + 1) uint32 offsets, then the bytes they point to."""
    found = [tokenizer.piece(number) for number in range(tokenizer.size)]
    ends = np.cumsum([0, *map(len, found)], dtype="<u4")
    return ends.tobytes() + b"".join(found)


def _field(name: str) -> dict[str, object]:
    kind, offset = STEP.fields[name][:2]  # type: ignore[index]
    return {
        "name": name,
        "offset": offset,
        "type": _SCALARS[kind.base.kind],
        "count": int(np.prod(kind.shape, dtype=int)),
    }


def _tokenizer(tokenizer: Tokenizer, keys: Mapping[str, object]) -> dict[str, object]:
    kinds = {"gpt2": "byte-level BPE", "llama": "SentencePiece-style BPE"}
    return {
        "file": TOKENIZER,
        "kind": kinds[str(keys["tokenizer.ggml.model"])],
        "pieces": PIECES,
        "size": tokenizer.size,
        "bos": tokenizer.bos,
        "eos": tokenizer.eos,
        "add_bos": tokenizer.add_bos,
        "stops": sorted(tokenizer.end_of_generation),
        "chat_template": tokenizer.chat_template,
    }
