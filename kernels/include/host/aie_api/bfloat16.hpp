// bfloat16 and the narrowing of float32 under the core's rounding mode.
#pragma once

#include <cstdint>
#include <cstring>

#include "core.hpp"

namespace aie_host {

inline uint32_t bits(float value) {
  uint32_t word;
  std::memcpy(&word, &value, sizeof word);
  return word;
}

inline float from_bits(uint32_t word) {
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

/// A float32 result of the accumulator: denormals become zero with their sign (npu1 silicon, see kernels/README.md).
inline float flushed(float value) {
  const uint32_t word = bits(value);
  return (word & 0x7F800000U) == 0 ? from_bits(word & 0x80000000U) : value;
}

/// Upper half of `word`, rounded by any mode but conv_even.
inline uint16_t narrowed_by_mode(uint32_t word, aie::rounding_mode mode) {
  using aie::rounding_mode;
  const bool negative = (word >> 31) != 0;
  const uint32_t kept = word >> 16, rest = word & 0xFFFFU;
  constexpr uint32_t half = 0x8000U;
  bool away = false;
  switch (mode) {
    case rounding_mode::floor: away = negative && rest != 0; break;
    case rounding_mode::ceil: away = !negative && rest != 0; break;
    case rounding_mode::symmetric_floor: away = false; break;
    case rounding_mode::symmetric_ceil: away = rest != 0; break;
    case rounding_mode::negative_inf: away = rest > half || (rest == half && negative); break;
    case rounding_mode::positive_inf: away = rest > half || (rest == half && !negative); break;
    case rounding_mode::symmetric_zero: away = rest > half; break;
    case rounding_mode::symmetric_inf: away = rest >= half; break;
    case rounding_mode::conv_even: away = rest > half || (rest == half && (kept & 1U) != 0); break;
    case rounding_mode::conv_odd: away = rest > half || (rest == half && (kept & 1U) == 0); break;
  }
  return static_cast<uint16_t>(kept + (away ? 1U : 0U));
}

/// float32 to bfloat16 under the core's rounding mode. Denormals are rounded, not flushed; NaN stays NaN.
inline uint16_t narrowed(float value, uint32_t mode) {
  const uint32_t word = bits(value);
  if ((word & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<uint16_t>((word >> 16) | 0x40U);
  if (mode == static_cast<uint32_t>(aie::rounding_mode::conv_even)) {
    return static_cast<uint16_t>((word + 0x7FFFU + ((word >> 16) & 1U)) >> 16);
  }
  return narrowed_by_mode(word, static_cast<aie::rounding_mode>(mode));
}

}  // namespace aie_host

/// The upper half of a float32.
struct bfloat16 {
  uint16_t word;

  bfloat16() = default;
  bfloat16(float value) : word(aie_host::narrowed(value, aie_host::core->rounding)) {}
  operator float() const { return aie_host::from_bits(static_cast<uint32_t>(word) << 16); }

  static bfloat16 of_bits(uint16_t bits) {
    bfloat16 value;
    value.word = bits;
    return value;
  }
};
static_assert(sizeof(bfloat16) == 2);
