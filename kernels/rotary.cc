// Rotary position embedding of one head: the two halves of a row turn together.
//
// y[:h] = x[:h] cos - x[h:] sin, y[h:] = x[h:] cos + x[:h] sin, h = DIM_D / 2; angles: float32[2, h] = cos, sin of the row.
// Limits: DIM_D a multiple of 32. Stack: 512 B. Rounding: conv_even. Alignment: 64 B.
#include <kernel_math.hpp>

#ifndef DIM_D
#define DIM_D 64
#endif
static_assert(DIM_D % (2 * kernel_math::kLanes) == 0);

extern "C" void rotary(const bfloat16* x, const float* angles, bfloat16* y) {
  using namespace kernel_math;
  aie::set_rounding(aie::rounding_mode::conv_even);
  constexpr unsigned half = DIM_D / 2;
  for (unsigned i = 0; i < half; i += kLanes) {
    const Floats a = widened(aie::load_v<kLanes>(x + i)), b = widened(aie::load_v<kLanes>(x + half + i));
    const Floats cosine = aie::load_v<kLanes>(angles + i), sine = aie::load_v<kLanes>(angles + half + i);
    aie::store_v(y + i, narrowed(aie::sub(times(a, cosine), times(b, sine))));
    aie::store_v(y + half + i, narrowed(fma(a, sine, times(b, cosine))));
  }
}
