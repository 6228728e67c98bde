"""Versions, and the packages that make decoding fast."""

from __future__ import annotations

import importlib
import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from shardstream.diagnose.doctor.finding import Finding
from shardstream.extras import NEWEST_TESTED, install_command
from shardstream.images.backends import simplejpeg

_NUMBER = re.compile(r"\d+(?:\.\d+)*")
_FLOOR = re.compile(r"([A-Za-z0-9._-]+)\s*>=\s*([0-9.]+)$")
_SIMD_OFF = "JSIMD_FORCENONE"  # libjpeg-turbo's switch
_SIMD_TEXT = b"JSIMD_FORCE"  # stands in libjpeg-turbo where it was built with SIMD
_OPENCV = ("opencv-python", "opencv-python-headless", "opencv-contrib-python", "opencv-contrib-python-headless")


@dataclass(frozen=True, slots=True)
class JpegLibrary:
    """The libjpeg-turbo of simplejpeg.

    Attributes:
        version: Of simplejpeg.
        simd: Whether it was built with SIMD; ``None`` where that cannot be seen.
        switched_off: Whether the environment turns SIMD off.
    """

    version: str
    simd: bool | None
    switched_off: bool


def package_findings() -> Iterator[Finding]:
    """Look at what is installed. Imports torch."""
    yield versions(installed(("shardstream", "torch", "numpy")), floors(), NEWEST_TESTED, broken_torch())
    yield pillow(installed(("Pillow", "Pillow-SIMD")))
    yield jpeg(jpeg_library(os.environ))
    yield numba(installed(("numba",)).get("numba"))
    yield opencv(installed(_OPENCV))


# --------------------------------------------------------------------------------------------------------------- facts


def installed(names: Iterable[str]) -> dict[str, str]:
    """The versions of those packages that are installed."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def floors() -> dict[str, str]:
    """The oldest version of each package that this one needs, Python among them."""
    about = metadata.metadata("shardstream")
    texts = [text for text in about.get_all("Requires-Dist") or () if ";" not in text]
    found = {match[1]: match[2] for text in texts if (match := _FLOOR.match(text))}
    return found | {"Python": str(about["Requires-Python"] or "").removeprefix(">=")}


def broken_torch() -> str:
    """What torch says where it cannot be imported; empty where it can."""
    try:
        importlib.import_module("torch")
    except (ImportError, OSError) as error:
        return str(error).partition("\n")[0]
    return ""


def jpeg_library(environment: Mapping[str, str]) -> JpegLibrary | None:
    """simplejpeg's, as it is installed; ``None`` without simplejpeg."""
    module = simplejpeg.module()
    if module is None:
        return None
    files = [path.read_bytes() for path in Path(str(module.__file__)).parent.glob("*.so")]
    return JpegLibrary(module.__version__, built_with_simd(files), environment.get(_SIMD_OFF) == "1")


def built_with_simd(files: Iterable[bytes]) -> bool | None:
    """Whether the libjpeg-turbo in one of these libraries was built with SIMD; ``None`` where none holds it."""
    held = [data for data in files if b"libjpeg-turbo" in data]
    return any(_SIMD_TEXT in data for data in held) if held else None


# -------------------------------------------------------------------------------------------------------------- checks


def versions(
    found: Mapping[str, str], least: Mapping[str, str], newest: Mapping[str, str], torch_error: str = ""
) -> Finding:
    """Whether what is needed is there, new enough, and no newer than what the tests ran with."""
    all_of = {**found, "Python": platform.python_version()}
    fact = ", ".join(f"{name} {version}" for name, version in all_of.items())
    lacking = [name for name in ("torch", "numpy") if name not in found]
    old = [name for name, floor in least.items() if name in all_of and _numbers(all_of[name]) < _numbers(floor)]
    if "Python" in old:
        return Finding("versions", "fail", fact, f"use Python {least['Python']} or newer")
    if lacking or old:
        wanted = " ".join(f'"{name}>={least.get(name, "0")}"' for name in (*lacking, *old))
        return Finding("versions", "fail", fact, f"pip install {wanted}")
    if torch_error:
        fix = "pip install --force-reinstall torch"
        return Finding("versions", "fail", f"torch cannot be imported: {torch_error}", fix)
    untested = {name: last for name, last in newest.items() if _numbers(all_of.get(name, ""))[:2] > _numbers(last)}
    if untested:
        which = " and ".join(f"{name} {last}" for name, last in untested.items())
        fix = f"if something fails, take the newest tested: {which}"
        return Finding("versions", "warn", f"{fact}; newer than the tested versions", fix)
    return Finding("versions", "ok", fact)


def _numbers(version: str) -> tuple[int, ...]:
    match = _NUMBER.match(version)
    return tuple(map(int, match[0].split("."))) if match else ()


def pillow(found: Mapping[str, str]) -> Finding:
    """Pillow, which decodes all that is not a plain JPEG, or Pillow-SIMD in its place."""
    names = " and ".join(f"{name} {version}" for name, version in found.items())
    if len(found) > 1:
        fix = "pip uninstall -y Pillow Pillow-SIMD && pip install Pillow-SIMD"
        return Finding("Pillow", "warn", f"{names} overwrite each other's files", fix)
    if not found:
        fix = install_command("pillow")
        return Finding("Pillow", "warn", "not installed: only JPEG files can be decoded", fix)
    return Finding("Pillow", "ok", names if "Pillow-SIMD" in found else f"{names}, not Pillow-SIMD")


def jpeg(found: JpegLibrary | None) -> Finding:
    """simplejpeg, which decodes JPEG files fast where its libjpeg-turbo has SIMD."""
    if found is None:
        fix = install_command("images")
        return Finding("simplejpeg", "warn", "not installed: Pillow decodes JPEG files, more slowly", fix)
    name = f"simplejpeg {found.version}"
    if found.switched_off:
        return Finding("simplejpeg", "warn", f"{name}; {_SIMD_OFF}=1 turns SIMD off", f"unset {_SIMD_OFF}")
    if found.simd is False:
        fix = "pip install --force-reinstall --only-binary :all: simplejpeg"
        return Finding("simplejpeg", "warn", f"{name}, its libjpeg-turbo has no SIMD: half as fast", fix)
    known = "its libjpeg-turbo has SIMD" if found.simd else "its libjpeg-turbo lies elsewhere"
    return Finding("simplejpeg", "ok", f"{name}, {known}")


def numba(version: str | None) -> Finding:
    """numba, which packing needs to make JPEG files addressable."""
    if version is None:
        fix = install_command("pack")
        return Finding("numba", "warn", "not installed: packing cannot make JPEG files addressable", fix)
    return Finding("numba", "ok", f"numba {version}")


def opencv(found: Mapping[str, str]) -> Finding:
    """Packages of OpenCV, all of which bring the same files."""
    names = ", ".join(f"{name} {version}" for name, version in found.items())
    if len(found) > 1:
        kept = sorted(found, key=lambda name: ("contrib" in name, "headless" in name))[-1]
        fix = f"pip uninstall -y {' '.join(found)} && pip install {kept}"
        return Finding("OpenCV", "warn", f"several packages overwrite each other's files: {names}", fix)
    return Finding("OpenCV", "ok", names or "not installed, and not needed")
