"""The two innermost loops over 16-bit codes, as LLVM vectors.

numba widens 16-bit numbers to 64 bits and makes no vectors of them; LLVM fits these to the
processor at hand. Arguments are addresses.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 32  # codes in a vector
FULL = 65535  # the code of similarity 1
ABREAST = 8  # rows that are read side by side

_I16, _I32, _I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
_CODES, _PAIRS = ir.VectorType(_I16, LANES), ir.VectorType(_I32, LANES // 2)


def _constant(value: int) -> Any:
    return ir.Constant(_PAIRS, [value] * (LANES // 2))


def _load(builder: Any, kind: Any, address: Any) -> Any:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=2)


def _store(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=2)


def _element(builder: Any, kind: Any, address: Any, number: int) -> Any:
    size = kind.width // 8
    at = builder.add(address, ir.Constant(_I64, number * size))
    return builder.load(builder.inttoptr(at, kind.as_pointer()), align=size)


def _spread(builder: Any, scalar: Any) -> Any:
    """The same code in every lane."""
    one = builder.insert_element(ir.Constant(_CODES, ir.Undefined), scalar, ir.Constant(_I32, 0))
    zeros = ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES)
    return builder.shuffle_vector(one, ir.Constant(_CODES, ir.Undefined), zeros)


def _clamped(builder: Any, codes: Any, lo: Any, width: Any) -> Any:
    """min(max(code - lo, 0), width) in every lane, seen as 16 pairs of codes."""
    module, two = builder.module, ir.FunctionType(_CODES, [_CODES, _CODES])
    less = cgutils.get_or_insert_function(module, two, f"llvm.usub.sat.v{LANES}i16")
    least = cgutils.get_or_insert_function(module, two, f"llvm.umin.v{LANES}i16")
    inside = builder.call(least, [builder.call(less, [codes, lo]), width])
    return builder.bitcast(inside, _PAIRS)


def _prefetch(builder: Any, address: Any) -> None:
    """Ask for a cache line that is read soon, into the second cache."""
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
    ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    read, second, data = (ir.Constant(_I32, value) for value in (0, 2, 1))
    builder.call(ask, [builder.inttoptr(address, byte), read, second, data])


@intrinsic
def _sum_rows(typingctx, rows, lo, width, columns, out):
    """Write 16 partial sums of each of eight rows; the arguments are addresses."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, lo, width, columns, out = arguments
        starts = [_element(builder, _I64, rows, i) for i in range(ABREAST)]
        # Both codes of a pair, and the upper one alone: their difference is the lower one.
        both = [cgutils.alloca_once_value(builder, _constant(0)) for _ in starts]
        upper = [cgutils.alloca_once_value(builder, _constant(0)) for _ in starts]
        step = ir.Constant(_I64, LANES)
        with cgutils.for_range_slice(
            builder, ir.Constant(_I64, 0), columns, step, intp=_I64, inc=True
        ) as (column, _):
            offset = builder.shl(column, ir.Constant(_I64, 1))
            floor = _load(builder, _CODES, builder.add(lo, offset))
            room = _load(builder, _CODES, builder.add(width, offset))
            for i, start in enumerate(starts):
                codes = _load(builder, _CODES, builder.add(start, offset))
                pair = _clamped(builder, codes, floor, room)
                builder.store(builder.add(builder.load(both[i]), pair), both[i])
                high = builder.lshr(pair, _constant(16))
                builder.store(builder.add(builder.load(upper[i]), high), upper[i])
        for i in range(ABREAST):
            high = builder.load(upper[i])
            low = builder.sub(builder.load(both[i]), builder.shl(high, _constant(16)))
            size = 4 * LANES // 2
            for part, value in enumerate((low, high)):
                at = ir.Constant(_I64, (2 * i + part) * size)
                _store(builder, value, builder.add(out, at))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64, types.int64), codegen


@intrinsic
def _add_group(typingctx, rows, bounds, start, stop, sign, gains):
    """Add to the gains of the columns start..stop what eight rows give; a sign of -1 subtracts."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        rows, bounds, start, stop, sign, gains = arguments
        starts = [_element(builder, _I64, rows, i) for i in range(ABREAST)]
        soon = [_element(builder, _I64, rows, ABREAST + i) for i in range(ABREAST)]
        limits = [
            [_spread(builder, _element(builder, _I16, bounds, 2 * i + j)) for j in range(2)]
            for i in range(ABREAST)
        ]
        # All ones for -1, else 0: (x ^ mask) - mask is -x or x.
        ones = builder.trunc(builder.ashr(sign, ir.Constant(_I64, 63)), _I16)
        mask = builder.bitcast(_spread(builder, ones), _PAIRS)
        step = ir.Constant(_I64, LANES)
        with cgutils.for_range_slice(builder, start, stop, step, intp=_I64, inc=True) as (c, _):
            offset = builder.shl(c, ir.Constant(_I64, 1))
            both = upper = _constant(0)
            for row in soon:  # rows lie far apart, and pieces of them are short
                _prefetch(builder, builder.add(row, offset))
            for row, limit in zip(starts, limits, strict=True):
                codes = _load(builder, _CODES, builder.add(row, offset))
                given = _clamped(builder, codes, *limit)
                both = builder.add(both, given)
                upper = builder.add(upper, builder.lshr(given, _constant(16)))
            low = builder.sub(both, builder.shl(upper, _constant(16)))
            at = builder.add(gains, builder.shl(c, ir.Constant(_I64, 2)))
            for part, value in enumerate((low, upper)):
                place = builder.add(at, ir.Constant(_I64, 2 * LANES * part))
                signed = builder.sub(builder.xor(value, mask), mask)
                _store(builder, builder.add(_load(builder, _PAIRS, place), signed), place)
        return context.get_dummy_value()

    i64 = types.int64
    return types.void(i64, i64, i64, i64, i64, i64), codegen


# numba adds the first argument itself, which type checkers do not know.
sum_rows: Any = _sum_rows
add_group: Any = _add_group
