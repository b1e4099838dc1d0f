"""The one spelling of plain data: sorted keys, no NaN, no NUL. Equal data has equal bytes."""

import json
from typing import Any

_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
).encode


def canonical(value: Any) -> str:
    """The canonical JSON of plain data; whatever JSON cannot say is a TypeError or ValueError."""
    return _encode(value)
