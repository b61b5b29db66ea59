"""A report of `quantize` as one page of HTML: no scripts, and nothing that is loaded.

Bars are SVG. What a file says, such as a tensor's name, is escaped.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape

from edgequant.stages.quantize_report import QuantizedLayer, QuantizedTensor, QuantizeReport

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #677285; --line: #dfe3ea; --paper: #fff;
  --size: #3f7fbf; --error: #d1603d; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ef; --soft: #98a2b3; --line: #333b48;
  --paper: #14181f; --size: #5b9bd8; --error: #e57d5a; } }
body { font: 14px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 72rem; margin: 2rem auto; padding: 0 1.5rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .3rem 0; } .soft { color: var(--soft); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(24rem, 1fr)); gap: 2rem; }
figure { margin: 0; } svg { display: block; width: 100%; overflow: visible; }
svg text { font-size: 11px; fill: var(--soft); }
.size { fill: var(--size); } .error { fill: var(--error); } .axis { stroke: var(--line); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; color: var(--soft); font-weight: 500; border-bottom: 1px solid var(--line); }
th, td { padding: .15rem .7rem .15rem 0; white-space: nowrap; }
td.number, th.number { text-align: right; } td.bar { width: 12%; min-width: 4rem; }
tr:hover td { background: color-mix(in srgb, var(--line) 40%, transparent); }
.narrow { width: auto; } .wide { overflow-x: auto; }
"""
_TH = '<th class="number">'  # above a column of numbers
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 480, 150, 70, 18  # of a chart, and where its axes are


def render_page(report: QuantizeReport, title: str) -> str:
    """Return the page as text.

    Args:
        report: of a run, or a dry one, whose page has no errors.
        title: what was quantized.
    """
    heading = f"{escape(title)} in {escape(report.recipe)}"
    errors = not report.dry_run
    body = [
        f"<h1>{heading}</h1>",
        *_summary(report),
        '<h2>By layer</h2><div class="charts">',
        _chart("size", [(_name(n), n.bytes, _size(n.bytes)) for n in report.layers]),
        _chart("error", [(_name(n), n.error or 0, _share(n.error)) for n in report.layers])
        if errors
        else "",
        "</div>",
        *_types(report),
        *(_worst(report.tensors) if errors else ()),
        *_tensors(report),
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{heading}</title>'
        f"<style>{_STYLE}</style></head><body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _summary(report: QuantizeReport) -> Iterator[str]:
    verb = "Would be " if report.dry_run else ""
    yield (
        f"<p>{verb}<b>{_size(report.bytes)}</b> ({_size(report.source_bytes)} before), "
        f"<b>{report.bits_per_weight:.3f}</b> bits per weight, {report.weights:,} weights in "
        f"{len(report.tensors):,} tensors.</p>"
    )
    if not report.dry_run:
        yield (
            f'<p class="soft">{report.seconds:.1f} s on {report.threads} threads. Error is the '
            "share of the sum of squares of the weights, weighed by importance where it is known, "
            "that was lost; RMSE is in the weights' own unit.</p>"
        )
    yield from (f"<p>Note: {escape(note)}</p>" for note in report.notes)


def _chart(kind: str, bars: Sequence[tuple[str, float, str]]) -> str:
    """Draw upright bars, each with its name, its length, and what to call that."""
    if not bars:
        return ""
    most = max(value for _, value, _ in bars) or 1
    longest = max(bars, key=lambda bar: bar[1])[2]
    step = (_WIDTH - _LEFT) / len(bars)
    floor = _HEIGHT - _BOTTOM
    every = -(-len(bars) // 16)  # names below the bars that have room
    drawn = [
        f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH}" y1="{y}" y2="{y}"/>' for y in (8, floor)
    ]
    drawn.append(f'<text x="{_LEFT - 6}" y="12" text-anchor="end">{longest}</text>')
    drawn.append(f'<text x="{_LEFT - 6}" y="{floor}" text-anchor="end">0</text>')
    for number, (name, value, said) in enumerate(bars):
        height = (floor - 8) * value / most
        x = _LEFT + number * step
        drawn.append(
            f'<rect class="{kind}" x="{x + 0.1 * step:.1f}" y="{floor - height:.1f}" '
            f'width="{0.8 * step:.1f}" height="{height:.1f}">'
            f"<title>{escape(name)}: {said}</title></rect>"
        )
        if number % every == 0 or number == len(bars) - 1:
            short = escape(name.removeprefix("layer "))
            middle = x + step / 2
            drawn.append(
                f'<text x="{middle:.1f}" y="{_HEIGHT}" text-anchor="middle">{short}</text>'
            )
    return (
        f"<figure><figcaption>{kind.capitalize()}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(drawn)}</svg></figure>'
    )


def _types(report: QuantizeReport) -> Iterator[str]:
    yield f'<h2>By type</h2><table class="narrow"><tr><th>Type{_TH}Tensors{_TH}Size{_TH}Share</tr>'
    nbytes = Counter[str]()
    for tensor in report.tensors:
        nbytes[tensor.type] += tensor.bytes
    counts = Counter(tensor.type for tensor in report.tensors)
    for name, total in nbytes.most_common():
        yield (
            f'<tr><td>{escape(name)}<td class="number">{counts[name]:,}'
            f'<td class="number">{_size(total)}<td class="number">{total / report.bytes:.1%}</tr>'
        )
    yield "</table>"


def _worst(tensors: Sequence[QuantizedTensor]) -> Iterator[str]:
    """Name the blocks that stand out: those with the largest share of their tensor's error."""
    found = [t for t in tensors if t.worst is not None]
    found.sort(key=lambda t: t.worst.share if t.worst else 0, reverse=True)
    if not found:
        return
    yield (
        '<h2>Blocks that stand out</h2><p class="soft">Of each tensor the block that lost most; '
        "first those with the largest share of their tensor's error.</p>"
        f'<table class="narrow"><tr><th>Tensor{_TH}Row{_TH}Block{_TH}RMSE{_TH}Share of the error'
        "</tr>"
    )
    for tensor in found[:10]:
        worst = tensor.worst
        if worst is not None:
            yield (
                f'<tr><td>{escape(tensor.name)}<td class="number">{worst.row:,}'
                f'<td class="number">{worst.block:,}<td class="number">{worst.rmse:.3g}'
                f'<td class="number">{worst.share:.3%}</tr>'
            )
    yield "</table>"


def _tensors(report: QuantizeReport) -> Iterator[str]:
    largest = max((t.bytes for t in report.tensors), default=1)
    worst = max((t.error or 0 for t in report.tensors), default=0) or 1
    columns = f"<th>Tensor<th>Type{_TH}Size<th>"
    if not report.dry_run:
        columns += f"{_TH}Error<th>{_TH}RMSE{_TH}weighed RMSE<th>Worst block{_TH}its RMSE"
    yield f'<h2>By tensor</h2><div class="wide"><table><tr>{columns}</tr>'
    for tensor in report.tensors:
        kept = f" for {tensor.fallback_from}" if tensor.fallback_from else ""
        cells = [
            f"<td>{escape(tensor.name)}<td>{escape(tensor.type + kept)}",
            f'<td class="number">{_size(tensor.bytes)}',
            f'<td class="bar">{_bar("size", tensor.bytes / largest)}',
        ]
        if not report.dry_run:
            cells += _errors(tensor, worst)
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</table></div>"


def _errors(tensor: QuantizedTensor, most: float) -> Iterator[str]:
    yield f'<td class="number">{_share(tensor.error)}'
    yield f'<td class="bar">{_bar("error", (tensor.error or 0) / most)}'
    yield f'<td class="number">{_number(tensor.rmse)}<td class="number">'
    yield _number(tensor.weighted_rmse)
    if tensor.worst is None:
        yield "<td><td>"
    else:
        yield f"<td>row {tensor.worst.row:,}, block {tensor.worst.block:,}"
        yield f'<td class="number">{_number(tensor.worst.rmse)}'


def _bar(kind: str, length: float) -> str:
    return (
        '<svg viewBox="0 0 100 10" height="10" preserveAspectRatio="none">'
        f'<rect class="{kind}" width="{100 * length:.2f}" height="10"/></svg>'
    )


def _name(layer: QuantizedLayer) -> str:
    return "other" if layer.layer is None else f"layer {layer.layer}"


def _size(nbytes: int) -> str:
    for power, unit in ((30, "GiB"), (20, "MiB")):
        if nbytes >= 2**power:
            return f"{nbytes / 2**power:,.2f} {unit}"
    return f"{nbytes / 2**10:,.1f} KiB"


def _share(error: float | None) -> str:
    return "" if not error else f"{error:.3%}"


def _number(value: float | None) -> str:
    return "" if not value else f"{value:.3g}"
