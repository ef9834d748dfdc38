"""Names for things: ``@register("fscl", kind="method")`` and ``lookup("method", "fscl")``.

A name that is not known is answered with the nearest one. Packages outside ours add theirs through
the entry-point group ``shasam.<kind>s`` (``shasam.methods``, ``shasam.sources``, ...).
"""

from __future__ import annotations

import ast
import difflib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from shasam.errors import ShasamWarning, SpecError

T = TypeVar("T")

# what is trained if no method is named: the one that validation recommends over all settings
DEFAULT_METHOD = "shasam-random"
# kind -> the package whose import registers the built-in entries
_HOMES = {
    "method": "shasam.methods",
    "miner": "shasam.mining",
    "source": "shasam.data",
    "encoder": "shasam.models",
    "metric": "shasam.metrics.catalogue",
}
_ENTRIES: dict[str, dict[str, Any]] = {}
_BROKEN: dict[tuple[str, str], str] = {}  # plugins that could not be loaded, and why


def register(name: str, *, kind: str) -> Callable[[T], T]:
    """Register a class or function under a name (a decorator).

    Parameters
    ----------
    name
        The name in specifications and flags.
    kind
        "method", "encoder", "miner" or "source".

    Returns
    -------
    Callable
        The decorator, which returns its argument unchanged.

    Examples
    --------
    >>> @register("nothing", kind="miner")
    ... class Nothing: ...
    >>> lookup("miner", "nothing").__name__
    'Nothing'
    """

    def decorate(entry: T) -> T:
        known = _ENTRIES.setdefault(kind, {})
        if name in known and known[name] is not entry:
            raise SpecError(f"{kind} {name!r} is registered twice; choose another name")
        known[name] = entry
        return entry

    return decorate


def names(kind: str) -> list[str]:
    """Return all known names of a kind, sorted."""
    _load(kind)
    return sorted(_ENTRIES.get(kind, {}))


def entries(kind: str, *, look: bool = True) -> dict[str, Any]:
    """Return all entries of a kind by name, in the order in which they were registered.

    Without ``look``, those that are known already: looking for plugins imports them.
    """
    if look:
        _load(kind)
    return dict(_ENTRIES.get(kind, {}))


def lookup(kind: str, name: str) -> Any:
    """Return the entry, or an error with the nearest known name."""
    _load(kind)
    known = _ENTRIES.get(kind, {})
    if name not in known:
        if (kind, name) in _BROKEN:
            raise SpecError(f"{kind} {name!r} cannot be used: {_BROKEN[kind, name]}")
        raise SpecError(f"there is no {kind} {name!r}{did_you_mean(name, known)}")
    return known[name]


def described(kind: str, words: Sequence[str]) -> dict[str, list[str]]:
    """Read what classes of a kind say of themselves, by name: their attributes ``words`` as texts.

    The built-in classes are read and not imported, because importing methods means importing torch;
    plugins are imported.
    """
    home = find_spec(_HOMES[kind])
    folders = [] if home is None else list(home.submodule_search_locations or ())
    files = [file for folder in folders for file in sorted(Path(folder).glob("*.py"))]
    classes = {
        node.name: node
        for file in files
        for node in ast.parse(file.read_bytes()).body
        if isinstance(node, ast.ClassDef)
    }
    found = {
        name: [_attribute(node, word, classes) for word in words]
        for node in classes.values()
        for name in _registered_as(node, kind)
    }
    if not found or _plugins(f"shasam.{kind}s", tuple(sys.path)):  # no sources, or more than them
        found = {n: [_text(getattr(lookup(kind, n), word)) for word in words] for n in names(kind)}
    return dict(sorted(found.items()))


def _text(value: Any) -> str:
    """Return an attribute as a text; of a dial, the option that it turns."""
    return str(getattr(value, "option", value) or "")


def _registered_as(node: ast.ClassDef, kind: str) -> Iterator[str]:
    """Yield the names in the decorators ``@register(name, kind=kind)`` of a class."""
    for made in node.decorator_list:
        if not isinstance(made, ast.Call) or ast.unparse(made.func) != "register":
            continue
        if [ast.literal_eval(word.value) for word in made.keywords] == [kind]:
            yield ast.literal_eval(made.args[0])


def _attribute(node: ast.ClassDef, word: str, classes: dict[str, ast.ClassDef]) -> str:
    """Return the text that a class or its first base with one gives to an attribute."""
    for line in node.body:
        if isinstance(line, ast.Assign) and [ast.unparse(t) for t in line.targets] == [word]:
            value = line.value
            if isinstance(value, ast.Call) and value.args:  # Dial("strength", …): what it turns
                value = value.args[0]
            return str(ast.literal_eval(value) or "")
    bases = [
        classes[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in classes
    ]
    return next((text for text in (_attribute(b, word, classes) for b in bases) if text), "")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the tail of an error message: the nearest names, or all of them."""
    known = list(known)
    begun = [full for full in known if name and full.startswith(name)]  # eo: eo_mean, eo_max
    near = list(dict.fromkeys([*begun, *difflib.get_close_matches(name, known, n=3, cutoff=0.5)]))
    near = near[:3]
    if near:
        return f"; did you mean {' or '.join(map(repr, near))}?"
    return f"; there are: {', '.join(sorted(known))}" if known else ""


@cache
def _plugins(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group; looking through all installed packages takes 15 ms."""
    return tuple(entry_points(group=group))


def _load(kind: str) -> None:
    if kind in _HOMES:
        import_module(_HOMES[kind])
    for entry in _plugins(f"shasam.{kind}s", tuple(sys.path)):
        if entry.name in _ENTRIES.get(kind, {}) or (kind, entry.name) in _BROKEN:
            continue
        try:
            register(entry.name, kind=kind)(entry.load())
        except Exception as error:  # a plugin is foreign code: it may raise anything
            why = f"loading {entry.value} failed with {type(error).__name__}: {error}"
            _BROKEN[kind, entry.name] = why
            warnings.warn(
                f"the plugin {entry.name!r} of the group {entry.group!r} is left out: {why}. "
                "Repair or uninstall the package "
                f"{entry.dist.name if entry.dist else 'it is from'}",
                ShasamWarning,
                stacklevel=3,
            )
