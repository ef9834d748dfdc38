"""The command line of shasam."""

from __future__ import annotations

if __name__ == "__main__":
    from shasam.cli import main

    main()
