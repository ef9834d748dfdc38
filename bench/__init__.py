"""Speed: ratios in one interleaved run, never an absolute claim."""

import shasam  # noqa: F401  (before torch: it says how threads of OpenMP wait)
