// Describes the sparsifiers `sidco`, whose thresholds come from distributions fitted in stages.
#pragma once

#include "core/sparsify/sparsifier.hpp"

namespace sparfuse {

SparsifierDescriptor SidcoDescriptor();
SparsifierDescriptor SidcoPaperDescriptor();

}  // namespace sparfuse
