"""The worst channels as horizontal bars, linear from zero: one dead channel among hundreds stands out by its length."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from parityscope.report import svg

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WIDTH, _ROW, _TOP, _BOTTOM = 540.0, 20.0, 4.0, 6.0
_LEFT, _RIGHT = 92.0, 74.0
_MOST = 12


def draw_channel_bars(identity: str, name: str, channels: Sequence[Mapping[str, Any]]) -> str:
    """At most twelve channels in the order given (worst first); empty when there are none."""
    shown = channels[:_MOST]
    if not shown:
        return ""
    finite = [channel["value"] for channel in shown if math.isfinite(channel["value"])]
    x = svg.linear_scale(0.0, max(finite, default=0.0) or 1.0, _LEFT, _WIDTH - _RIGHT)
    body: list[str] = []
    for row, channel in enumerate(shown):
        y = _TOP + row * _ROW
        end = x(channel["value"]) if math.isfinite(channel["value"]) else _WIDTH - _RIGHT
        css = "bar" if math.isfinite(channel["value"]) else "bar nonfinite"
        body.append(svg.svg_text(_LEFT - 8, y + 14, f"channel {channel['index']}", "tick", anchor="end"))
        attributes = {"x": _LEFT, "y": y + 3, "width": max(1.0, end - _LEFT), "height": _ROW - 6, "class": css}
        body.append(svg.svg_element("rect", attributes))
        body.append(svg.svg_text(end + 6, y + 14, channel["text"], "tick value"))
    height = _TOP + _ROW * len(shown) + _BOTTOM
    said = f"Channel {shown[0]['index']} of {name} is the worst with a relative L2 error of {shown[0]['text']}."
    return svg.svg_figure(identity, (_WIDTH, height), "Relative L2 error of the worst channels", said, body)
