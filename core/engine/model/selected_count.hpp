// Draws how many elements a rank selects in a modelled step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/engine/model/model_engine.hpp"
#include "core/engine/scheduler.hpp"

namespace sparfuse {

// Of a kSparsify operation: the elements that it is to keep, those of a tensor that is not
// sparsified all.
std::size_t KeptCount(const ModelConfig& config, const Op& sparsify);

// Whether ranks select unlike counts.
bool PayloadsDiffer(const ModelConfig& config);

// Of a kSparsify operation, by the sparsifier's own count and config.selection's spread about it.
// The same for equal arguments, whatever was drawn before; for all ranks where config.index_shared.
std::size_t SelectedCount(const ModelConfig& config, const Op& sparsify, int rank,
                          std::uint64_t step);

}  // namespace sparfuse
