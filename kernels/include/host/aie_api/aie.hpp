// The part of the AIE API that the kernels of this project use, for a host compiler: same names, same template shapes.
//
// A kernel includes <aie_api/aie.hpp>; with Peano that is AMD's header, here it is this one. kernels/README.md says what is
// reproduced, what is modelled and what is unknown.
#pragma once

#include "accum.hpp"
#include "bfloat16.hpp"
#include "core.hpp"
#include "elementary.hpp"
#include "mmul.hpp"
#include "vector.hpp"
