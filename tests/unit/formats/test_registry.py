"""Which formats there are, and what is said of those that are not."""

import subprocess
import sys

import numpy as np
import pytest

from edgequant.errors import UnsupportedError
from edgequant.formats import QuantFormat, find, names, quantize
from edgequant.formats.format import register


def test_all_are_there_in_their_order() -> None:
    first = "F32 F16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ2_XXS IQ2_XS IQ3_XXS"
    assert " ".join(names()) == f"{first} IQ4_NL IQ3_S IQ2_S IQ4_XS BF16 TQ1_0 TQ2_0 MXFP4"
    only_read = set(names(encoded=False)) - set(names())
    assert only_read == {"IQ1_S", "IQ1_M", "NVFP4"}


def test_what_is_only_read_is_not_written() -> None:
    with pytest.raises(
        UnsupportedError, match="IQ1_S: edgequant reads this block format"
    ) as caught:
        quantize(find("IQ1_S"), np.zeros((1, 256), np.float32))
    assert caught.value.hint == f"use one of {', '.join(names())}."


def test_the_tables_of_gguf_py_are_left_alone_until_needed() -> None:
    code = (
        "import sys; from edgequant.formats import names; names(); sys.exit('gguf' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_format_is_refused_with_those_known() -> None:
    with pytest.raises(UnsupportedError, match="Q9_Z: not a block format") as caught:
        find("Q9_Z")
    assert "Q4_K" in caught.value.hint


def test_a_layout_of_the_wrong_size_is_refused() -> None:
    known = find("Q4_K")
    with pytest.raises(ValueError, match="the layout has 4 bytes, not 144"):
        register(QuantFormat("Q4_K", np.dtype("<f4"), known.encode, known.decode))
