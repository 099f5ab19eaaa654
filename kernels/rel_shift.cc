// Relative-position shift of Transformer-XL attention: adds the position scores, shifted, to the content scores.
//
// scores[i, j] += position[i, DIM_S - 1 - (first + i) + j], i < DIM_Q, j < DIM_S; `first` is the first query's index in the sequence.
// scores: float32[DIM_Q, DIM_S]; position: float32[DIM_Q, 2 DIM_S]; the last column is not used.
// Limits: DIM_S a multiple of 16, first + DIM_Q <= DIM_S. Stack: 512 B. Rounding: conv_even. Alignment: scores 64 B.
#include <kernel_math.hpp>

#ifndef DIM_Q
#define DIM_Q 16
#endif
#ifndef DIM_S
#define DIM_S 64
#endif
static_assert(DIM_S % kernel_math::kLanes == 0);

extern "C" void rel_shift(float* scores, const float* position, int32_t first) {
  using namespace kernel_math;
  aie::set_rounding(aie::rounding_mode::conv_even);
  for (int32_t i = 0; i < DIM_Q; ++i) {
    const float* window = position + i * 2 * DIM_S + (DIM_S - 1 - first - i);
    for (int32_t j = 0; j < DIM_S; j += kLanes) {
      float* score = scores + i * DIM_S + j;
      aie::store_v(score, aie::add(aie::load_v<kLanes>(score), aie::load_unaligned_v<kLanes>(window + j)));
    }
  }
}
