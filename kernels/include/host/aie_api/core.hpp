// State of one AI Engine core as a kernel sees it, for the host compiler.
//
// Reproduced: rounding and saturation are registers of the core that keep their value from kernel to kernel and from
// dispatch to dispatch, and come out of reset as `floor` and `none`. A misaligned vector access, which the chip silently
// moves to the aligned address, and a read of local memory that nobody wrote are faults here.
#pragma once

#include <cstdint>
#include <cstdio>

namespace aie {

/// How a result is made narrower. Numbers as in the control register of AIE-ML.
enum class rounding_mode : unsigned {
  floor = 0,             ///< towards minus infinity; the value after reset
  ceil = 1,              ///< towards plus infinity
  symmetric_floor = 2,   ///< towards zero
  symmetric_ceil = 3,    ///< away from zero
  negative_inf = 8,      ///< to nearest, ties towards minus infinity
  positive_inf = 9,      ///< to nearest, ties towards plus infinity
  symmetric_zero = 10,   ///< to nearest, ties towards zero
  symmetric_inf = 11,    ///< to nearest, ties away from zero
  conv_even = 12,        ///< to nearest, ties to even
  conv_odd = 13,         ///< to nearest, ties to odd
};

enum class saturation_mode : unsigned { none = 0, saturate = 1, symmetric = 3 };

}  // namespace aie

namespace aie_host {

enum Fault : int32_t { kNone = 0, kMisaligned = 1, kUninitialised = 2, kCascadeEmpty = 3 };

constexpr int kCascadeBeats = 4096;
constexpr int kBeatBytes = 64;

/// One direction of a cascade between two neighbours; the simulator owns it.
struct Cascade {
  int64_t head = 0, tail = 0;
  alignas(64) uint8_t beats[kCascadeBeats][kBeatBytes];
};

/// Registers of a core; npusim keeps one for every core (kernels.py has the same layout).
struct Core {
  uint32_t rounding = 0;
  uint32_t saturation = 0;
  int32_t fault = kNone;
  float perturbation = 0.0F;  ///< relative error added to exp2 and tanh, whose exact values on the chip are not published
  Cascade* cascade_in = nullptr;
  Cascade* cascade_out = nullptr;
  char message[160] = {};
};

inline Core reset_core;
inline Core* core = &reset_core;

/// Remember the first thing that went wrong; the kernel goes on, as it would on the chip.
inline void fault(Fault kind, const char* what, const void* where) {
  if (core->fault == kNone) {
    core->fault = kind;
    std::snprintf(core->message, sizeof core->message, "%s at %p", what, where);
  }
}

/// What the simulator fills local memory with: signalling NaNs, as bfloat16 and as float32, that no arithmetic produces.
constexpr uint32_t kPoison = 0x7FBA7FBA;

}  // namespace aie_host

extern "C" {
/// The core whose registers the next kernel call uses.
__attribute__((used, visibility("default"))) inline void aie_host_enter(aie_host::Core* core) { aie_host::core = core; }
}

namespace aie {

inline void set_rounding(rounding_mode mode) { aie_host::core->rounding = static_cast<unsigned>(mode); }
inline void set_saturation(saturation_mode mode) { aie_host::core->saturation = static_cast<unsigned>(mode); }

}  // namespace aie

inline void event0() {}
inline void event1() {}
