// Softmax of one row, float32 statistics, run-time width.
//
// y[j] = exp(x[j] - max) / sum over the first `valid` of DIM_COLUMNS columns; the rest of y is 0.
// Limits: DIM_COLUMNS a multiple of 16, valid >= 1. Stack: 512 B. Rounding: conv_even. Alignment: 64 B.
#include <kernel_math.hpp>

#ifndef DIM_COLUMNS
#define DIM_COLUMNS 512
#endif
static_assert(DIM_COLUMNS % kernel_math::kLanes == 0);

namespace {

using namespace kernel_math;

/// Sixteen columns of the row in units of log2, with minus infinity past `valid`.
Floats columns_of(const bfloat16* x, unsigned first, int32_t valid) {
  const Floats scaled = times(widened(aie::load_v<kLanes>(x + first)), spread(kLog2E));
  Ints column;
  for (unsigned i = 0; i < kLanes; ++i) column[i] = static_cast<int32_t>(first + i);
  return aie::select(spread(kLowest), scaled, aie::lt(column, valid));
}

}  // namespace

extern "C" void softmax(const bfloat16* x, bfloat16* y, int32_t valid) {
  aie::set_rounding(aie::rounding_mode::conv_even);
  Floats top = spread(kLowest);
  for (unsigned i = 0; i < DIM_COLUMNS; i += kLanes) top = aie::max(top, columns_of(x, i, valid));
  top = spread(aie::reduce_max(top));
  Floats sum = aie::zeros<float, kLanes>();
  for (unsigned i = 0; i < DIM_COLUMNS; i += kLanes) sum = aie::add(sum, exp2(aie::sub(columns_of(x, i, valid), top)));
  const Floats scale = reciprocal(spread(aie::reduce_add(sum)));
  for (unsigned i = 0; i < DIM_COLUMNS; i += kLanes) {
    const Floats share = times(exp2(aie::sub(columns_of(x, i, valid), top)), scale);
    aie::store_v(y + i, narrowed(share));
  }
}
