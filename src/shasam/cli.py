"""The command line: one file per command in ``shasam.commands``, loaded when it is called."""

from __future__ import annotations

import sys

from cyclopts import App

import shasam
from shasam.errors import ShasamError

app = App(name="shasam", version=shasam.__version__, help=shasam.__doc__)
app.command("shasam.commands.data:app", name="data")
app.command("shasam.commands.mine:mine", name="mine")
app.command("shasam.commands.audit:audit", name="audit")
app.command("shasam.commands.report:report", name="report")
app.command("shasam.commands.train:train", name="train")
app.command("shasam.commands.evaluate:evaluate", name="evaluate")
app.command("shasam.commands.predict:predict", name="predict")
app.command("shasam.commands.sweep:sweep", name="sweep")
app.command("shasam.commands.compare:compare", name="compare")
app.command("shasam.commands.methods:methods", name="methods")
app.command("shasam.commands.records:app", name="records")


def main() -> None:
    """Run a command; an error that a user can put right is one sentence, not a traceback."""
    try:
        app()
    except ShasamError as error:
        print(f"shasam: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("shasam: stopped", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
