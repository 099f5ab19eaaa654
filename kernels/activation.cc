// GELU (erf form) and SiLU of a vector.
//
// Limits: count a multiple of 16. Error before the bfloat16 rounding: 7e-5 (GELU), 6e-5 of |x| (SiLU); see kernel_math.hpp.
// Stack: 512 B. Rounding: conv_even. Alignment: 64 B for x, 32 B for y.
#include <kernel_math.hpp>

namespace {

template <kernel_math::Floats (*function)(const kernel_math::Floats&)>
void apply(const float* x, bfloat16* y, int32_t count) {
  aie::set_rounding(aie::rounding_mode::conv_even);
  for (int32_t i = 0; i < count; i += kernel_math::kLanes) {
    aie::store_v(y + i, kernel_math::narrowed(function(aie::load_v<kernel_math::kLanes>(x + i))));
  }
}

}  // namespace

extern "C" {

void gelu(const float* x, bfloat16* y, int32_t count) { apply<kernel_math::gelu>(x, y, count); }
void silu(const float* x, bfloat16* y, int32_t count) { apply<kernel_math::silu>(x, y, count); }

}  // extern "C"
