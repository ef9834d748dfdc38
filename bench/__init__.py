"""Speed: ratios in one interleaved run, never an absolute claim."""
