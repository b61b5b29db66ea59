"""Model file -> quantized and tuned, in one go; the file appears when both are done."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from edgequant.formats import Effort
from edgequant.gguf.destination import check_output
from edgequant.progress import SILENT, Progress
from edgequant.stages.quantize import quantize
from edgequant.stages.quantize_plan import Wish
from edgequant.stages.quantize_report import QuantizeReport
from edgequant.stages.tune import TuneReport, tune

_BEFORE = "The errors are those of the levels before tuning, each weight rounded on its own."


def quantize_tuned(
    model: Path,
    output: Path,
    *,
    type: str | Wish,  # noqa: A002 -- the option's name
    texts: Sequence[Path] = (),
    imatrix: Path | None = None,
    effort: Effort = Effort.DEFAULT,
    threads: int | None = None,
    force: bool = False,
    progress: Progress = SILENT,
) -> tuple[QuantizeReport, TuneReport]:
    """Quantize as `quantize` does, into a file beside the output, and tune that as `tune` does.

    Args:
        model: as of `quantize`; the reference of tuning.
        output: where to write.
        type: as of `quantize`.
        texts: to tune with, as of `tune`.
        imatrix: as of `quantize`.
        effort: likewise.
        threads: likewise.
        force: replace the output.
        progress: is told of both.

    Raises:
        EdgequantError: what either raises.
    """
    inputs = [path for path in (model, imatrix, *texts) if path is not None]
    check_output(output, force=force, inputs=inputs)
    with TemporaryDirectory(dir=output.parent, prefix=".edgequant-") as folder:
        untuned = Path(folder) / output.name
        report = quantize(
            model, untuned, type=type, imatrix=imatrix, effort=effort, threads=threads,
            progress=progress,
        )  # fmt: skip
        tuning = tune(untuned, output, reference=model, texts=texts, force=force, progress=progress)
    report = replace(report, files=(str(output),), notes=(*report.notes, _BEFORE))
    return replace(report, seconds=report.seconds + tuning.seconds), tuning
