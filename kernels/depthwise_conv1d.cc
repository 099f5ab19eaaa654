// Depthwise convolution over time, time-major, with bias and optional SiLU (a conformer's batch norm is folded into both).
//
// y[i, c] = f(bias[c] + sum over j of taps[j, c] x[i + j, c]), i < DIM_T, j < DIM_TAPS, c < DIM_C.
// x: bfloat16[DIM_T + DIM_TAPS - 1, DIM_C], taps: float32[DIM_TAPS + 1, DIM_C] with the bias last, y: bfloat16[DIM_T, DIM_C].
// Limits: DIM_C a multiple of 16. Stack: 512 B. Rounding: conv_even. Alignment: 64 B.
#include <kernel_math.hpp>

#ifndef DIM_T
#define DIM_T 16
#endif
#ifndef DIM_C
#define DIM_C 64
#endif
#ifndef DIM_TAPS
#define DIM_TAPS 9
#endif
static_assert(DIM_C % kernel_math::kLanes == 0);

extern "C" void depthwise_conv1d(const bfloat16* x, const float* taps, bfloat16* y, int32_t with_silu) {
  using namespace kernel_math;
  aie::set_rounding(aie::rounding_mode::conv_even);
  for (unsigned c = 0; c < DIM_C; c += kLanes) {
    for (unsigned i = 0; i < DIM_T; ++i) {
      Floats sum = aie::load_v<kLanes>(taps + DIM_TAPS * DIM_C + c);
      for (unsigned j = 0; j < DIM_TAPS; ++j) {
        sum = fma(widened(aie::load_v<kLanes>(x + (i + j) * DIM_C + c)), aie::load_v<kLanes>(taps + j * DIM_C + c), sum);
      }
      aie::store_v(y + i * DIM_C + c, narrowed(with_silu ? silu(sum) : sum));
    }
  }
}
