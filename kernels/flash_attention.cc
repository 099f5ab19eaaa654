// One step of flash attention: DIM_Q queries meet DIM_S keys and values of DIM_D dimensions.
//
// q: blocks of r x s, already scaled by log2(e) / sqrt(DIM_D). k: blocks of t keys x s dimensions. v: blocks of s keys x t
// dimensions. Scores, running maximum, running sum and output are float32; probabilities are bfloat16.
// scores: float32[DIM_Q, DIM_S], chances: bfloat16[DIM_Q, DIM_S], both row-major, scratch. rows: float32[4, DIM_Q] = maximum, sum, correction, scratch.
// o: float32, blocks of r x t. out: bfloat16, blocks of r x t. Keys from `valid` on are ignored; valid >= 1.
// Limits: DIM_Q, DIM_S, DIM_D multiples of 16. Stack: 1024 B. Rounding: conv_even. Alignment: 64 B.
#include <kernel_math.hpp>

#ifndef DIM_Q
#define DIM_Q 32
#endif
#ifndef DIM_S
#define DIM_S 64
#endif
#ifndef DIM_D
#define DIM_D 64
#endif
static_assert(DIM_Q % 16 == 0 && DIM_S % 16 == 0 && DIM_D % 16 == 0);

namespace {

using namespace kernel_math;
#if __AIE_ARCH__ == 20
constexpr unsigned r = 4, s = 8, t = 4;
#else
constexpr unsigned r = 8, s = 8, t = 8;
#endif
using Product = aie::mmul<r, s, t, bfloat16, bfloat16, accfloat>;

void scores_of(const bfloat16* q, const bfloat16* k, float* scores) {
  for (unsigned row = 0; row < DIM_Q / r; ++row) {
    for (unsigned key = 0; key < DIM_S / t; ++key) {
      Product sum(aie::zeros<accfloat, r * t>());
      for (unsigned d = 0; d < DIM_D / s; ++d) {
        const auto keys = aie::load_v<t * s>(k + (key * (DIM_D / s) + d) * t * s);
        sum.mac(aie::load_v<r * s>(q + (row * (DIM_D / s) + d) * r * s), aie::transpose(keys, t, s));
      }
      const auto block = sum.to_vector<float>();
      for (unsigned i = 0; i < r; ++i) aie::store_v(scores + (row * r + i) * DIM_S + key * t, block.extract<t>(i));
    }
  }
}

Floats bounded(const float* scores, unsigned first, int32_t valid) {
  Ints key;
  for (unsigned i = 0; i < kLanes; ++i) key[i] = static_cast<int32_t>(first + i);
  return aie::select(spread(kLowest), aie::load_v<kLanes>(scores + first), aie::lt(key, valid));
}

/// Running maximum and the factor by which everything summed so far shrinks.
void update_maximum(const float* scores, float* rows, int32_t valid) {
  float* maximum = rows;
  float* sum = rows + DIM_Q;
  float* correction = rows + 2 * DIM_Q;
  float* top = rows + 3 * DIM_Q;
  for (unsigned row = 0; row < DIM_Q; ++row) {
    Floats best = spread(kLowest);
    for (unsigned key = 0; key < DIM_S; key += kLanes) best = aie::max(best, bounded(scores + row * DIM_S, key, valid));
    top[row] = aie::reduce_max(best);
  }
  for (unsigned row = 0; row < DIM_Q; row += kLanes) {
    const Floats before = aie::load_v<kLanes>(maximum + row);
    const Floats now = aie::max(before, aie::load_v<kLanes>(top + row));
    const Floats shrink = exp2(aie::sub(before, now));
    aie::store_v(maximum + row, now);
    aie::store_v(correction + row, shrink);
    aie::store_v(sum + row, times(aie::load_v<kLanes>(sum + row), shrink));
  }
}

void chances_of(const float* scores, bfloat16* chances, float* rows, int32_t valid) {
  float* added = rows + 3 * DIM_Q;
  for (unsigned row = 0; row < DIM_Q; ++row) {
    const Floats maximum = spread(rows[row]);
    Floats total = aie::zeros<float, kLanes>();
    for (unsigned key = 0; key < DIM_S; key += kLanes) {
      const Floats chance = exp2(aie::sub(bounded(scores + row * DIM_S, key, valid), maximum));
      total = aie::add(total, chance);
      aie::store_v(chances + row * DIM_S + key, narrowed(chance));
    }
    added[row] = aie::reduce_add(total);
  }
  float* sum = rows + DIM_Q;
  for (unsigned row = 0; row < DIM_Q; row += kLanes) {
    aie::store_v(sum + row, aie::add(aie::load_v<kLanes>(sum + row), aie::load_v<kLanes>(added + row)));
  }
}

void weigh_values(const bfloat16* chances, const bfloat16* v, const float* rows, float* o) {
  const float* correction = rows + 2 * DIM_Q;
  for (unsigned row = 0; row < DIM_Q / r; ++row) {
    aie::vector<float, r * t> shrink;
    for (unsigned i = 0; i < r; ++i) shrink.insert(i, aie::broadcast<float, t>(correction[row * r + i]));
    for (unsigned d = 0; d < DIM_D / t; ++d) {
      float* block = o + (row * (DIM_D / t) + d) * r * t;
      Product sum(aie::mul(aie::load_v<r * t>(block), shrink));
      for (unsigned key = 0; key < DIM_S / s; ++key) {
        aie::vector<bfloat16, r * s> share;
        for (unsigned i = 0; i < r; ++i) share.insert(i, aie::load_v<s>(chances + (row * r + i) * DIM_S + key * s));
        sum.mac(share, aie::load_v<s * t>(v + (key * (DIM_D / t) + d) * s * t));
      }
      aie::store_v(block, sum.to_vector<float>());
    }
  }
}

}  // namespace

extern "C" {

void attention_start(float* rows, float* o) {
  aie::set_rounding(aie::rounding_mode::conv_even);
  for (unsigned row = 0; row < DIM_Q; row += kLanes) {
    aie::store_v(rows + row, spread(kLowest));
    aie::store_v(rows + DIM_Q + row, aie::zeros<float, kLanes>());
  }
  for (unsigned i = 0; i < DIM_Q * DIM_D; i += kLanes) aie::store_v(o + i, aie::zeros<float, kLanes>());
}

void attention_step(const bfloat16* q, const bfloat16* k, const bfloat16* v, float* scores, bfloat16* chances, float* rows, float* o,
                    int32_t valid) {
  aie::set_rounding(aie::rounding_mode::conv_even);
  scores_of(q, k, scores);
  update_maximum(scores, rows, valid);
  chances_of(scores, chances, rows, valid);
  weigh_values(chances, v, rows, o);
}

void attention_finish(const float* rows, const float* o, bfloat16* out) {
  aie::set_rounding(aie::rounding_mode::conv_even);
  const float* sum = rows + DIM_Q;
  for (unsigned row = 0; row < DIM_Q / r; ++row) {
    aie::vector<float, r * t> total;
    for (unsigned i = 0; i < r; ++i) total.insert(i, aie::broadcast<float, t>(sum[row * r + i]));
    aie::vector<float, r * t> share;
    for (unsigned i = 0; i < r * t / kLanes; ++i) share.insert(i, reciprocal(total.template extract<kLanes>(i)));
    for (unsigned d = 0; d < DIM_D / t; ++d) {
      const unsigned block = (row * (DIM_D / t) + d) * r * t;
      aie::store_v(out + block, aie::mul(aie::load_v<r * t>(o + block), share).template to_vector<bfloat16>());
    }
  }
}

}  // extern "C"
