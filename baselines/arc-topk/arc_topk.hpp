// Declares ARC-Top-K's exchange: all ranks agree on the rows of a tensor that they send, by a
// sketch, so that an all-reduce of their values alone sums them.
//
// Source:      ARC-Top-K, arXiv 2510.26709, and the hooks that were published with it.
// Deviations:  in the descriptor.
//
// For each tensor, with the matrix G of rows of a rank's accumulated gradient (x = gradient +
// residual):
//
//   S = G V / sqrt(q)         V has q columns of normal numbers, drawn anew in every step, the same
//                             on all ranks
//   all-reduce of S           side by side of all tensors of a unit
//   the ceil(density * rows) rows whose sums of S have the largest norms
//   all-reduce of their values ("shared-indices-allreduce", which checks that they are the same)
//
// A tensor whose rows are all sent has no sketch. Memory "ef21m" keeps for each tensor an average h
// of gradients g, the part of it that other ranks have (told), and the sum of all ranks' parts:
//
//   h <- (1 - eta) h + eta g;  c = h - told;  told and the sum of all take c of the selected rows,
//   and the sum is applied. In the first step everything is sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/collective/collective.hpp"

namespace sparfuse::baselines {

inline constexpr std::size_t kRowOfVector = 256;

// A tensor as rows: of its first dimension, or of kRowOfVector elements if it has no other.
struct RowShape {
  RowShape(std::span<const std::int64_t> shape, std::size_t elements);

  std::size_t rows = 0;
  std::size_t length = 0;    // of a row
  std::size_t elements = 0;  // the last row may be shorter

  std::size_t LengthOf(std::size_t row) const;
  // The number of rows of a selection of this density: at least one.
  std::size_t Kept(double density) const;
};

// The rows of the largest squared norms of their sketches, ascending; the lower ones of equal.
//   sketch  [rows * columns] row-major
std::vector<std::uint32_t> LargestRows(std::span<const float> sketch, std::size_t columns,
                                       std::size_t kept);

// Options: `sketch`, the columns q; `memory`, the fate of rows that are not sent, and its `eta`;
// `seed`.
CollectiveDescriptor ArcRows();

}  // namespace sparfuse::baselines
