// LayerNorm of one row in two passes, statistics in float32.
//
// y = (x - mean) / sqrt(variance + 1e-5) * gamma + beta over DIM_D values; gamma_beta: float32[2, DIM_D].
// Limits: DIM_D a multiple of 16. Stack: 512 B. Rounding: conv_even. Alignment: 64 B.
#include <kernel_math.hpp>

#ifndef DIM_D
#define DIM_D 384
#endif
static_assert(DIM_D % kernel_math::kLanes == 0);

namespace {

using namespace kernel_math;
constexpr float kEpsilon = 1.0e-5F;

Floats mean_of(const Floats& sums) { return times(spread(aie::reduce_add(sums)), spread(1.0F / DIM_D)); }

}  // namespace

extern "C" void layer_norm(const bfloat16* x, const float* gamma_beta, bfloat16* y) {
  aie::set_rounding(aie::rounding_mode::conv_even);
  Floats sum = aie::zeros<float, kLanes>();
  for (unsigned i = 0; i < DIM_D; i += kLanes) sum = aie::add(sum, widened(aie::load_v<kLanes>(x + i)));
  const Floats mean = mean_of(sum);
  Floats square = aie::zeros<float, kLanes>();
  for (unsigned i = 0; i < DIM_D; i += kLanes) {
    const Floats centred = aie::sub(widened(aie::load_v<kLanes>(x + i)), mean);
    square = fma(centred, centred, square);
  }
  const Floats scale = inverse_root(aie::add(mean_of(square), spread(kEpsilon)));
  for (unsigned i = 0; i < DIM_D; i += kLanes) {
    const Floats normal = times(aie::sub(widened(aie::load_v<kLanes>(x + i)), mean), scale);
    aie::store_v(y + i, narrowed(fma(normal, aie::load_v<kLanes>(gamma_beta + i), aie::load_v<kLanes>(gamma_beta + DIM_D + i))));
  }
}
