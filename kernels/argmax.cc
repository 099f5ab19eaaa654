// Argmax over rows of a streamed matrix that keeps the winning row: of Whisper's tied lm-head, the next token's embedding.
//
// logit[i] = rows[i] . x + bias[i]. object: bfloat16[DIM_ROWS, DIM_D], then float32[16] bias; a suppressed row's bias is -1e30.
// best: int32[16] = {order, index, next index}, then bfloat16[DIM_D], the winning row. order is the logit's bits made comparable as an integer.
// The first of equals wins.
// Limits: DIM_D a multiple of 32, DIM_ROWS <= 16. Stack: 512 B. Rounding: conv_even. Alignment: 64 B.
#include <kernel_math.hpp>

#ifndef DIM_D
#define DIM_D 384
#endif
#ifndef DIM_ROWS
#define DIM_ROWS 8
#endif
static_assert(DIM_D % 32 == 0 && DIM_ROWS <= kernel_math::kLanes);

namespace {

constexpr int32_t kWorst = INT32_MIN;
constexpr unsigned kHeader = 32;  // bfloat16 places that int32[16] takes

/// Bits of a float32, ordered like the numbers.
int32_t order_of(int32_t bits) { return bits ^ ((bits >> 31) & 0x7FFFFFFF); }

}  // namespace

extern "C" {

void argmax_start(bfloat16* best_object, int32_t first) {
  int32_t* best = reinterpret_cast<int32_t*>(best_object);
  best[0] = kWorst;
  best[1] = -1;
  best[2] = first;
}

void argmax_rows(const bfloat16* object, const bfloat16* x, bfloat16* best_object) {
  aie::set_rounding(aie::rounding_mode::conv_even);
  const float* bias = reinterpret_cast<const float*>(object + DIM_ROWS * DIM_D);
  int32_t* best = reinterpret_cast<int32_t*>(best_object);
  bfloat16* winner = best_object + kHeader;
  auto logits = kernel_math::spread(kernel_math::kLowest);
  for (unsigned row = 0; row < DIM_ROWS; ++row) {
    auto sum = aie::zeros<accfloat, 32>();
    for (unsigned j = 0; j < DIM_D; j += 32) sum = aie::mac(sum, aie::load_v<32>(object + row * DIM_D + j), aie::load_v<32>(x + j));
    logits.set(aie::reduce_add(sum.to_vector<float>()), row);
  }
  logits = aie::add(logits, aie::load_v<kernel_math::kLanes>(bias));
  const auto bits = logits.cast_to<int32_t>();
  for (unsigned row = 0; row < DIM_ROWS; ++row) {
    const int32_t order = order_of(bits[row]);
    if (order <= best[0]) continue;
    best[0] = order;
    best[1] = best[2] + static_cast<int32_t>(row);
    for (unsigned j = 0; j < DIM_D; j += 32) aie::store_v(winner + j, aie::load_v<32>(object + row * DIM_D + j));
  }
  best[2] += DIM_ROWS;
}

}  // extern "C"
