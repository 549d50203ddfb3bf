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

// The caller of each holds the GIL. Each throws Error{kConfig} naming file, class and the expected
// form. The returned descriptor lives as long as the program. Its parts take the GIL for calls
// alone. They throw Error{kConfig} if a class raises an error or returns a wrong value.

// Wraps an object with a method select(g, k) that returns the indices to send:
//
//   g           [n] float32, a read-only NumPy view of x = gradient + residual, valid during the
//               call only
//   k           max(1, trunc(density * n)), below n: density 1 sends everything without a call
//   name, step  of the tensor, as keywords, if its signature has parameters of these names or
//               takes any (**keywords)
//   returns     integers in [0, n), all different, in any order, as an array of one dimension or
//               a sequence: k of them, or, without `exact_count`, between 1 and the slot's capacity
//
// An error that the method raises is thrown as pybind11::error_already_set.
std::unique_ptr<Sparsifier> WrapSparsifier(const std::string& name, pybind11::object object,
                                           bool exact_count);

// A class with such a select, made with these keywords: the caller owns it.
std::unique_ptr<Sparsifier> SparsifierOf(PartSource source, const Options& options,
                                         std::uint64_t seed);

// A class with plan(layout, given), called twice for a plan; both results must be equal:
//
//   layout   the tensors in ready order, with name, shape, numel and dense
//   given    density, workers, nodes, ranks_per_node, sparsified ("never", "ahead", "behind").
//            If the class says needs_profile = True, also backward_seconds, a number a tensor,
//            exchange_seconds(elements) and select_seconds(elements)
//   returns  the number of tensors of each unit, or a dict for each unit: tensors, and those of
//            density, lane ("compute", "side", "host"), path and partitions that differ
//
// Also read: paper, deviations, ahead_only.
const PlannerDescriptor& PlannerOf(PartSource source);

// A class with ready(e, tensor). It may have step(e), called when a step begins, and end(e), called
// when backward ends. The attribute sparsified is "never", "ahead" or "behind". Each rank has one
// object. e is the engine:
//
//   pack(tensor), sparsify(what), exchange(of), negotiate(values, then), merge(exchange),
//   apply(exchange), timer(seconds, then)
//            return a number for the operation. Most take lane; after, a list of such numbers;
//            and then, a function without arguments. sparsify takes a tensor or (first, last) of
//            packed ones, and density, by default the plan's. exchange sums the selected, or
//            packed, elements over all ranks, and takes a label and a channel.
//   layout, plan, density, rank, workers, nodes, ranks_per_node, payload_bytes(selection),
//   begin_wait(label), end_wait(label)
//
// Also read: paper, deviations, sends_units (whether it sends the units of any plan).
const StrategyDescriptor& StrategyOf(PartSource source);

// A class with encoded_bytes(n), encode(x, random) and decode(b, n):
//
//   encoded_bytes  bytes of n elements, a multiple of 4
//   encode         x [n] float32, read-only and valid during the call; random: a
//                  numpy.random.Generator, keyed by seed, tensor, step and rank; returns
//                  encoded_bytes(n) bytes as uint8
//   decode         b: an encoded result, read-only; returns n finite float32
//
// Also read: paper, deviations, unbiased, needs_feedback.
const QuantizerDescriptor& QuantizerOf(PartSource source);

// A class with compensate(name, g, r) and keep(name, x, indices, r). Each rank has one object:
//
//   compensate  takes gradient and residual, [n] float32 and read-only; returns x, from which
//               elements are selected
//   keep        writes the unsent part to r; x and the indices that are sent are read-only
//
// All are valid during the call only. Also read: conserves, by default True. It means that r with
// r[indices] replaced by x[indices] is x, bit for bit; then r is checked.
const FeedbackDescriptor& FeedbackOf(PartSource source);

// A class with run(comm, mine), a generator, and the attribute payload, "sparse" or "dense". mine
// is this rank's payload as uint8, or the [n] float32 to be summed. comm has
//
//   rank, size, elements
//   send(to, data), receive(source)  start a message. A yield waits for the returned object, or
//                                    for a list of them. Yielding a receive returns the bytes
//                                    that came, as uint8.
//   decode(payload)                  indices and values of an uncoded payload
//   work(kind, elements)             counts for the model: "add", "merge", "select", "hash"
//
// It returns the payloads of all ranks in rank order. With sums = True, and for dense payloads, it
// returns the [n] float32 of the sum. Sizes of messages must not depend on values. A dry run on all
// ranks finds its messages, for the model, and finds messages that are never sent or never
// received.
const CollectiveDescriptor& CollectiveOf(PartSource source);

// Reads FILE from the current folder. Throws Error{kConfig} naming the file if it does not exist.
PartSource ReadPartFile(const std::string& kind, const std::string& name);

// From now on FindPlanner and its like find parts in Python files, "python:FILE.py:Class", and in
// plugins, "library:FILE.so:NAME", with the GIL or without. A file that was edited is another part.
void FindPartsInFiles();

inline constexpr harness::MakeParts kMakeParts{&PlannerOf, &StrategyOf, &FeedbackOf, &CollectiveOf,
                                               &QuantizerOf};

}  // namespace sparfuse::python
