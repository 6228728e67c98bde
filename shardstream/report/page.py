"""An overview of a data set as one page that needs nothing but itself."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence

from shardstream.diagnose.draws import Draw
from shardstream.diagnose.overview import Overview, ShownSample
from shardstream.diagnose.shown import ShownValue
from shardstream.diagnose.summaries import FieldSummary, Measured
from shardstream.report import parts
from shardstream.sizes import plural, size

_KEYS = (("← → ↑ ↓", "from sample to sample"), ("Enter", "open"), ("Esc", "close"), ("/", "search"), ("t", "theme"))
_CHECKED = {"compared": "compared", "none": "", "differs": "differs"}
_CAPTION = ("caption", "text", "txt")


def page(found: Overview, draws: Mapping[int, Sequence[Draw]] | None = None) -> str:
    """The page, as HTML: a contact sheet, a page for each sample, what the fields hold, and the shards.

    Args:
        found: What is shown.
        draws: By number of sample, what training gets of it.
    """
    style, script = parts.asset("page.css"), parts.asset("page.js")
    title = f"{plural(found.total, 'sample')} in {plural(found.shards, 'shard')}, {size(found.bytes)}"
    chosen = "those asked for" if found.seed is None else f"spread over all shards, seed {found.seed}"
    keys = "".join(f"<p><kbd>{key}</kbd> {what}</p>" for key, what in _KEYS)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{parts.policy(style, script)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{parts.name(found.url, 120)}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{parts.name(found.url)}</h1>
<p>{title}; {parts.name(found.format)}, version {found.version}, fingerprint {parts.name(found.fingerprint)}</p>
<p class="pale">{plural(len(found.samples), "sample")} shown, {chosen}</p>
<nav hidden><input id="search" type="search" placeholder="key or label" aria-label="search by key or label">
<span id="found" class="pale" role="status"></span><button id="theme" type="button">theme</button>
<button id="keys" type="button">keys</button></nav>
</header>
<main>
<section class="sheet" aria-label="samples">
{"".join(_sample(one) for one in found.samples)}
</section>
{_drawn(found, draws) if draws else ""}<h2>Fields</h2>
<p class="pale">Sizes, numbers and labels are of the {plural(found.counted, "sample")} in
{plural(found.opened, "shard")} that were opened; texts and pictures are of the samples shown.</p>
<div class="scroll"><table class="values"><thead><tr><th>field</th><th>type</th><th>missing</th><th>bytes a value</th>
<th>what it holds</th></tr></thead><tbody>{"".join(_field(one) for one in found.fields)}</tbody></table></div>
<h2>Shards</h2>
{_shards(found)}
</main>
<div id="help" class="help" role="dialog" aria-label="keys" hidden>{keys}</div>
<script>{script}</script>
</body>
</html>
"""


def _sample(sample: ShownSample) -> str:
    words = parts.name(f"{sample.key} {sample.label}".lower(), 1000)
    lines = [f"<span>{parts.name(sample.key, 80)}</span>"]
    if sample.label:
        lines.append(f'<span class="pale">{parts.name(sample.label, 60)}</span>')
    caption = next((one.text for one in sample.values if one.kind == "text" and one.name in _CAPTION), "")
    if caption:
        lines.append(f'<span class="pale">{parts.name(caption, 60)}</span>')
    values = "".join(map(_value, sample.values))
    return f"""<article class="sample" id="s{sample.number}" data-text="{words}">
<a class="tile" href="#s{sample.number}">{_tile(sample)}<span class="caption">{"".join(lines)}</span></a>
<div class="more"><p><a class="close" href="#">back to the sheet</a></p><h2>{parts.name(sample.key)}</h2>
<p>sample {sample.number:,}, {parts.name(sample.shard)}, row {sample.row:,}</p>
<p><code>{parts.name(sample.fetch)}</code></p>
<table class="values"><thead><tr><th>field</th><th>type</th><th>bytes</th><th>value</th><th>offset</th>
<th>checksum</th></tr></thead><tbody>{values}</tbody></table></div></article>
"""


def _drawn(found: Overview, draws: Mapping[int, Sequence[Draw]]) -> str:
    """Each sample as it is stored, with what is cut out of it, and beside it what training gets."""
    rows = []
    for sample in found.samples:
        own = draws.get(sample.number, ())
        stored = next((one for one in sample.values if one.kind == "picture"), None)
        figures = "".join(map(_draw, own))
        if stored is not None and stored.thumbnail is not None:
            small = stored.thumbnail
            over = parts.rectangles([one.crop for one in own if one.crop is not None], small.height, small.width)
            picture = f'<span class="picture stored">{parts.image(small, sample.key)}{over}</span>'
            figures = f"<figure>{picture}<figcaption>as stored</figcaption></figure>{figures}"
        rows.append(f'<h3>{parts.name(sample.key)}</h3><div class="draws">{figures}</div>')
    return f"<h2>As training gets it</h2>{''.join(rows)}"


def _draw(draw: Draw) -> str:
    where = f"epoch {draw.epoch}, step {draw.step}" + (f", rank {draw.rank}" if draw.rank else "")
    where += ", flipped" if draw.flipped else ""
    shown = "" if draw.thumbnail is None else parts.image(draw.thumbnail, where)
    return f"<figure>{shown}<figcaption>{where}<br>{parts.name(draw.text, 160)}</figcaption></figure>"


def _tile(sample: ShownSample) -> str:
    """The picture, with its boxes; without one, the first values in words."""
    shown = next((one for one in sample.values if one.kind == "picture"), None)
    shown = shown or next((one for one in sample.values if one.thumbnail is not None), None)
    if shown is not None and shown.thumbnail is not None:
        small = shown.thumbnail
        boxes = [box for one in sample.values for box in one.boxes] if shown.kind == "picture" else []
        over = parts.rectangles(boxes, small.height, small.width)
        return f'<span class="picture">{parts.image(small, sample.key)}{over}</span>'
    words = "; ".join(f"{one.name} {one.text}" for one in sample.values[:4])
    return f'<span class="picture"><span class="words">{parts.name(words, 200)}</span></span>'


def _value(value: ShownValue) -> str:
    words = parts.text(value.text)
    if value.kind == "damaged":
        words = f'<span class="bad">{words}</span>'
    if value.thumbnail is not None and value.kind != "picture":
        words += parts.image(value.thumbnail, value.name)
    if value.sound is not None:
        source = f"data:{value.sound.media};base64,{base64.b64encode(value.sound.file).decode()}"
        words += f' <audio controls preload="none" src="{source}"></audio>'
    offset = "" if value.offset is None else f"{value.offset:,}"
    checked = _CHECKED[value.checked]
    return (
        f'<tr><td data-name="field">{parts.name(value.name)}</td><td data-name="type">{parts.name(value.type)}</td>'
        f'<td class="number" data-name="bytes">{value.bytes:,}</td><td class="value">{words}</td>'
        f'<td class="number" data-name="offset">{offset}</td><td data-name="checksum">{checked}</td></tr>'
    )


def _field(found: FieldSummary) -> str:
    kind = parts.name(found.type) + (f", {parts.name(found.codec)}" if found.codec != "none" else "")
    sizes = "" if found.bytes is None else _measured(found.bytes, size)
    missing = f"{found.missing:.1%}" if found.missing else "none"
    return (
        f'<tr><td data-name="field">{parts.name(found.name)}</td><td data-name="type">{kind}</td>'
        f'<td data-name="missing">{missing}</td><td class="number" data-name="bytes">{sizes}</td>'
        f"<td>{''.join(_holds(found))}</td></tr>"
    )


def _holds(found: FieldSummary) -> Iterator[str]:
    if found.numbers is not None:
        yield f"<p>{_measured(found.numbers, lambda number: f'{number:.6g}')}</p>"
    if found.distinct > 1:
        more = f", the commonest {len(found.labels)}" if found.distinct > len(found.labels) else ""
        yield f"<p>{found.distinct:,} different{more}</p>{parts.bars(found.labels)}"
    if found.lengths is not None:
        yield f"<p>{_measured(found.lengths, lambda number: f'{number:.0f}')} characters</p>"
    if found.kinds:
        yield f"<p>{', '.join(f'{count:,} {parts.name(kind)}' for kind, count in found.kinds.items())}</p>"
    if found.sizes:
        heights, widths = zip(*found.sizes, strict=True)
        aspects = sorted(width / height for height, width in found.sizes)
        yield f"<p>{min(widths):,} to {max(widths):,} wide, {min(heights):,} to {max(heights):,} high, "
        yield f"width / height {aspects[0]:.2f} to {aspects[-1]:.2f}</p>{parts.scatter(found.sizes)}"


def _measured(found: Measured, shown: Callable[[float], str]) -> str:
    if found.least == found.most:
        return shown(found.least)
    return f"{shown(found.least)} to {shown(found.most)}, mean {shown(found.mean)}"


def _shards(found: Overview) -> str:
    if not found.shards:
        return "<p>none</p>"
    each = (
        "a bar for each"
        if len(found.shard_bytes) == found.shards
        else f"in order, means of {len(found.shard_bytes)} parts"
    )
    lines = []
    for values, what, shown in (
        (found.shard_bytes, "bytes", size),
        (found.shard_samples, "samples", lambda number: f"{number:,.0f}"),
    ):
        mean = (found.bytes if what == "bytes" else found.total) / found.shards
        lines.append(f"<p>{what}: mean {shown(mean)}, {shown(min(values))} to {shown(max(values))} ({each})</p>")
        lines.append(parts.chart(values, f"{what} of shards"))
    return "".join(lines)
