"""The command line of shasam in a process that ends with the one that started it."""

from __future__ import annotations

if __name__ == "__main__":
    from shasam.commands.tied import main

    main()
