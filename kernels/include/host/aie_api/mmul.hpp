// Matrix products of small blocks, with the shapes and the numerics of each generation.
//
// aie2p, bfloat16: one float32 rounding a step, k ascending (reproduced).
// aie2p with AIE_API_EMULATE_BFLOAT16_MMUL_WITH_BFP16: both operands become blocks of eight along K that share an exponent,
//   with eight-bit mantissas rounded by the core's mode (reproduced); the sum of the eight products is exact and rounded once
//   into the accumulator (modelled).
// aie2, bfloat16: products and accumulator are aligned to the largest exponent in a window of 23 bits, each rounded to nearest
//   even, then summed exactly (modelled after an emulator checked on npu1).
#pragma once

#include "accum.hpp"

#ifndef __AIE_ARCH__
#define __AIE_ARCH__ 21  // 20 = aie2, 21 = aie2p
#endif

namespace aie_host {

constexpr bool kAie2p = __AIE_ARCH__ == 21;
#ifdef AIE_API_EMULATE_BFLOAT16_MMUL_WITH_BFP16
constexpr bool kBlockFloat = kAie2p;
#else
constexpr bool kBlockFloat = false;
#endif

constexpr bool has_shape(unsigned m, unsigned k, unsigned n) {
  const unsigned shape = m * 10000 + k * 100 + n;
  if (kAie2p) return shape == 80808 || shape == 80804 || shape == 40808 || shape == 40804 || shape == 80108;
  return shape == 40804 || shape == 80808 || shape == 40808 || shape == 80804 || shape == 41604 || shape == 80108;
}

/// An integer quotient under a rounding mode; `value` is exact.
inline float rounded(float value, uint32_t mode) {
  using aie::rounding_mode;
  switch (static_cast<rounding_mode>(mode)) {
    case rounding_mode::floor: return std::floor(value);
    case rounding_mode::ceil: return std::ceil(value);
    case rounding_mode::symmetric_floor: return std::trunc(value);
    case rounding_mode::symmetric_ceil: return value < 0 ? std::floor(value) : std::ceil(value);
    default: return (value + 12582912.0F) - 12582912.0F;  // nearest even; other ties differ only at exact halves
  }
}

/// Eight values as whole multiples of one power of two. Returns that power.
inline float to_block(const float* values, unsigned stride, int32_t* mantissa, uint32_t mode) {
  uint32_t top = 0;
  for (unsigned i = 0; i < 8; ++i) top = std::max(top, bits(values[i * stride]) & 0x7F800000U);
  int exponent = static_cast<int>(top >> 23);
  for (;; ++exponent) {
    if (exponent <= 6) {
      std::fill_n(mantissa, 8, 0);
      return 0.0F;
    }
    const int inverse = 254 + 6 - exponent;
    const float unit = from_bits(static_cast<uint32_t>(exponent - 6) << 23);
    const float scale = inverse > 254 ? 1.0F / unit : from_bits(static_cast<uint32_t>(inverse) << 23);
    bool fits = true;
    for (unsigned i = 0; i < 8; ++i) {
      const float m = rounded(values[i * stride] * scale, mode);
      fits &= m >= -128.0F && m <= 127.0F;
      mantissa[i] = static_cast<int32_t>(m);
    }
    if (fits || exponent == 254) return unit;
  }
}

/// One accumulation step of aie2: `count` products and the accumulator in one aligned window.
inline float windowed_sum(float sum, const float* a, unsigned a_stride, const float* b, unsigned b_stride, unsigned count) {
  double term[17];
  int top = -10000;
  term[0] = sum;
  for (unsigned i = 0; i < count; ++i) term[i + 1] = static_cast<double>(a[i * a_stride]) * static_cast<double>(b[i * b_stride]);
  for (unsigned i = 0; i <= count; ++i) {
    if (term[i] != 0.0) top = std::max(top, std::ilogb(term[i]));
  }
  if (top == -10000) return 0.0F;
  const double unit = std::ldexp(1.0, top - 23);
  double total = 0.0;
  for (unsigned i = 0; i <= count; ++i) total += std::nearbyint(term[i] / unit);
  return flushed(static_cast<float>(total * unit));
}

}  // namespace aie_host

namespace aie {

template <unsigned M, unsigned K, unsigned N, typename TA, typename TB = TA, typename TAcc = accfloat>
class mmul {
  static_assert(std::is_same_v<TA, bfloat16> && std::is_same_v<TB, bfloat16> && std::is_same_v<TAcc, accfloat>);
  static_assert(aie_host::has_shape(M, K, N), "no such bfloat16 shape on this generation");

 public:
  static constexpr unsigned size_A = M * K, size_B = K * N, size_C = M * N;

  mmul() = default;
  explicit mmul(const accum<accfloat, size_C>& start) : sum_(start) {}
  template <typename T>
  explicit mmul(const vector<T, size_C>& start) : sum_(start) {}

  void mul(const vector<TA, size_A>& a, const vector<TB, size_B>& b) {
    sum_ = zeros<accfloat, size_C>();
    mac(a, b);
  }

  void mac(const vector<TA, size_A>& a, const vector<TB, size_B>& b) {
    float left[size_A], right[size_B];
    for (unsigned i = 0; i < size_A; ++i) left[i] = a.lane[i];
    for (unsigned i = 0; i < size_B; ++i) right[i] = b.lane[i];
    if constexpr (aie_host::kBlockFloat && K == 8 && N == 8) block_float(left, right);
    else if constexpr (aie_host::kAie2p) step_by_step(left, right);
    else windowed(left, right);
  }

  template <typename T>
  vector<T, size_C> to_vector(int = 0) const { return sum_.template to_vector<T>(); }
  accum<accfloat, size_C> to_accum() const { return sum_; }

 private:
  void step_by_step(const float* a, const float* b) {
    for (unsigned i = 0; i < M; ++i) {
      for (unsigned k = 0; k < K; ++k) {
        for (unsigned j = 0; j < N; ++j) sum_.lane[i * N + j] = aie_host::flushed(sum_.lane[i * N + j] + a[i * K + k] * b[k * N + j]);
      }
    }
  }

  void block_float(const float* a, const float* b) {
    const uint32_t mode = aie_host::core->rounding;
    int32_t left[M][8], right[N][8];
    float left_unit[M], right_unit[N];
    for (unsigned i = 0; i < M; ++i) left_unit[i] = aie_host::to_block(a + i * K, 1, left[i], mode);
    for (unsigned j = 0; j < N; ++j) right_unit[j] = aie_host::to_block(b + j, N, right[j], mode);
    for (unsigned i = 0; i < M; ++i) {
      for (unsigned j = 0; j < N; ++j) {
        int32_t dot = 0;
        for (unsigned k = 0; k < 8; ++k) dot += left[i][k] * right[j][k];
        float& sum = sum_.lane[i * N + j];
        sum = aie_host::flushed(sum + static_cast<float>(dot) * left_unit[i] * right_unit[j]);
      }
    }
  }

  void windowed(const float* a, const float* b) {
    constexpr unsigned step = K < 8 ? K : 8;
    for (unsigned i = 0; i < M; ++i) {
      for (unsigned j = 0; j < N; ++j) {
        float& sum = sum_.lane[i * N + j];
        for (unsigned k = 0; k < K; k += step) sum = aie_host::windowed_sum(sum, a + i * K + k, 1, b + k * N + j, N, step);
      }
    }
  }

  accum<accfloat, size_C> sum_;
};

}  // namespace aie
