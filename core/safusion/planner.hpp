// SAFusion's two schemes (HPDC 2025): buffers of a fixed size, which a strategy fills, and adaptive
// ones, whose sizes a planner chooses so that communication hides behind backward and
// sparsification.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "core/fusion/layout.hpp"
#include "core/fusion/plan.hpp"

namespace sparfuse {

// Section 3.1: fills a buffer of fixed size with sparsified tensors.
//
// Each tensor is sparsified when it is ready and appended to the open buffer. A rank wants to close
// the buffer after the tensor that fills it (payload >= buffer_bytes) or after the last tensor of
// the layout. Ranks select different counts, so they want different ends. They agree over the
// control channel on the maximum of these ends, and the buffer is sent once this rank has all of
// its tensors. The time from this rank's wish to the launch is the wait that alignment (section
// 3.2) removes. The last buffer ends at the last tensor on every rank; its end is negotiated, too,
// so that all ranks count the same buffers.
struct StrategyDescriptor;  // core/engine/engine.hpp
extern const StrategyDescriptor kSafusionNaive;

// The planner "safusion", in one of three forms. Times come from PlanTimes unless said otherwise.
//
// paper:     section 3.3 as printed. The first buffer ends when fusing beats sending its tensors
//            one by one (Eq. 2). Each further buffer ends when its backward and sparsification
//            cover the exchange before it (Eq. 1). From the buffer on at which all exchanges
//            together exceed all computation, the buffers are merged into one (Eq. 3). Eq. 1 is
//            read as in the text and in Fig. 10: a buffer grows until it covers.
// profiled:  the optimum that these rules approximate. Of all partitions it takes one whose last
//            exchange ends earliest, and of those the one with the fewest buffers. The model is the
//            paper's: one thread runs backward and sparsification in turn, the other runs one
//            exchange at a time. It differs from the paper in these points:
//            - An exchange begins when its buffer is full and the exchange before it has ended;
//              Eq. 1 ignores earlier exchanges that are still under way.
//            - The tail merges only if it then ends earlier. Eq. 3 also merges the buffer that is
//              being sent when computation ends, which delays its exchange until then.
//            - The first buffer is no exception. Eq. 2 asks whether fusing saves time in itself,
//              but it saves none if the exchange would have been hidden.
//            By its times it is therefore never later than equal counts, one buffer, a buffer for
//            each tensor, or the paper's rules. Measured times vary, and every delay shows in a
//            plan without slack. A plan that ends up to `tolerance` later is therefore taken
//            instead if it ends earliest when exchanges take twice as long.
// authors:   the planner and the tables published with the code (planner.hpp), as buffers of a live
//            layout: the first buffer has its true length, and empty ones are dropped.
extern const PlannerDescriptor kSafusionPlanner;

// The number of tensors of each buffer as the published planner lists them, quirks included. The
// first number is one too large, so that the sum is the number of tensors plus one. A buffer may be
// empty.
// `model` is a row of the published backward times (core/cost/authors_tables.hpp).
std::vector<std::size_t> AuthorsBufferLengths(const GradientLayout& layout, std::string_view model,
                                              double density);

}  // namespace sparfuse
