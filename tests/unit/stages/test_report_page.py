"""The page of a report: what it shows, that it needs nothing else, and that names stay names."""

from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from toys import write_toy

from edgequant.stages.quantize import quantize
from edgequant.stages.quantize_report import QuantizeReport
from edgequant.stages.report_page import render_page

LOADING = {"script", "link", "img", "iframe", "object", "embed", "image", "use", "base", "meta"}


class Reader(HTMLParser):
    """Collects a page's elements, its text, and the cells of its tables' rows."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.rows: list[list[str]] = []
        self._in_cell = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        self._in_cell = tag in ("td", "th", "svg", "rect") and bool(self.rows)

    def handle_endtag(self, tag: str) -> None:
        if tag == "tr":
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._in_cell:
            self.rows[-1][-1] += data

    def bars(self, kind: str) -> list[dict[str, str | None]]:
        return [a for tag, a in self.elements if tag == "rect" and a.get("class") == kind]


@pytest.fixture
def report(tmp_path: Path, rng: np.random.Generator) -> QuantizeReport:
    return quantize(write_toy(tmp_path / "toy.gguf", rng), tmp_path / "out.gguf", type="Q4_K_M")


def test_everything_is_on_the_page(report: QuantizeReport) -> None:
    page = Reader(render_page(report, "toy.gguf"))
    assert "toy.gguf in Q4_K_M" in page.text
    assert f"{report.bits_per_weight:.3f} bits per weight" in page.text
    rows = {row[0]: row for row in page.rows if len(row) == 10}
    for tensor in report.tensors:
        row = rows[tensor.name]
        assert row[1] == tensor.type
        if tensor.error:
            assert row[4] == f"{tensor.error:.3%}"
            assert row[6] == f"{tensor.rmse:.3g}"
            assert tensor.worst is not None
            assert row[8] == f"row {tensor.worst.row:,}, block {tensor.worst.block:,}"
    assert [float(str(bar["width"])) for bar in page.bars("size")[3:]] == pytest.approx(
        [100 * t.bytes / max(t.bytes for t in report.tensors) for t in report.tensors], abs=0.01
    )
    heights = [float(str(bar["height"])) for bar in page.bars("error")[:3]]
    errors = np.array([layer.error for layer in report.layers])
    assert np.array(heights) / max(heights) == pytest.approx(errors / errors.max(), abs=0.01)


def test_the_page_needs_nothing_else(report: QuantizeReport) -> None:
    page = Reader(render_page(report, "toy.gguf"))
    used = {tag for tag, _ in page.elements}
    assert used & LOADING == {"meta"}  # of its charset
    for _, attributes in page.elements:
        assert not {"src", "href", "xlink:href", "onload", "onclick"} & set(attributes)
    assert "url(" not in page.text
    assert "@import" not in page.text


def test_names_are_not_markup(report: QuantizeReport) -> None:
    strange = "<script>alert('x')</script>&amp;\"</style>"
    tensors = (replace(report.tensors[1], name=strange, fallback_from=strange), *report.tensors[2:])
    layers = report.layers
    odd = replace(report, recipe=strange, tensors=tensors, layers=layers, notes=(strange,))
    page = Reader(render_page(odd, strange))
    assert "script" not in {tag for tag, _ in page.elements}
    assert page.text.count(strange) >= 5


def test_a_dry_run_has_sizes_alone(report: QuantizeReport, tmp_path: Path) -> None:
    dry = quantize(tmp_path / "toy.gguf", None, type="Q4_K_M", dry_run=True)
    page = Reader(render_page(dry, "toy.gguf"))
    assert not page.bars("error")
    assert len(page.bars("size")) == len(dry.layers) + len(dry.tensors)
    assert "Would be" in page.text
    assert "RMSE" not in page.text


def test_an_empty_model_has_a_page(report: QuantizeReport) -> None:
    nothing = replace(report, tensors=(), layers=(), bytes=0, weights=0)
    assert "0 tensors" in Reader(render_page(nothing, "none.gguf")).text
