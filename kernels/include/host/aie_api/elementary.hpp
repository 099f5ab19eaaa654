// Elementary functions.
//
// inv and invsqrt of bfloat16 follow the published recipes of the chip's library step by step (kernels/README.md has the source).
// exp2 and tanh are instructions of aie2p whose exact values are unknown: correctly rounded here, times 1 + perturbation.
#pragma once

#include "accum.hpp"

namespace aie {

template <unsigned N>
vector<bfloat16, N> inv(const vector<bfloat16, N>& v) {
  vector<bfloat16, N> result;
  for (unsigned i = 0; i < N; ++i) {
    const float x = v.lane[i];
    const float y0 = bfloat16::of_bits(static_cast<uint16_t>(0x7EB5 - v.lane[i].word));
    const float t = bfloat16(1.436142F - x * y0);
    const float y = bfloat16(-(float(bfloat16(t * y0)) * float(bfloat16(1.9395974F))));
    const float r = bfloat16(y * x + 2.0F);
    result.lane[i] = bfloat16(-(y * r));
  }
  return result;
}

template <unsigned N>
vector<bfloat16, N> invsqrt(const vector<bfloat16, N>& v) {
  vector<bfloat16, N> result;
  for (unsigned i = 0; i < N; ++i) {
    const float x = v.lane[i];
    const float y = bfloat16(aie_host::from_bits(0x5F1FFFF9U - (aie_host::bits(x) >> 1)));
    const float x2 = bfloat16(x * float(bfloat16(0.703952253F)));
    const float z = bfloat16(0.703952253F * 2.38924456F - x2 * float(bfloat16(y * y)));
    result.lane[i] = bfloat16(y * z);
  }
  return result;
}

/// 2 to the power of v; an instruction of aie2p only.
template <typename T, unsigned N>
vector<T, N> exp2(const vector<float, N>& v) {
  static_assert(std::is_same_v<T, bfloat16>);
  vector<T, N> result;
  for (unsigned i = 0; i < N; ++i) result.lane[i] = bfloat16(std::exp2(v.lane[i]) * (1.0F + aie_host::core->perturbation));
  return result;
}

/// Hyperbolic tangent; an instruction of aie2p only.
template <typename T, unsigned N>
vector<T, N> tanh(const vector<float, N>& v) {
  static_assert(std::is_same_v<T, bfloat16>);
  vector<T, N> result;
  for (unsigned i = 0; i < N; ++i) result.lane[i] = bfloat16(std::tanh(v.lane[i]) * (1.0F + aie_host::core->perturbation));
  return result;
}

}  // namespace aie
