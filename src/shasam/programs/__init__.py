"""Programs that shasam starts in processes of their own, each a file that is run by its path.

``python -m`` and ``python -c`` put the working directory first on the path of imports, where a
``numpy.py`` of somebody else waits to be run; the flag against it exists only since Python 3.11. A
file that is run by its path puts its own folder there: this one, which holds nothing else.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal


def program_words(name: Literal["command", "tied", "warm"]) -> list[str]:
    """Return the words that start a program in an interpreter of its own.

    Its arguments follow them.
    """
    return [sys.executable, str(Path(__file__).parent.resolve() / f"shasam_{name}.py")]
