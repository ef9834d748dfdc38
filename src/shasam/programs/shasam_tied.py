"""Run a shasam command that exits when its parent process does (``shasam_tied``).

Whoever starts it keeps the other end of its standard input open. The system closes that end when
the starter ends, also where it was killed; then this process is asked to stop, as by SIGTERM, so
that a run saves its checkpoint.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

PATIENCE = 60.0  # seconds to save a checkpoint, before the process is ended without one


def _follow() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    os._exit(128 + signal.SIGTERM)


def main() -> None:
    """Run the command of this process's arguments."""
    threading.Thread(target=_follow, daemon=True).start()
    from shasam.cli import main as run_command

    run_command()


if __name__ == "__main__":
    main()
