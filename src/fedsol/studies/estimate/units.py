"""Bandwidths and durations as people write them, and bytes and seconds as people read them."""

import re

from fedsol.errors import InputError

_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
_BANDWIDTH = re.compile(r"(\d+(?:\.\d+)?)\s*([kMG]?)(bit|B)(?:/s)?")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h|d)")


def parse_bandwidth(option: str, text: str) -> float:
    """Bytes per second of `10Mbit`, `1.5 Gbit/s` or `2MB`; k, M and G are powers of 1000."""
    match = _BANDWIDTH.fullmatch(text.strip())
    value = float(match[1]) * _FACTORS[match[2]] / (8 if match[3] == "bit" else 1) if match else 0.0
    if value <= 0:
        raise InputError(f"{option}: {text!r} is not allowed: must be a bandwidth above 0 such as 10Mbit, 1Gbit or 2MB")
    return value


def parse_duration(option: str, text: str) -> float:
    """Seconds of `30s`, `10min`, `1.5h` or `1d`."""
    match = _DURATION.fullmatch(text.strip())
    value = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if value <= 0:
        raise InputError(f"{option}: {text!r} is not allowed: must be a time above 0 such as 30s, 10min, 2h or 1d")
    return value


def show_bytes(count: float) -> str:
    """Three figures and a binary unit."""
    units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while round(count) >= 1000 and len(units) > 1:
        count /= 1024
        del units[0]
    return f"{_three_figures(count)} {units[0]}"


def show_seconds(seconds: float) -> str:
    """Three figures and the unit that suits."""
    for limit, divisor, unit in ((1.0, 1e-3, "ms"), (120.0, 1, "s"), (7200.0, 60, "min"), (172800.0, 3600, "h")):
        if seconds < limit:
            return f"{_three_figures(seconds / divisor)} {unit}"
    return f"{_three_figures(seconds / 86400)} d"


def _three_figures(value: float) -> str:
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"
