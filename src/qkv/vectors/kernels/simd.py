"""Rows of float32 in whole vector registers: products and updates of a few rows at a time.

Of plain loops over short rows of unknown width, a compiler makes code that spends more time on the ends of rows, and on asking
whether they overlap, than on the rows. So these few functions say which instructions they mean. Rows must be a multiple of
LANES wide (`padded`). A tile is a few rows of one array and a few of another, held in registers while both are gone through once.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

LANES = 16  # float32 in a register of 512 bits, which smaller processors do in halves or quarters
DOWN, ACROSS = 2, 3  # rows of a tile on either side: counts of rows are rounded up to these
intrinsic: Any = extending.intrinsic  # callers do not give its first argument, which type checkers would ask for
FLOAT, INDEX = ir.FloatType(), types.int64
VECTOR = ir.VectorType(FLOAT, LANES)
FAST = ("fast",)


def padded(width: int) -> int:
    """The least width of whole registers that holds so many numbers."""
    return -(-width // LANES) * LANES


def _tile_of_products(down: int, across: int) -> Any:
    @intrinsic
    def products(typing: Any, a: Any, these: Any, i: Any, b: Any, those: Any, j: Any, out: Any) -> Any:
        """out[i + r, j + c] = a[these[i + r]] . b[those[j + c]] for a tile of r and c."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds, (i, j) = signature.args, (args[2], args[5])
            left = _rows(context, builder, kinds[:3], args[:3], down)
            right = _rows(context, builder, kinds[3:6], args[3:6], across)
            sums = [[_zeros(builder) for _ in right] for _ in left]
            with _lanes(builder, _width(context, builder, kinds[0], args[0])) as place:
                first = [_load(builder, row, place) for row in left]
                second = [_load(builder, row, place) for row in right]
                for r, line in enumerate(sums):
                    for c, total in enumerate(line):
                        builder.store(_multiply_add(builder, first[r], second[c], builder.load(total)), total)
            for r, line in enumerate(sums):
                for c, total in enumerate(line):
                    target = _element(context, builder, kinds[6], args[6], (i, r), (j, c))
                    builder.store(_sum(builder, builder.load(total)), target)
            return context.get_dummy_value()

        return types.void(a, these, INDEX, b, those, INDEX, out), generate

    return products


def _tile_of_updates(down: int, across: int, turned: bool) -> Any:
    @intrinsic
    def update(typing: Any, a: Any, these: Any, i: Any, b: Any, those: Any, j: Any, weights: Any) -> Any:
        """a[these[i + r]] += sum over c of weights[i + r, j + c] * b[those[j + c]]; if turned, of weights[j + c, i + r]."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds, (i, j) = signature.args, (args[2], args[5])
            targets = _rows(context, builder, kinds[:3], args[:3], down)
            sources = _rows(context, builder, kinds[3:6], args[3:6], across)

            def factor(r: int, c: int) -> Any:
                row, column = ((j, c), (i, r)) if turned else ((i, r), (j, c))
                return _spread(builder, builder.load(_element(context, builder, kinds[6], args[6], row, column)))

            factors = [[factor(r, c) for c in range(across)] for r in range(down)]
            with _lanes(builder, _width(context, builder, kinds[0], args[0])) as place:
                values = [_load(builder, row, place) for row in sources]
                for target, line in zip(targets, factors, strict=True):
                    total = _load(builder, target, place)  # after the row before it was stored: it may be the same row
                    for weight, value in zip(line, values, strict=True):
                        total = _multiply_add(builder, weight, value, total)
                    _store(builder, target, place, total)
            return context.get_dummy_value()

        return types.void(a, these, INDEX, b, those, INDEX, weights), generate

    return update


tile_products = _tile_of_products(DOWN, ACROSS)
line_products = _tile_of_products(1, ACROSS)
update_down = _tile_of_updates(DOWN, ACROSS, turned=False)
update_across = _tile_of_updates(ACROSS, DOWN, turned=True)
update_line = _tile_of_updates(1, ACROSS, turned=False)
update_across_line = _tile_of_updates(ACROSS, 1, turned=True)


@intrinsic
def add_row(typing: Any, to: Any, i: Any, rows: Any, j: Any, weight: Any) -> Any:
    """to[i] += weight * rows[j]."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target = _row(context, builder, signature.args[0], args[0], args[1])
        source = _row(context, builder, signature.args[2], args[2], args[3])
        factor = _spread(builder, args[4])
        with _lanes(builder, _width(context, builder, signature.args[0], args[0])) as place:
            total = _multiply_add(builder, factor, _load(builder, source, place), _load(builder, target, place))
            _store(builder, target, place, total)
        return context.get_dummy_value()

    return types.void(to, INDEX, rows, INDEX, types.float32), generate


@intrinsic
def copy_row(typing: Any, to: Any, i: Any, rows: Any, j: Any) -> Any:
    """to[i] = rows[j]."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target = _row(context, builder, signature.args[0], args[0], args[1])
        source = _row(context, builder, signature.args[2], args[2], args[3])
        with _lanes(builder, _width(context, builder, signature.args[0], args[0])) as place:
            _store(builder, target, place, _load(builder, source, place))
        return context.get_dummy_value()

    return types.void(to, INDEX, rows, INDEX), generate


@intrinsic
def fetch_row(typing: Any, rows: Any, i: Any) -> Any:
    """Ask memory for a row that will be needed soon, without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source = _row(context, builder, signature.args[0], args[0], args[1])
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        with _lanes(builder, _width(context, builder, signature.args[0], args[0])) as place:
            at = builder.bitcast(builder.gep(source, [place]), byte)
            builder.call(prefetch, [at, number(1), number(3), number(1)])  # to be written, kept in all caches, data
        return context.get_dummy_value()

    return types.void(rows, INDEX), generate


def _width(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    return builder.extract_value(context.make_array(kind)(context, builder, array).shape, 1)


def _row(context: Any, builder: Any, kind: Any, array: Any, number: Any) -> Any:
    """Where a row of a C-contiguous array of two dimensions begins."""
    made = context.make_array(kind)(context, builder, array)
    return builder.gep(made.data, [builder.mul(number, builder.extract_value(made.shape, 1))])


def _rows(context: Any, builder: Any, kinds: Any, args: Any, count: int) -> list[Any]:
    """Where `count` rows of an array begin whose numbers stand in another, from a place on."""
    array, numbers, first = args
    places = context.make_array(kinds[1])(context, builder, numbers).data
    found = [builder.load(builder.gep(places, [builder.add(first, first.type(r))])) for r in range(count)]
    return [_row(context, builder, kinds[0], array, builder.sext(number, first.type)) for number in found]


def _element(context: Any, builder: Any, kind: Any, array: Any, row: Any, column: Any) -> Any:
    """Where an element stands; row and column are each a number and how much further."""
    (i, r), (j, c) = row, column
    return builder.gep(_row(context, builder, kind, array, builder.add(i, i.type(r))), [builder.add(j, j.type(c))])


@contextlib.contextmanager
def _lanes(builder: Any, width: Any) -> Iterator[Any]:
    """A loop over the registers of a row, which gives the place of each."""
    with cgutils.for_range_slice(builder, width.type(0), width, width.type(LANES)) as (place, _):
        yield place


def _zeros(builder: Any) -> Any:
    """A register for sums, at zero now: it may be inside a loop."""
    zero = ir.Constant(VECTOR, [0.0] * LANES)
    place = cgutils.alloca_once(builder, VECTOR)
    builder.store(zero, place)
    return place


def _at(builder: Any, row: Any, place: Any) -> Any:
    return builder.bitcast(builder.gep(row, [place]), VECTOR.as_pointer())


def _load(builder: Any, row: Any, place: Any) -> Any:
    value = builder.load(_at(builder, row, place))
    value.align = 4  # NumPy promises no more
    return value


def _store(builder: Any, row: Any, place: Any, value: Any) -> None:
    builder.store(value, _at(builder, row, place), align=4)


def _multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return builder.fadd(builder.fmul(a, b, flags=FAST), c, flags=FAST)


def _spread(builder: Any, value: Any) -> Any:
    """The same number in all lanes."""
    number, nothing = ir.IntType(32), ir.Constant(VECTOR, ir.Undefined)
    one = builder.insert_element(nothing, value, number(0))
    return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(number, LANES), [0] * LANES))


def _sum(builder: Any, vector: Any) -> Any:
    kind = ir.FunctionType(FLOAT, [FLOAT, VECTOR])
    add = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.fadd.v{LANES}f32")
    return builder.call(add, [ir.Constant(FLOAT, 0.0), vector], fastmath=FAST)
