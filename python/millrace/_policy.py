"""The policy of a stream: the choice of frames when frames come faster than answers."""

from __future__ import annotations

import math
from typing import Any, Mapping

from ._client_errors import invalid


class Policy:
    """The choice of frames when frames come faster than answers: mode "latest" or "every". "" and 0 = the default of
    the model.

    max_age, deadline  seconds
    max_fps  frames per second
    window   the most frames at the server
    """

    __slots__ = ("mode", "max_age", "deadline", "max_fps", "window")

    def __init__(
        self, mode: str = "", max_age: float = 0, deadline: float = 0, max_fps: float = 0, window: int = 0
    ) -> None:
        if mode not in ("", "latest", "every"):
            raise invalid("policy", f'is {mode!r}: want "latest" or "every"')
        self.mode = mode
        self.max_age = number(max_age, "max_age", "seconds")
        self.deadline = number(deadline, "deadline", "seconds")
        self.max_fps = number(max_fps, "max_fps", "frames per second")
        if isinstance(window, bool) or not isinstance(window, int) or window < 0:
            raise invalid("window", f"is {window!r}: want a number of frames")
        self.window = window

    def members(self, all_of_them: bool = True) -> dict:
        """The message's member `policy`."""
        m = {
            "mode": self.mode,
            "max_age_ms": ms(self.max_age),
            "deadline_ms": ms(self.deadline),
            "max_fps": self.max_fps,
            "window": self.window,
        }
        return m if all_of_them else {k: v for k, v in m.items() if v}

    @classmethod
    def of(cls, m: Mapping) -> Policy:
        """The policy of a message."""
        return cls(
            m.get("mode", ""),
            m.get("max_age_ms", 0) / 1000,
            m.get("deadline_ms", 0) / 1000,
            m.get("max_fps", 0),
            m.get("window", 0),
        )

    def changed(self, changes: Mapping) -> Policy:
        """The policy with changes of update."""
        now = {name: getattr(self, name) for name in self.__slots__}
        return Policy(**{**now, **{k: v for k, v in changes.items() if v is not None}})

    def __repr__(self) -> str:
        return f"Policy({', '.join(f'{n}={getattr(self, n)!r}' for n in self.__slots__)})"


def number(value: Any, field: str, unit: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise invalid(field, f"is {value!r}: want {unit}, 0 or more")
    return value


def ms(value: float) -> int:
    return math.ceil(value * 1000 - 1e-6)  # up, so that a short time does not become 0
