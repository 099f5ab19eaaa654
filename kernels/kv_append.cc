// One new row of the key and value caches, made ready for the DMA that writes it to its place.
//
// row: bfloat16[2, width] = key, value of this worker's slice. Limits: width a multiple of 16.
// Stack: 512 B. Rounding: conv_even. Alignment: 64 B.
#include <kernel_math.hpp>

extern "C" void kv_append(const float* key, const float* value, bfloat16* row, int32_t width) {
  using namespace kernel_math;
  aie::set_rounding(aie::rounding_mode::conv_even);
  for (int32_t i = 0; i < width; i += kLanes) {
    aie::store_v(row + i, narrowed(aie::load_v<kLanes>(key + i)));
    aie::store_v(row + width + i, narrowed(aie::load_v<kLanes>(value + i)));
  }
}
