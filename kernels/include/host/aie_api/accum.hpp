// Accumulators of float32 and the multiply-accumulate operations.
//
// Reproduced: every step rounds to float32 (nearest even) in the order written, and flushes denormal results to zero.
// Modelled: a product of two float32, which the chip builds from bfloat16 pieces, is taken as correctly rounded.
#pragma once

#include "vector.hpp"

namespace aie {

template <typename Tag, unsigned N>
struct accum;

template <unsigned N>
struct accum<accfloat, N> {
  static_assert(N == 8 || N == 16 || N == 32 || N == 64, "accumulators of float32 have 8, 16, 32 or 64 lanes");
  static constexpr unsigned size() { return N; }

  alignas(64) float lane[N];

  accum() = default;
  template <typename T>
  explicit accum(const vector<T, N>& values) { from_vector(values); }

  template <typename T>
  void from_vector(const vector<T, N>& values, int = 0) {
    for (unsigned i = 0; i < N; ++i) lane[i] = static_cast<float>(values.lane[i]);
  }

  template <typename T>
  vector<T, N> to_vector(int = 0) const {
    vector<T, N> result;
    if constexpr (std::is_same_v<T, bfloat16>) {
      const uint32_t mode = aie_host::core->rounding;
      for (unsigned i = 0; i < N; ++i) result.lane[i].word = aie_host::narrowed(lane[i], mode);
    } else {
      std::copy_n(lane, N, result.lane);
    }
    return result;
  }

  operator vector<float, N>() const { return to_vector<float>(); }
  operator vector<bfloat16, N>() const { return to_vector<bfloat16>(); }

  template <unsigned M>
  accum<accfloat, M> extract(unsigned part) const {
    accum<accfloat, M> result;
    std::copy_n(lane + part * M, M, result.lane);
    return result;
  }

  template <unsigned M>
  accum& insert(unsigned part, const accum<accfloat, M>& values) {
    std::copy_n(values.lane, M, lane + part * M);
    return *this;
  }
};

template <typename Tag, unsigned N>
  requires std::is_same_v<Tag, accfloat>
accum<Tag, N> zeros() {
  accum<Tag, N> result;
  std::fill_n(result.lane, N, 0.0F);
  return result;
}

#define AIE_HOST_ACCUM(expression)                                              \
  accum<accfloat, N> result;                                                    \
  for (unsigned i = 0; i < N; ++i) result.lane[i] = aie_host::flushed(expression); \
  return result;

template <typename T, unsigned N>
accum<accfloat, N> mul(const vector<T, N>& a, const vector<T, N>& b) { AIE_HOST_ACCUM(float(a.lane[i]) * float(b.lane[i])) }
template <typename T, unsigned N>
accum<accfloat, N> mul(const vector<T, N>& a, T b) { AIE_HOST_ACCUM(float(a.lane[i]) * float(b)) }
template <typename T, unsigned N>
accum<accfloat, N> negmul(const vector<T, N>& a, const vector<T, N>& b) { AIE_HOST_ACCUM(-(float(a.lane[i]) * float(b.lane[i]))) }
template <typename T, unsigned N>
accum<accfloat, N> mac(const accum<accfloat, N>& c, const vector<T, N>& a, const vector<T, N>& b) {
  AIE_HOST_ACCUM(c.lane[i] + float(a.lane[i]) * float(b.lane[i]))
}
template <typename T, unsigned N>
accum<accfloat, N> mac(const accum<accfloat, N>& c, const vector<T, N>& a, T b) { AIE_HOST_ACCUM(c.lane[i] + float(a.lane[i]) * float(b)) }
template <typename T, unsigned N>
accum<accfloat, N> msc(const accum<accfloat, N>& c, const vector<T, N>& a, const vector<T, N>& b) {
  AIE_HOST_ACCUM(c.lane[i] - float(a.lane[i]) * float(b.lane[i]))
}
template <unsigned N>
accum<accfloat, N> add(const accum<accfloat, N>& a, const accum<accfloat, N>& b) { AIE_HOST_ACCUM(a.lane[i] + b.lane[i]) }
template <typename T, unsigned N>
accum<accfloat, N> add(const accum<accfloat, N>& a, const vector<T, N>& b) { AIE_HOST_ACCUM(a.lane[i] + float(b.lane[i])) }
template <unsigned N>
accum<accfloat, N> sub(const accum<accfloat, N>& a, const accum<accfloat, N>& b) { AIE_HOST_ACCUM(a.lane[i] - b.lane[i]) }

#undef AIE_HOST_ACCUM

/// Integers as float32.
template <typename T, unsigned N>
vector<float, N> to_float(const vector<int32_t, N>& v) {
  static_assert(std::is_same_v<T, float>);
  vector<float, N> result;
  for (unsigned i = 0; i < N; ++i) result.lane[i] = static_cast<float>(v.lane[i]);
  return result;
}

/// float32 as the nearest integers, ties to even, saturated: the magic-number addition of the chip's library.
template <typename T, unsigned N>
vector<int32_t, N> to_fixed(const vector<float, N>& v) {
  static_assert(std::is_same_v<T, int32_t>);
  vector<int32_t, N> result;
  for (unsigned i = 0; i < N; ++i) result.lane[i] = static_cast<int32_t>(std::nearbyint(std::clamp(v.lane[i], -2147483648.0F, 2147483520.0F)));
  return result;
}

}  // namespace aie

template <typename T>
void put_mcd(const T& beat) {
  static_assert(sizeof(T) == aie_host::kBeatBytes);
  aie_host::Cascade* out = aie_host::core->cascade_out;
  std::memcpy(out->beats[out->tail++ % aie_host::kCascadeBeats], &beat, sizeof beat);
}

template <typename T>
T get_scd() {
  static_assert(sizeof(T) == aie_host::kBeatBytes);
  aie_host::Cascade* in = aie_host::core->cascade_in;
  T beat{};
  if (in->head == in->tail) aie_host::fault(aie_host::kCascadeEmpty, "read of an empty cascade", in);
  else std::memcpy(&beat, in->beats[in->head++ % aie_host::kCascadeBeats], sizeof beat);
  return beat;
}
