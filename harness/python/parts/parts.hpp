// Makes parts of methods out of classes that are written in Python.
#pragma once

#include "core/coding/quantizers/quantizer.hpp"
#include "core/collective/collective.hpp"
#include "core/engine/engine.hpp"
#include "core/feedback/feedback.hpp"
#include "core/fusion/plan.hpp"
#include "core/sparsify/sparsifier.hpp"
#include "harness/catalog/python_plugin.hpp"
#include "harness/python/parts/part_class.hpp"

namespace sparfuse::python {

// Each needs the GIL, throws Error{kConfig} naming file, class and what was expected, and returns
// what lives as long as the program. What they make takes the GIL for calls alone; what a class
// raises or returns wrongly is Error{kConfig}.

// A class with select(g, k), as PythonSparsifier (python_sparsifier.hpp) takes it, made with these
// keywords: the caller owns it.
std::unique_ptr<Sparsifier> SparsifierOf(PartSource source, const Options& options,
                                         std::uint64_t seed);

// A class with plan(layout, given), called twice for a plan, which must be the same:
//
//   layout   the tensors in ready order, with name, shape, numel and dense
//   given    density, workers, nodes, ranks_per_node, sparsified ("never", "ahead", "behind"), and
//            where the class says needs_profile = True also backward_seconds, a number a tensor,
//            exchange_seconds(elements) and select_seconds(elements)
//   returns  the number of tensors of each unit, or for each unit a dict of tensors, and of
//            density, lane ("compute", "side", "host"), path and partitions where they differ
//
// Also read: paper, deviations, ahead_only.
const PlannerDescriptor& PlannerOf(PartSource source);

// A class with ready(e, tensor), and with step(e) and end(e) where it wants to know of a step's
// begin and of the end of backward; the attribute sparsified is "never", "ahead" or "behind". One
// object a rank. e is the engine:
//
//   pack(tensor), sparsify(what), exchange(of), negotiate(values, then), merge(exchange),
//   apply(exchange), timer(seconds, then)
//            return a number that stands for what was asked for. Most take lane, after, a list of
//            such numbers, and then, a function without arguments; sparsify takes a tensor or
//            (first, last) of packed ones, and density, by default the plan's; exchange sums what
//            was selected, or packed, over all ranks, and takes a label and a channel.
//   layout, plan, density, rank, workers, nodes, ranks_per_node, payload_bytes(selection),
//   begin_wait(label), end_wait(label)
//
// Also read: paper, deviations, sends_units (whether it sends the units of any plan).
const StrategyDescriptor& StrategyOf(PartSource source);

// A class with encoded_bytes(n), encode(x, random) and decode(b, n):
//
//   encoded_bytes  bytes of n elements, a multiple of 4
//   encode         x [n] float32, read-only and valid during the call; random a
//                  numpy.random.Generator, keyed by seed, tensor, step and rank; returns
//                  encoded_bytes(n) bytes as uint8
//   decode         b as it was encoded, read-only, to n finite float32
//
// Also read: paper, deviations, unbiased, needs_feedback.
const QuantizerDescriptor& QuantizerOf(PartSource source);

// A class with compensate(name, g, r) and keep(name, x, indices, r), one object a rank:
//
//   compensate  gradient and residual, [n] float32 and read-only, to x, what is selected from
//   keep        writes to r what is not sent: x and the indices that are sent are read-only
//
// All are valid during the call only. Also read: conserves, by default True: x[indices] put in the
// place of r[indices] is x, bit for bit, where r is checked.
const FeedbackDescriptor& FeedbackOf(PartSource source);

// A class with run(comm, mine), a generator, and the attribute payload, "sparse" or "dense". mine
// is this rank's payload as uint8, or the [n] float32 to be summed; comm has
//
//   rank, size, elements
//   send(to, data), receive(source)  start a message, and return what a yield waits for: one, or a
//                                    list. Yielding a receive returns what came, as uint8.
//   decode(payload)                  indices and values of an uncoded one
//   work(kind, elements)             counts for the model: "add", "merge", "select", "hash"
//
// It returns the payloads of all ranks in rank order; with sums = True, or of dense ones, the [n]
// float32 of the sum. Sizes of messages may not depend on values: a dry run on all ranks says what
// it sends, for the model, and finds what is never sent or never received.
const CollectiveDescriptor& CollectiveOf(PartSource source);

inline constexpr harness::MakeParts kMakeParts{&PlannerOf, &StrategyOf, &FeedbackOf, &CollectiveOf,
                                               &QuantizerOf};

}  // namespace sparfuse::python
