// GEMV over a streamed tape: each object holds whole rows of the matrix, row-major.
//
// y[state[0] + i] = sum over j of tape[i, j] x[j], float32, for the `rows` rows of one object of k values each; state[0] then
// counts them, until gemv_store sends y on.
// Limits: k a multiple of 32. Stack: 512 B. Rounding: conv_even. Alignment: tape and x 64 B, y 4 B.
#include <kernel_math.hpp>

namespace {
constexpr unsigned kWide = 32;
}

extern "C" {

void gemv_rows(const bfloat16* tape, const bfloat16* x, float* y, int32_t* state, int32_t rows, int32_t k) {
  aie::set_rounding(aie::rounding_mode::conv_even);
  for (int32_t row = 0; row < rows; ++row) {
    auto sum = aie::zeros<accfloat, kWide>();
    for (int32_t j = 0; j < k; j += kWide) sum = aie::mac(sum, aie::load_v<kWide>(tape + row * k + j), aie::load_v<kWide>(x + j));
    y[state[0] + row] = aie::reduce_add(sum.to_vector<float>());
  }
  state[0] += rows;
}

/// The finished slice of y as bfloat16.
void gemv_store(const float* y, bfloat16* out, int32_t* state) {
  aie::set_rounding(aie::rounding_mode::conv_even);
  const int32_t rows = state[0];
  state[0] = 0;
  for (int32_t row = 0; row < rows; row += kernel_math::kLanes) {
    aie::store_v(out + row, kernel_math::narrowed(aie::load_v<kernel_math::kLanes>(y + row)));
  }
}

}  // extern "C"
