// LSTM cell after its two matrix products.
//
// gates: float32[4, DIM_H], rows input, forget, cell, output. cell: float32[DIM_H], updated in place. hidden: bfloat16[DIM_H].
// Limits: DIM_H a multiple of 16. Error of sigmoid 6e-5, of tanh 1.2e-4; see kernel_math.hpp.
// Stack: 512 B. Rounding: conv_even. Alignment: 64 B.
#include <kernel_math.hpp>

#ifndef DIM_H
#define DIM_H 64
#endif
static_assert(DIM_H % kernel_math::kLanes == 0);

extern "C" void lstm_cell(const float* gates, float* cell, bfloat16* hidden) {
  using namespace kernel_math;
  aie::set_rounding(aie::rounding_mode::conv_even);
  for (unsigned i = 0; i < DIM_H; i += kLanes) {
    const Floats input = sigmoid(aie::load_v<kLanes>(gates + i));
    const Floats forget = sigmoid(aie::load_v<kLanes>(gates + DIM_H + i));
    const Floats fresh = tanh(aie::load_v<kLanes>(gates + 2 * DIM_H + i));
    const Floats output = sigmoid(aie::load_v<kLanes>(gates + 3 * DIM_H + i));
    const Floats state = fma(forget, aie::load_v<kLanes>(cell + i), times(input, fresh));
    aie::store_v(cell + i, state);
    aie::store_v(hidden + i, narrowed(times(output, tanh(state))));
  }
}
