// float32 to bfloat16, to nearest even; only where no other kernel can do it on its way out.
//
// Limits: count a multiple of 16. Stack: 512 B. Rounding: conv_even. Alignment: x 64 B, y 32 B.
#include <kernel_math.hpp>

extern "C" void cast(const float* x, bfloat16* y, int32_t count) {
  using namespace kernel_math;
  aie::set_rounding(aie::rounding_mode::conv_even);
  for (int32_t i = 0; i < count; i += kLanes) aie::store_v(y + i, narrowed(aie::load_v<kLanes>(x + i)));
}
