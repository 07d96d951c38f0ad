"""Products and updates of a few float32 rows at a time, in whole SIMD registers.

Compilers turn plain loops over short rows of unknown width into code that spends more time on row ends and alias checks than on
the rows. These functions emit the LLVM instructions they need instead. Rows must be a multiple of LANES wide (`padded_width`). A
tile is a few rows of one array and a few of another, held in registers while both are read once.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

LANES = 16  # float32 in a 512-bit register; smaller processors split it into halves or quarters
TILE_ROWS, TILE_COLUMNS = 2, 3  # row counts are rounded up to multiples of these
intrinsic: Any = extending.intrinsic  # numba passes the first argument; Any keeps type checkers from asking for it
FLOAT, INDEX = ir.FloatType(), types.int64
VECTOR = ir.VectorType(FLOAT, LANES)
FAST = ("fast",)


def padded_width(width: int) -> int:
    """Round a width up to whole registers."""
    return -(-width // LANES) * LANES


def _make_products(rows: int, columns: int) -> Any:
    """Build the intrinsic that multiplies a tile of `rows` by `columns` rows."""

    @intrinsic
    def products(typing: Any, a: Any, these: Any, i: Any, b: Any, those: Any, j: Any, out: Any) -> Any:
        """out[i + r, j + c] = a[these[i + r]] . b[those[j + c]] for a tile of r and c."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds, (i, j) = signature.args, (args[2], args[5])
            left = _rows(context, builder, kinds[:3], args[:3], rows)
            right = _rows(context, builder, kinds[3:6], args[3:6], columns)
            sums = [[_zeros(builder) for _ in right] for _ in left]
            with _lanes(builder, _width(context, builder, kinds[0], args[0])) as column:
                first = [_load(builder, row, column) for row in left]
                second = [_load(builder, row, column) for row in right]
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


def _make_updates(rows: int, columns: int, transposed: bool) -> Any:
    """Build the intrinsic that adds weighted sums of `columns` rows to `rows` rows."""

    @intrinsic
    def update(typing: Any, a: Any, these: Any, i: Any, b: Any, those: Any, j: Any, weights: Any) -> Any:
        """a[these[i + r]] += sum over c of weights[i + r, j + c] * b[those[j + c]]; if transposed, weights[j + c, i + r]."""

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kinds, (i, j) = signature.args, (args[2], args[5])
            targets = _rows(context, builder, kinds[:3], args[:3], rows)
            sources = _rows(context, builder, kinds[3:6], args[3:6], columns)

            def factor(r: int, c: int) -> Any:
                row, column = ((j, c), (i, r)) if transposed else ((i, r), (j, c))
                return _broadcast(builder, builder.load(_element(context, builder, kinds[6], args[6], row, column)))

            factors = [[factor(r, c) for c in range(columns)] for r in range(rows)]
            with _lanes(builder, _width(context, builder, kinds[0], args[0])) as column:
                values = [_load(builder, row, column) for row in sources]
                for target, line in zip(targets, factors, strict=True):
                    total = _load(builder, target, column)  # loaded after the row before was stored: it may be the same row
                    for weight, value in zip(line, values, strict=True):
                        total = _multiply_add(builder, weight, value, total)
                    _store(builder, target, column, total)
            return context.get_dummy_value()

        return types.void(a, these, INDEX, b, those, INDEX, weights), generate

    return update


tile_products = _make_products(TILE_ROWS, TILE_COLUMNS)
row_products = _make_products(1, TILE_COLUMNS)
update_tile_rows = _make_updates(TILE_ROWS, TILE_COLUMNS, transposed=False)
update_tile_columns = _make_updates(TILE_COLUMNS, TILE_ROWS, transposed=True)
update_row = _make_updates(1, TILE_COLUMNS, transposed=False)
update_columns_by_row = _make_updates(TILE_COLUMNS, 1, transposed=True)


@intrinsic
def add_row(typing: Any, to: Any, i: Any, rows: Any, j: Any, weight: Any) -> Any:
    """to[i] += weight * rows[j]."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target = _row(context, builder, signature.args[0], args[0], args[1])
        source = _row(context, builder, signature.args[2], args[2], args[3])
        factor = _broadcast(builder, args[4])
        with _lanes(builder, _width(context, builder, signature.args[0], args[0])) as column:
            total = _multiply_add(builder, factor, _load(builder, source, column), _load(builder, target, column))
            _store(builder, target, column, total)
        return context.get_dummy_value()

    return types.void(to, INDEX, rows, INDEX, types.float32), generate


@intrinsic
def copy_row(typing: Any, to: Any, i: Any, rows: Any, j: Any) -> Any:
    """to[i] = rows[j]."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target = _row(context, builder, signature.args[0], args[0], args[1])
        source = _row(context, builder, signature.args[2], args[2], args[3])
        with _lanes(builder, _width(context, builder, signature.args[0], args[0])) as column:
            _store(builder, target, column, _load(builder, source, column))
        return context.get_dummy_value()

    return types.void(to, INDEX, rows, INDEX), generate


@intrinsic
def prefetch_row(typing: Any, rows: Any, i: Any) -> Any:
    """Prefetch rows[i] into the cache."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source = _row(context, builder, signature.args[0], args[0], args[1])
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        with _lanes(builder, _width(context, builder, signature.args[0], args[0])) as column:
            address = builder.bitcast(builder.gep(source, [column]), byte)
            builder.call(prefetch, [address, number(1), number(3), number(1)])  # for writing, into all cache levels, data cache
        return context.get_dummy_value()

    return types.void(rows, INDEX), generate


def _width(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    return builder.extract_value(context.make_array(kind)(context, builder, array).shape, 1)


def _row(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    """Return the address of a row of a C-contiguous matrix."""
    matrix = context.make_array(kind)(context, builder, array)
    return builder.gep(matrix.data, [builder.mul(index, builder.extract_value(matrix.shape, 1))])


def _rows(context: Any, builder: Any, kinds: Any, args: Any, count: int) -> list[Any]:
    """Return the addresses of the rows array[indices[first + r]] for r below `count`; `args` is (array, indices, first)."""
    array, indices, first = args
    data = context.make_array(kinds[1])(context, builder, indices).data
    loaded = [builder.load(builder.gep(data, [builder.add(first, first.type(r))])) for r in range(count)]
    return [_row(context, builder, kinds[0], array, builder.sext(index, first.type)) for index in loaded]


def _element(context: Any, builder: Any, kind: Any, array: Any, row: Any, column: Any) -> Any:
    """Return the address of an element; row and column are each a runtime index and a constant offset."""
    (i, r), (j, c) = row, column
    return builder.gep(_row(context, builder, kind, array, builder.add(i, i.type(r))), [builder.add(j, j.type(c))])


@contextlib.contextmanager
def _lanes(builder: Any, width: Any) -> Iterator[Any]:
    """Open a loop over the registers of a row; yields the first column of each."""
    with cgutils.for_range_slice(builder, width.type(0), width, width.type(LANES)) as (column, _):
        yield column


def _zeros(builder: Any) -> Any:
    """Allocate an accumulator register and set it to zero here, which may be inside a loop."""
    accumulator = cgutils.alloca_once(builder, VECTOR)
    builder.store(ir.Constant(VECTOR, [0.0] * LANES), accumulator)
    return accumulator


def _register(builder: Any, row: Any, column: Any) -> Any:
    """Return the address of LANES numbers of a row."""
    return builder.bitcast(builder.gep(row, [column]), VECTOR.as_pointer())


def _load(builder: Any, row: Any, column: Any) -> Any:
    value = builder.load(_register(builder, row, column))
    value.align = 4  # NumPy guarantees no more
    return value


def _store(builder: Any, row: Any, column: Any, value: Any) -> None:
    builder.store(value, _register(builder, row, column), align=4)


def _multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c, which LLVM may fuse."""
    return builder.fadd(builder.fmul(a, b, flags=FAST), c, flags=FAST)


def _broadcast(builder: Any, value: Any) -> Any:
    """Copy a number to all lanes."""
    index, undefined = ir.IntType(32), ir.Constant(VECTOR, ir.Undefined)
    first = builder.insert_element(undefined, value, index(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(index, LANES), [0] * LANES))


def _sum(builder: Any, vector: Any) -> Any:
    """Add up the lanes of a register."""
    kind = ir.FunctionType(FLOAT, [FLOAT, VECTOR])
    add = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.fadd.v{LANES}f32")
    return builder.call(add, [ir.Constant(FLOAT, 0.0), vector], fastmath=FAST)
