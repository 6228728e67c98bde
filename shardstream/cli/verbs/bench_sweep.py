"""What ``shardstream bench URL --sweep`` prints and draws."""

from __future__ import annotations

from html import escape
from pathlib import Path

from shardstream import diagnose
from shardstream.cli.report import plural, print_row, stdout
from shardstream.errors import UsageError
from shardstream.storage.local.output_files import write_file

_WIDTH, _ROW, _LEFT, _RIGHT = 760, 26, 330, 110  # of the figure, in pixels


def print_sweep(report: diagnose.SweepReport, url: str) -> None:
    """The tables, the best setting as Python, and the next command."""
    out = stdout()
    crop = "" if report.crop is None else f", images as random crops of {report.crop}"
    out.print(f"{'data set':<18}{url}")
    out.print(f"{'measured':<18}{plural(report.samples, 'sample')} here, {plural(report.cores, 'core')}{crop}")
    out.print(f"\n{'one thread':<18}{'samples/s':>10}")
    for stage in report.stages:
        print_row(f"{stage.name:<18}{_rate(stage.samples_per_second):>10}", stage.note, 30)
    out.print(f"\n{'workers':<9}{'batch':>7}{'prefetch':>10}{'samples/s':>11}  waits for")
    for trial in report.trials:
        ahead = "-" if trial.prefetch_factor is None else str(trial.prefetch_factor)
        mark = "  <- best" if trial == report.best else ""
        rate = _rate(trial.samples_per_second)
        out.print(f"{trial.workers:<9}{trial.batch_size:>7}{ahead:>10}{rate:>11}  {trial.limit}{mark}")
    out.print(f"\n{'would gain':<18}{'before':>10}{'after':>10}{'times':>7}")
    for change in report.changes:
        times = "-" if change.ratio is None else f"{change.ratio:.2f}"
        unsure = "; rounds disagree" if change.ratio is not None and not change.sure else ""
        speeds = f"{_rate(change.before):>10}{_rate(change.after):>10}"
        print_row(f"{change.name:<18}{speeds}{times:>7}", f"{change.note}{unsure}", 47)
    out.print(f"\n{report.line}")
    out.print(f"next: shardstream bench {url} --workers {report.best.workers} --batch-size {report.best.batch_size}")


def plot_sweep(report: diagnose.SweepReport, path: Path) -> None:
    """Write the trials as bars into an SVG file.

    Raises:
        UsageError: The file cannot be written.
    """
    most = max(trial.samples_per_second for trial in report.trials)
    rows = [
        f'<text x="12" y="24" font-size="15">{escape(report.url)}</text>',
        '<text x="12" y="44" fill="#777">samples a second by setting of the loader</text>',
    ]
    for number, trial in enumerate(report.trials):
        top = 60 + number * _ROW
        long = (_WIDTH - _LEFT - _RIGHT) * trial.samples_per_second / most
        colour = "#1f7a4d" if trial == report.best else "#8fb8a4"
        ahead = "" if trial.prefetch_factor is None else f", prefetch_factor {trial.prefetch_factor}"
        name = f"{plural(trial.workers, 'worker')}, batches of {trial.batch_size}{ahead}"
        rows += [
            f'<text x="{_LEFT - 10}" y="{top + 15}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{_LEFT}" y="{top}" width="{long:.1f}" height="{_ROW - 6}" fill="{colour}"/>',
            f'<text x="{_LEFT + long + 8:.1f}" y="{top + 15}">{_rate(trial.samples_per_second)}</text>',
        ]
    height = 60 + len(report.trials) * _ROW + 12
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="white"/>'
    )
    try:
        write_file(path, "\n".join([head, *rows, "</svg>", ""]).encode())
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", hint="give another file to --plot") from error


def _rate(speed: float | None) -> str:
    return "-" if speed is None else f"{speed:,.0f}"
