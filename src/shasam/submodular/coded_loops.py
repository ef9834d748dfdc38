"""Compiled loops of facility location over a kernel of 16-bit codes.

A similarity in [0, 1] is the code round(65535 · K). A gain Σ_r clamp(K_vr, lo_r, hi_r) - lo_r is
then a sum of whole numbers: it is exact in any order, on any processor and with any number of
threads, and it can be corrected for the columns that changed instead of being summed anew. With
width_r = hi_r - lo_r one entry is min(max(code - lo, 0), width), two instructions for 32 codes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic


@njit(cache=True, nogil=True, inline="always")
def slot_of(column):
    """Say where a column's gain is kept: of 32 columns the even ones come first, then the odd."""
    return column - column % LANES + (column % 2) * (LANES // 2) + (column % LANES) // 2


@njit(cache=True, nogil=True)
def sum_some(code_NR, lo_R, width_R, rows, start, stop, out):
    """Set out[c] = Σ_r min(max(code - lo, 0), width) of the rows start..stop of a list."""
    addresses, parts = np.empty(ABREAST, np.int64), np.empty(ABREAST * LANES, np.uint32)
    first, length = code_NR.ctypes.data, code_NR.shape[1]
    for c in range(start, stop, ABREAST):
        for i in range(ABREAST):
            addresses[i] = first + 2 * length * rows[min(c + i, stop - 1)]
        sum_rows(
            addresses.ctypes.data, lo_R.ctypes.data, width_R.ctypes.data, length, parts.ctypes.data
        )
        for i in range(min(ABREAST, stop - c)):
            total = 0
            for j in range(LANES):
                total += np.int64(parts[i * LANES + j])
            out[c + i] = total


@njit(cache=True, nogil=True)
def keep_sums(code_NR, lo_R, width_R, rows, gains_R):
    """Put the gains of some rows into the slots of the columns with the same numbers."""
    found = np.empty(len(rows), np.int64)
    sum_some(code_NR, lo_R, width_R, rows, 0, len(rows), found)
    for c in range(len(rows)):
        gains_R[slot_of(rows[c])] = np.uint32(found[c])


@njit(cache=True, nogil=True)
def add_rows(code_NR, rows, bounds, sign, runs, gains_R):
    """Add ±min(max(code - lo, 0), width) of some rows to the gains of all columns in the runs.

    K is symmetric: row r of the kernel says what every candidate gives to the represented row r.
    """
    addresses, some = np.empty(2 * ABREAST, np.int64), np.zeros((ABREAST, 2), np.uint16)
    first, length = code_NR.ctypes.data, code_NR.shape[1]
    for c in range(0, rows.shape[0], ABREAST):
        for i in range(2 * ABREAST):
            at = min(c + i, rows.shape[0] - 1)
            addresses[i] = first + 2 * length * rows[at]
        for i in range(ABREAST):
            at = min(c + i, rows.shape[0] - 1)
            some[i, 0] = bounds[at, 0]
            some[i, 1] = bounds[at, 1] if c + i < rows.shape[0] else 0  # it only fills up
        for run in range(runs.shape[0]):
            add_group(
                addresses.ctypes.data,
                some.ctypes.data,
                runs[run, 0],
                runs[run, 1],
                sign,
                gains_R.ctypes.data,
            )


@njit(cache=True, nogil=True)
def count_changes(lo_R, width_R, kept_lo_R, kept_width_R):
    """Return how many floors and caps are not those that the gains were summed with."""
    count = 0
    for r in range(lo_R.shape[0]):
        lo, kept_lo = np.int32(lo_R[r]), np.int32(kept_lo_R[r])
        count += lo != kept_lo
        count += lo + np.int32(width_R[r]) != kept_lo + np.int32(kept_width_R[r])
    return count


@njit(cache=True, nogil=True)
def changes(old_R, new_R, upward):
    """Return rows whose bound rose, or fell, with the lower of both and the distance."""
    count = 0
    for r in range(len(old_R)):
        count += new_R[r] > old_R[r] if upward else new_R[r] < old_R[r]
    rows, bounds = np.empty(count, np.int64), np.empty((count, 2), np.uint16)
    if count == 0:
        return rows, bounds
    count = 0
    for r in range(len(old_R)):
        low, high = (old_R[r], new_R[r]) if upward else (new_R[r], old_R[r])
        if high > low:
            rows[count], bounds[count, 0], bounds[count, 1] = r, low, high - low
            count += 1
    return rows, bounds


@njit(cache=True, nogil=True)
def bring_up(code_NR, lo_R, width_R, kept_lo_R, kept_width_R, gains_R, runs):
    """Make the gains those of the bounds (lo, width): by what changed, or summed anew.

    A gain is Σ_r min(K_vr, hi_r) - min(K_vr, lo_r): a floor that rises from a to b takes
    min(max(K - a, 0), b - a) away, a cap that rises adds it.
    """
    count = count_changes(lo_R, width_R, kept_lo_R, kept_width_R)
    if count > code_NR.shape[0]:
        for run in range(runs.shape[0]):
            stop = min(runs[run, 1], code_NR.shape[0])
            keep_sums(code_NR, lo_R, width_R, np.arange(runs[run, 0], stop), gains_R)
    elif count:
        old_R, new_R = kept_lo_R.astype(np.int32), lo_R.astype(np.int32)
        for cap in range(2):
            if cap:
                old_R, new_R = old_R + kept_width_R, new_R + width_R
            for upward in (True, False):
                rows, bounds = changes(old_R, new_R, upward)
                if len(rows):
                    sign = 1 if upward == bool(cap) else -1
                    add_rows(code_NR, rows, bounds, sign, runs, gains_R)
    kept_lo_R[:] = lo_R
    kept_width_R[:] = width_R


@njit(cache=True, nogil=True)
def slack_of(lo_R, width_R, kept_lo_R, kept_width_R):
    """Return how much a gain can have grown at most: Σ of how far floors fell and caps rose."""
    total = 0
    for r in range(lo_R.shape[0]):
        lo, kept_lo = np.int64(lo_R[r]), np.int64(kept_lo_R[r])
        total += max(kept_lo - lo, 0)
        total += max(lo + np.int64(width_R[r]) - kept_lo - np.int64(kept_width_R[r]), 0)
    return total


@njit(cache=True, nogil=True)
def raise_codes(code_NR, v, lo_R, width_R):
    """Lift every floor to its similarity with the pick v, at most to its cap."""
    for r in range(lo_R.shape[0]):
        lo, width = np.int64(lo_R[r]), np.int64(width_R[r])
        rise = min(max(np.int64(code_NR[v, r]) - lo, 0), width)
        lo_R[r] = lo + rise
        width_R[r] = width - rise


@njit(cache=True, nogil=True)
def first_highest(bound_C):
    """Return the first position of the largest bound."""
    best = 0
    for c in range(1, bound_C.shape[0]):
        if bound_C[c] > bound_C[best]:
            best = c
    return best


@njit(cache=True, nogil=True)
def renew_highest(code_NR, lo_R, width_R, rows_C, bound_C, fresh_C):
    """Return gains of the eight highest bounds; the largest of them."""
    chosen, held = np.empty(ABREAST, np.int64), np.empty(ABREAST, np.int64)
    count = min(ABREAST, bound_C.shape[0])
    for i in range(count):
        chosen[i] = first_highest(bound_C)
        held[i] = bound_C[chosen[i]]
        bound_C[chosen[i]] = -2
    sums = np.empty(ABREAST, np.int64)
    sum_some(code_NR, lo_R, width_R, rows_C[chosen[:count]], 0, count, sums)
    best = np.int64(-1)
    for i in range(count):
        bound_C[chosen[i]] = -1 if held[i] < 0 else sums[i]  # -1: picked before
        fresh_C[chosen[i]] = True
        best = max(best, bound_C[chosen[i]])
    return best, count


@njit(cache=True, nogil=True)
def renew_open(code_NR, lo_R, width_R, rows_C, bound_C, fresh_C, open_C):
    """Renew those that can still win, eight at a time while their bounds reach the best."""
    waiting, sums = np.empty(ABREAST, np.int64), np.empty(ABREAST, np.int64)
    best = np.int64(-1)
    for c in range(bound_C.shape[0]):
        if fresh_C[c]:
            best = max(best, bound_C[c])
    count, evaluated = 0, 0
    for i in range(open_C.shape[0] + 1):
        if i < open_C.shape[0] and bound_C[open_C[i]] >= best:
            waiting[count] = open_C[i]
            count += 1
        if count == ABREAST or (i == open_C.shape[0] and count > 0):
            sum_some(code_NR, lo_R, width_R, rows_C[waiting[:count]], 0, count, sums)
            for j in range(count):
                bound_C[waiting[j]] = sums[j]
                best = max(best, sums[j])
            evaluated += count
            count = 0
    return evaluated


@njit(cache=True, nogil=True)
def open_positions(bound_C, fresh_C, best):
    """Return what is not renewed yet and could still be the best."""
    count = 0
    for c in range(bound_C.shape[0]):
        count += (not fresh_C[c]) and bound_C[c] >= best
    found, count = np.empty(count, np.int64), 0
    for c in range(bound_C.shape[0]):
        if (not fresh_C[c]) and bound_C[c] >= best:
            found[count] = c
            count += 1
    return found


@njit(cache=True, nogil=True)
def nearer_base(lo_R, width_R, kept_lo_KR, kept_width_KR, valid_K, base, step):
    """Return whose bounds differ less from (lo, width): those of the base or those kept for this
    step.
    """
    changed = count_changes(lo_R, width_R, kept_lo_KR[base], kept_width_KR[base])
    if base != step and valid_K[step] and changed:
        other = count_changes(lo_R, width_R, kept_lo_KR[step], kept_width_KR[step])
        if other < changed:
            return step, other
    return base, changed


@njit(cache=True, nogil=True)
def tighten(bound_C, gains_R, slack, rows_C):
    """Lower bounds: no gain is above a kept one plus what it can have grown; -1 is picked."""
    for c in range(len(rows_C)):
        if bound_C[c] >= 0:
            bound_C[c] = min(bound_C[c], np.int64(gains_R[slot_of(rows_C[c])]) + slack)


@njit(cache=True, nogil=True)
def coded_walk(
    code_NR, lo_R, width_R, kept_lo_KR, kept_width_KR, kept_KR, valid_K, runs, rows_C, k
):
    """Return k greedy picks, as positions in ``rows_C``; ties go to the first.

    Row t of ``kept_KR`` holds the gains that step t of an earlier walk had, under the bounds
    (kept_lo, kept_width); row 0 is there. With the slack they are upper bounds now. In each step
    either those that can still win are summed anew, or all gains are corrected for the bounds that
    have changed since the last step or since the same step of the earlier walk, whichever reads
    less. Corrected gains are kept for the next walk.
    """
    n, covered = code_NR.shape[0], 0
    for run in range(runs.shape[0]):
        covered += runs[run, 1] - runs[run, 0]
    positions, gains = np.empty(k, np.int64), np.empty(k, np.int64)
    bound_C = np.full(len(rows_C), np.iinfo(np.int64).max)
    fresh_C = np.empty(len(rows_C), np.bool_)
    base, last = 0, -1
    read = spent = 0  # in all, and since the gains were last brought up
    for step in range(k):
        base, changed = nearer_base(lo_R, width_R, kept_lo_KR, kept_width_KR, valid_K, base, step)
        if base != last:
            slack = slack_of(lo_R, width_R, kept_lo_KR[base], kept_width_KR[base])
            tighten(bound_C, kept_KR[base], slack, rows_C)
            last, spent = base, 0
        if changed:
            fresh_C[:] = False
            best, count = renew_highest(code_NR, lo_R, width_R, rows_C, bound_C, fresh_C)
            open_C = open_positions(bound_C, fresh_C, best)
            read += count * n
            # Bringing all up pays once it costs no more than looking at single ones has cost.
            price = min(changed, n) * covered
            if spent + len(open_C) * n <= price:
                done = renew_open(code_NR, lo_R, width_R, rows_C, bound_C, fresh_C, open_C)
                spent, read = spent + done * n, read + done * n
            else:
                if base != step:
                    kept_lo_KR[step], kept_width_KR[step] = kept_lo_KR[base], kept_width_KR[base]
                    kept_KR[step], valid_K[step] = kept_KR[base], True
                    base = last = step
                kept = (kept_lo_KR[step], kept_width_KR[step], kept_KR[step])
                bring_up(code_NR, lo_R, width_R, kept[0], kept[1], kept[2], runs)
                spent, read = 0, read + price
                tighten(bound_C, kept_KR[step], 0, rows_C)
        best = first_highest(bound_C)
        positions[step], gains[step] = best, bound_C[best]
        bound_C[best] = -1
        if step + 1 < k:
            raise_codes(code_NR, rows_C[best], lo_R, width_R)
    return positions, gains, read


@njit(cache=True, nogil=True, inline="always")
def code_of(value, scale, shift):
    """Return round(scale · value + shift) within 0..65535; ``shift`` holds the half that rounds."""
    inside = min(max(value * scale + shift, np.float32(0)), np.float32(FULL))
    return np.uint16(np.int32(inside))


@njit(cache=True, nogil=True)
def write_codes(value_TM, scale, shift, code_NR, top, left):
    """Set code = round(scale · value + shift) of a block at (top, left), and of its mirror.

    The product of a matrix with its transpose need not be symmetric in its last digit; the codes
    must be, because a gain is summed by rows and corrected by columns.
    """
    height, width = value_TM.shape
    for i in range(height):
        for j in range(width):
            code_NR[top + i, left + j] = code_of(value_TM[i, j], scale, shift)
    for ib in range(0, height, LANES):
        for jb in range(0, width, LANES):
            for j in range(jb, min(jb + LANES, width)):
                stop = min(ib + LANES, height)
                if left + j >= top:
                    stop = min(stop, left + j - top)  # of a block on the diagonal the upper half
                for i in range(ib, stop):
                    code_NR[left + j, top + i] = code_NR[top + i, left + j]


@njit(cache=True, nogil=True)
def encode(value_MN, scale, shift, code_MR):
    """Set code = round(scale · value + shift) in the first columns."""
    for i in range(value_MN.shape[0]):
        for j in range(value_MN.shape[1]):
            code_MR[i, j] = code_of(value_MN[i, j], scale, shift)


@njit(cache=True, nogil=True)
def write_columns(code_MR, rows_M, code_NR):
    """Put new rows into the kernel, and their mirror into its columns."""
    for j in range(rows_M.shape[0]):
        for i in range(j):
            code_MR[j, rows_M[i]] = code_MR[i, rows_M[j]]
    for u in range(code_NR.shape[0]):
        for j in range(rows_M.shape[0]):
            code_NR[u, rows_M[j]] = code_MR[j, u]
    for j in range(rows_M.shape[0]):
        code_NR[rows_M[j], :] = code_MR[j, :]


# -------------------------------------------------------------------------------------------------
# The two innermost loops over 16-bit codes, as LLVM vectors.
#
# numba widens 16-bit numbers to 64 bits and makes no vectors of them; LLVM fits these to the
# processor at hand. Arguments are addresses.
# -------------------------------------------------------------------------------------------------

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
    """Return the same code in every lane."""
    one = builder.insert_element(ir.Constant(_CODES, ir.Undefined), scalar, ir.Constant(_I32, 0))
    zeros = ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES)
    return builder.shuffle_vector(one, ir.Constant(_CODES, ir.Undefined), zeros)


def _clamped(builder: Any, codes: Any, lo: Any, width: Any) -> Any:
    """Return min(max(code - lo, 0), width) in every lane, seen as 16 pairs of codes."""
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
