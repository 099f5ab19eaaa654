// What the kernels of the decoder overlay share: sizes, and the words in which a worker remembers where it is.
//
// A worker runs operator after operator. `decoder_begin` reads the operator's record and says how many tape objects and exchange rounds
// follow; `decoder_work` takes an object, `decoder_end` finishes them, `decoder_give` and `decoder_take` are one round.
// Every tape object has DIM_ROWS rows of DIM_D bfloat16, then float32[16]: biases of its rows, or of its keys.
#pragma once

#include <kernel_math.hpp>

#ifndef DIM_D
#define DIM_D 384
#endif
#ifndef DIM_ROWS
#define DIM_ROWS 8
#endif
#ifndef DIM_WORKERS
#define DIM_WORKERS 8
#endif
#ifndef DIM_KEYS
#define DIM_KEYS 192
#endif

namespace decoder {

using namespace kernel_math;

constexpr unsigned kHead = 64, kHeads = DIM_D / kHead, kSlice = DIM_D / DIM_WORKERS;
static_assert(DIM_D % kHead == 0 && kSlice % kLanes == 0 && DIM_ROWS <= kLanes && DIM_KEYS % kLanes == 0);
static_assert(4 * (kHeads + (kHeads + kLanes - 1) / kLanes * kLanes) <= 2 * kSlice, "maxima and sums are read as whole vectors from one slice");

enum Kind : int32_t { kEmbed, kProject, kScores, kValues, kVocabulary };
enum Source : int32_t { kNormed, kAsIs };
enum Target : int32_t { kQueryKeyValue, kResidual, kHidden };

/// One operator. `objects` < 0: as many as this worker has rows of the self cache.
struct Record {
  int32_t kind, objects, rounds, source, target, k, unused[2];
};

/// Registers of a worker, int32[32]. The first four are loop bounds of the core.
enum Register {
  rObjects, rRounds, rAppend, rTell,
  rOperator, rCount, rRound, rStep, rKind, rTarget, rK, rValid, rOwn, rWinner, rRecord, rWorker
};

/// What the host says, int32[8].
enum Parameter { pOperators, pLayers, pStep, pPosition, pWorker, pForced, pCross };

constexpr unsigned kLayerRecords = 10;

inline const float* bias_of(const bfloat16* object) { return reinterpret_cast<const float*>(object + DIM_ROWS * DIM_D); }

/// Dot product of k bfloat16.
inline float dot(const bfloat16* a, const bfloat16* b, unsigned k) {
  auto sum = aie::zeros<accfloat, 32>();
  for (unsigned j = 0; j < k; j += 32) sum = aie::mac(sum, aie::load_v<32>(a + j), aie::load_v<32>(b + j));
  return aie::reduce_add(sum.to_vector<float>());
}

/// Mean and scale of a LayerNorm without its affine part.
struct Normal {
  Floats mean, scale;

  explicit Normal(const float* x) {
    Floats sum = aie::zeros<float, kLanes>(), square = aie::zeros<float, kLanes>();
    for (unsigned i = 0; i < DIM_D; i += kLanes) sum = aie::add(sum, aie::load_v<kLanes>(x + i));
    mean = times(spread(aie::reduce_add(sum)), spread(1.0F / DIM_D));
    for (unsigned i = 0; i < DIM_D; i += kLanes) {
      const Floats centred = aie::sub(aie::load_v<kLanes>(x + i), mean);
      square = fma(centred, centred, square);
    }
    const Floats variance = times(spread(aie::reduce_add(square)), spread(1.0F / DIM_D));
    scale = inverse_root(aie::add(variance, spread(1.0e-5F)));
  }

  Floats of(const float* x) const { return times(aie::sub(aie::load_v<kLanes>(x), mean), scale); }
};

}  // namespace decoder
