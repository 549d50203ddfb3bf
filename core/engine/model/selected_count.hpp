// Draws how many elements a rank selects in a modelled step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/engine/model/model_engine.hpp"
#include "core/engine/scheduler.hpp"

namespace sparfuse {

// How many elements of a range are to be kept: all of a tensor that is not sparsified; a range that
// is a whole tensor has its shape.
std::size_t KeptCount(const ModelConfig& config, Range range, double density);

// Whether ranks select unlike counts.
bool PayloadsDiffer(const ModelConfig& config);

// How many elements `rank` selects: the sparsifier's own count, with
// config.selection's spread about it. The same for equal arguments, whatever was drawn before; for
// all ranks where config.index_shared.
std::size_t SelectedCount(const ModelConfig& config, const SparsifyRequest& sparsify, int rank,
                          std::uint64_t step);

}  // namespace sparfuse
