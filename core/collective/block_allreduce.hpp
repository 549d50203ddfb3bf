// Declares the all-reduces of blocks that share a scale.
#pragma once

#include "core/collective/collective.hpp"

namespace sparfuse {

CollectiveDescriptor Int8BlocksAllReduce();
CollectiveDescriptor Int4BlocksAllReduce();
CollectiveDescriptor Fp8BlocksAllReduce();

}  // namespace sparfuse
