// Times a short fixed computation, which says how fast a core is at the moment.
#pragma once

namespace sparfuse::harness {

// Processor seconds of this thread for one run of the loop, a few tenths of a millisecond: the
// median of five. Processor time, so that waiting for a core does not count; that shows in CpuUse.
// What counts is how fast the core computes: its clock, and a neighbour on the same physical core,
// which no counter of this system sees. The loop is integer arithmetic in registers on as many
// independent chains as keep all units of a core busy, so that a neighbour is felt; it touches no
// memory, so that it leaves the caches to the steps around it and does not see what other cores do
// to those.
double ReferenceLoopSeconds();

}  // namespace sparfuse::harness
