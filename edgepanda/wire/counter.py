"""A number that counts once: the counters that requests carry against replay. Pure."""

from __future__ import annotations

WINDOW = 1024
MAX_VALUE = 2**53 - 1  # what every JSON implementation carries exactly

_MASK = (1 << WINDOW) - 1


def check_counter(highest: int, window: int, value: int) -> tuple[bool, int, int]:
    """Whether `value` counts, and the highest value and window after it; both are unchanged where it does not.

    Bit n of the window stands for the value `highest - n`. Values are 1 to 2^53 - 1; nothing seen yet is (0, 0).
    """
    if not 1 <= value <= MAX_VALUE:
        return False, highest, window
    if value > highest:
        shift = value - highest
        moved = (window << shift) & _MASK if shift < WINDOW else 0
        return True, value, moved | 1
    bit = 1 << (highest - value) if highest - value < WINDOW else 0
    if not bit or window & bit:
        return False, highest, window
    return True, highest, window | bit
