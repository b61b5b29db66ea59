import gguf
import pytest

from edgequant.blocks import BLOCK_TYPES, BLOCK_TYPES_BY_ID, TensorInfo


def test_the_table_is_gguf_pys() -> None:
    theirs = {t.name: (t.value, *gguf.GGML_QUANT_SIZES[t]) for t in gguf.GGMLQuantizationType}
    ours = {t.name: (t.ggml_id, t.weights, t.nbytes) for t in BLOCK_TYPES.values()}
    # Never in a file; gguf-py counts float32 scales, ggml's block_q8_1 has float16.
    theirs["Q8_1"] = (9, 32, 36)
    assert theirs.items() <= ours.items()
    assert len(BLOCK_TYPES_BY_ID) == len(BLOCK_TYPES)


def test_a_tensor_is_sized_by_its_blocks() -> None:
    info = TensorInfo("blk.0.ffn_up.weight", BLOCK_TYPES["Q4_K"], (3, 512))
    assert (info.rows, info.columns, info.weights, info.nbytes) == (3, 512, 1536, 3 * 2 * 144)
    assert TensorInfo("a", BLOCK_TYPES["F32"], (7,)).nbytes == 28


def test_half_a_block_is_refused() -> None:
    with pytest.raises(ValueError, match="300 columns are not whole blocks of 256"):
        BLOCK_TYPES["Q6_K"].row_nbytes(300)
