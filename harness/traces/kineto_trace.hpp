// Writes a step of our own in the form of torch.profiler's files, for HolisticTraceAnalysis,
// Perfetto and `sparfuse trace` itself. Spans on a lane become kernels on a stream, each with a
// launch.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/timeline.hpp"
#include "harness/records/trial.hpp"

namespace sparfuse::harness {

struct KinetoStep {
  int rank = 0, world = 1;
  bool modelled = false;
  bool dense = true;  // exchanges are all-reduces of ready gradients; else all-gathers of payloads
  std::vector<LayoutTensor> tensors;  // names and shapes
  std::vector<Span> spans;            // of the rank
};

// The text of a file with one rank, as HolisticTraceAnalysis reads them. Launches, AccumulateGrad
// and the step's annotations are synthetic, and marked so.
std::string KinetoTrace(const KinetoStep& step);

// The spans of a trial's trace.json, by rank. Throws Error{kData} for another form.
std::map<int, std::vector<Span>> SpansOfTrace(std::string_view text, const std::string& file);

}  // namespace sparfuse::harness
