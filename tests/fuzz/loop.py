"""``make fuzz MINUTES=10``: mutate good inputs and what once failed, and keep what fails now.

The work is done in a child with a limit of memory and of time for each input, so that a crash or a
hang of the child is a finding too. A finding is written to ``tests/fuzz/found/<target>/``; once it
is mended it belongs into ``tests/fuzz/corpus/<target>/``, which the tests replay.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import multiprocessing
import random
import resource
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

HERE = Path(__file__).parent
SECONDS = 20  # for one input, until it counts as a hang
MEMORY = 2 << 30  # bytes beyond what the child has at its start


def corpus() -> dict[str, list[bytes]]:
    """What once failed, by target."""
    folders = sorted(p for p in (HERE / "corpus").iterdir() if p.is_dir())
    return {f.name: [p.read_bytes() for p in sorted(f.iterdir())] for f in folders}


def _hang(number: int, frame: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def work(seed: int, end: float, scratch: str, only: list[str]) -> None:
    """In the child: inputs until the clock says ``end``; what fails is left in the scratch file."""
    from tests.fuzz.mutate import mutated
    from tests.fuzz.targets import seeds, targets

    from shasam.data.decode import BadImage
    from shasam.errors import ShasamError

    warnings.simplefilter("ignore")
    logging.disable()
    good, failed, named = seeds(), corpus(), targets()
    named = {k: v for k, v in named.items() if not only or k in only}
    with open("/proc/self/statm", encoding="ascii") as file:
        virtual = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (virtual + MEMORY, virtual + MEMORY))
    signal.signal(signal.SIGALRM, _hang)
    draws = {name: random.Random(f"{seed}/{name}") for name in named}
    told: set[tuple[str, str]] = set()
    counts, spent = dict.fromkeys(named, 0), dict.fromkeys(named, 0.0)
    while (began := time.time()) < end:
        name = min(spent, key=lambda one: spent[one])  # every target gets the same time
        data = mutated(draws[name], good[name] + failed.get(name, []))
        Path(scratch).write_bytes(name.encode() + b"\n" + data)
        signal.alarm(SECONDS)
        try:
            named[name](data)
        except (ShasamError, BadImage):
            pass
        except BaseException as error:
            signal.alarm(0)
            where = [f for f in traceback.extract_tb(error.__traceback__) if "shasam" in f.filename]
            line = f"{where[-1].filename}:{where[-1].lineno}" if where else "outside"
            if (name, line) not in told:  # one input for each place is enough
                told.add((name, line))
                _keep(name, data, f"{type(error).__name__}: {error} ({line})")
        signal.alarm(0)
        counts[name] += 1
        spent[name] += time.time() - began
    print("inputs", " ".join(f"{k} {v}" for k, v in counts.items()), flush=True)


def _keep(name: str, data: bytes, reason: str) -> None:
    folder = HERE / "found" / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(data).hexdigest()[:12]
    path.write_bytes(data)
    print(f"FOUND {name} {path.name}: {reason[:300]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.loop", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scratch", type=Path, default=Path("/tmp/shasam-fuzz-input"))
    parser.add_argument("--only", nargs="*", default=[])
    asked = parser.parse_args()
    end, seed = time.time() + 60 * asked.minutes, asked.seed
    context = multiprocessing.get_context("spawn")
    while (left := end - time.time()) > 1:
        child = context.Process(target=work, args=(seed, end, str(asked.scratch), asked.only))
        child.start()
        child.join(left + 4 * SECONDS)
        if child.is_alive():
            child.kill()
        child.join()
        if child.exitcode == 1:
            sys.exit("the fuzzing itself failed, see above")
        if child.exitcode != 0:  # it crashed, or hung in C: the last input did it
            name, _, data = asked.scratch.read_bytes().partition(b"\n")
            _keep(name.decode(), data, f"the process ended with {child.exitcode}")
        seed += 1
    found = [p for p in (HERE / "found").rglob("*") if p.is_file()]
    print(f"{len(found)} findings")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
