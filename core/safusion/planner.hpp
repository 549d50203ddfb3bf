// Chooses SAFusion's adaptive buffer sizes (HPDC 2025, section 3.3): how many tensors each buffer
// holds, so that communication hides behind backward and sparsification.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "core/fusion/layout.hpp"
#include "core/fusion/plan.hpp"

namespace sparfuse {

// The planner "safusion", in one of three forms. Times are those of PlanTimes unless said.
//
// paper:     section 3.3 as printed. The first buffer ends where fusing beats sending its tensors
//            one by one (Eq. 2), each further one where its backward and sparsification cover the
//            exchange before it (Eq. 1), and the buffers from which on all exchanges together
//            exceed all computation are merged into one (Eq. 3). Eq. 1 is taken as the text and
//            Fig. 10 have it: a buffer grows until it covers.
// profiled:  what these rules aim at, solved instead of approached: of all partitions, one whose
//            last exchange ends earliest, and of those the one with the fewest buffers. In this the
//            paper's own model holds: one thread runs backward and sparsification in turn, the
//            other one exchange at a time. It differs from the paper in that
//            - an exchange begins when its buffer is full and the exchange before it has ended;
//              Eq. 1 forgets what is still under way from earlier ones;
//            - the tail merges only where it then ends earlier; Eq. 3 merges the buffer that is
//              being sent when computation ends as well, which puts its exchange off till then;
//            - the first buffer is no exception: Eq. 2 asks whether fusing saves time in itself,
//              and no time is saved where the exchange would have been hidden.
//            By its times it is therefore never later than equal counts, one buffer, a buffer for
//            each tensor, or the paper's rules. Measured times vary, and a plan whose exchanges end
//            just when they must shows every delay: one that ends up to `tolerance` later is taken
//            instead if it is what ends earliest when exchanges take twice as long.
// authors:   the planner and the tables published with the code (planner.hpp), as buffers
//            of a live layout: the first is as long as it is, and empty ones are dropped.
extern const PlannerDescriptor kSafusionPlanner;

// Tensors of each buffer as the published planner lists them, quirks included: the first counts one
// more than it holds, and a buffer may be empty, so that the sum is the number of tensors plus one.
// `model` is a row of the published backward times (core/cost/authors_tables.hpp).
std::vector<std::size_t> AuthorsBufferLengths(const GradientLayout& layout, std::string_view model,
                                              double density);

}  // namespace sparfuse
