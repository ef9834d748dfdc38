"""The process that imports once and is forked for every run of a sweep."""

from __future__ import annotations

if __name__ == "__main__":
    from shasam.commands.warm import main

    main()
