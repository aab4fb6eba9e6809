"""Looking up and writing by indices, in a table of 100 rows of 8 floats: 3,200 bytes, 32 a row."""

from __future__ import annotations

from tests.costs.hand import bools, case, floats, ints

TABLE = floats(100, 8)
FIVE = ints(5)
ROWS = floats(5, 8)
PLACES = ints(5, 8)

CASES = [
    # Five indices of 8 bytes and five rows are read, five rows written.
    *case("embedding", TABLE, FIVE, bytes=(40 + 160, 160)),
    *case("index _unsafe_index", TABLE, [FIVE], bytes=(40 + 160, 160)),
    *case("index_select", TABLE, 0, FIVE, bytes=(40 + 160, 160)),
    # 40 elements, each by its own index.
    *case("gather", TABLE, 0, PLACES, bytes=(320 + 160, 160)),
    *case("take_along_dim", TABLE, PLACES, 0, bytes=(320 + 160, 160)),
    *case("take", TABLE, PLACES, bytes=(320 + 160, 160)),
    # The mask is read whole, and what it lets through.
    *case("masked_select", TABLE, bools(100, 8), gives=floats(7), bytes=(800 + 28, 28)),
    # Six rows are added up in two bags; three more results are of no importance here and empty.
    *case("embedding_bag _embedding_bag _embedding_bag_forward_only", TABLE, ints(6), ints(2),
          gives=(floats(2, 8), ints(0), ints(0), ints(0)), other=6 * 8, bytes=(48 + 16 + 6 * 32, 64)),
    # A copy of the table is made.
    *case("index_copy", TABLE, 0, FIVE, ROWS, bytes=(3200 + 40 + 160, 3200)),
    *case("index_fill", TABLE, 0, FIVE, 0.0, bytes=(3200 + 40, 3200)),
    *case("index_put", TABLE, [FIVE], ROWS, bytes=(3200 + 40 + 160, 3200)),
    *case("_unsafe_index_put", TABLE, [FIVE], ROWS, bytes=(3200 + 40 + 160, 3200)),
    *case("_index_put_impl", TABLE, [FIVE], ROWS, gives=TABLE, bytes=(3200 + 40 + 160, 3200)),
    *case("masked_scatter", TABLE, bools(100, 8), ROWS, bytes=(3200 + 800 + 160, 3200)),
    *case("scatter", TABLE, 0, PLACES, ROWS, bytes=(3200 + 320 + 160, 3200)),
    *case("put", TABLE, FIVE, floats(5), bytes=(3200 + 40 + 20, 3200)),
    *case("slice_scatter", TABLE, ROWS, 0, 0, 5, bytes=(3200 + 160, 3200)),
    *case("select_scatter", TABLE, floats(8), 0, 3, bytes=(3200 + 32, 3200)),
    *case("diagonal_scatter", TABLE, floats(8), bytes=(3200 + 32, 3200)),
    *case("one_hot", FIVE, 10, gives=ints(5, 10), bytes=(40, 400)),
    # In place: the table stays as it is but for five rows (or 40 or 5 elements).
    *case("index_copy_", TABLE, 0, FIVE, ROWS, bytes=(40 + 160, 160)),
    *case("index_fill_", TABLE, 0, FIVE, 0.0, bytes=(40, 160)),
    *case("index_fill_", TABLE, 1, ints(2), 0.0, bytes=(16, 800)),
    *case("index_put_", TABLE, [FIVE], ROWS, bytes=(40 + 160, 160)),
    *case("index_put_", TABLE, [FIVE], floats(), bytes=(40 + 4, 160)),
    *case("index_put_", TABLE, [FIVE, FIVE], floats(), bytes=(80 + 4, 20)),
    *case("index_put_", TABLE, [None, ints(2)], floats(), bytes=(16 + 4, 800)),
    *case("_index_put_impl_", TABLE, [FIVE], ROWS, bytes=(40 + 160, 160)),
    *case("scatter_", TABLE, 0, PLACES, ROWS, bytes=(320 + 160, 160)),
    *case("scatter_", TABLE, 0, PLACES, 0.0, bytes=(320, 160)),
    *case("scatter_", bools(100, 8), 0, PLACES, True, bytes=(320, 40)),
    *case("put_", TABLE, FIVE, floats(5), bytes=(40 + 20, 20)),
    # What a mask lets through is as many as the values, or is not known and taken as all.
    *case("masked_scatter_", TABLE, bools(100, 8), ROWS, bytes=(800 + 160, 160)),
    *case("index_put_", TABLE, [bools(100, 8)], floats(7), bytes=(800 + 28, 28)),
    *case("index_put_", TABLE, [bools(100, 8)], floats(), bytes=(800 + 4, 3200)),
    # Where rows are added to, they are read, too, and each element is a sum.
    *case("index_add", TABLE, 0, FIVE, ROWS, other=40, bytes=(3200 + 40 + 160, 3200)),
    *case("index_reduce", TABLE, 0, FIVE, ROWS, "prod", other=40, bytes=(3200 + 40 + 160, 3200)),
    *case("scatter_add", TABLE, 0, PLACES, ROWS, other=40, bytes=(3200 + 320 + 160, 3200)),
    *case("scatter_reduce", TABLE, 0, PLACES, ROWS, "sum", other=40, bytes=(3200 + 320 + 160, 3200)),
    *case("index_put _unsafe_index_put", TABLE, [FIVE], ROWS, True, other=40,
          bytes=(3200 + 40 + 160, 3200)),
    *case("index_add_", TABLE, 0, FIVE, ROWS, other=40, bytes=(40 + 160 + 160, 160)),
    *case("index_reduce_", TABLE, 0, FIVE, ROWS, "prod", other=40, bytes=(40 + 160 + 160, 160)),
    *case("scatter_add_", TABLE, 0, PLACES, ROWS, other=40, bytes=(320 + 160 + 160, 160)),
    *case("scatter_reduce_", TABLE, 0, PLACES, ROWS, "sum", other=40, bytes=(320 + 160 + 160, 160)),
    *case("scatter_", TABLE, 0, PLACES, ROWS, reduce="add", other=40, bytes=(320 + 160 + 160, 160)),
    *case("index_put_ _index_put_impl_", TABLE, [FIVE], ROWS, True, other=40, bytes=(40 + 160 + 160, 160)),
    *case("put_", TABLE, FIVE, floats(5), True, other=5, bytes=(40 + 20 + 20, 20)),
]  # fmt: skip
