"""The sizes of the kernels' blocks and tables, for those who read the tables without compiling anything."""

from __future__ import annotations

BLOCK = 1024  # three float64 blocks of 8 KiB beside their sources: they stay in an L1 cache of 32 KiB
LANES = 4  # copies of each histogram: equal neighbours then do not wait for each other's store
OCTAVES = 160  # the sketch covers errors in [2^-160, 2^160): every difference of float32 values lies there
MANTISSA_BITS = 6  # half a bin is then at most 1/128 = 0.78 % of a value in it
BINS_PER_OCTAVE = 1 << MANTISSA_BITS
SKETCH_WIDTH = 2 * OCTAVES * BINS_PER_OCTAVE + 1  # bin 0: zero, or below the range
VALUE_BINS = 4096  # sign and exponent of a float64
VALUE_OFFSET = 4096  # bins of values are +-(4096 + exponent), see statistics.Floats
NOWHERE = 1 << 62  # an index above every flat index
