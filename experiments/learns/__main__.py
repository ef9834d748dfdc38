"""``python -m experiments.learns``."""

from experiments.learns import main

main()
