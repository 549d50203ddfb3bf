// Chooses the two cells that `sparfuse explain` compares, and finds the causes of the difference in
// their step time, in numbers and in words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/experiment/experiment.hpp"
#include "harness/report/results.hpp"

namespace sparfuse::harness {

struct ExplainRequest {
  std::string experiment;              // as typed, for the commands that errors offer
  std::string part;                    // "": any
  std::string of, over;                // "method=safusion,workers=2"; "" gives no key
  std::filesystem::path results = {};  // its trials' private.json has the reason of a failure
};

struct ExplainedCells {
  const CellResult* of = nullptr;
  const CellResult* over = nullptr;
};

// Finds the two cells that the request's keys leave. A key is a key of a configuration or a path
// into its tables (link.gbps=1). A value is JSON if it parses, else a string; "none" is null. The
// modelled twins of a part are searched if a side says mode=modelled or the request names their
// part. `parts` and `results` belong together; `rows` have the reason why a cell has no result.
//
// Throws Error{kConfig} for an unknown part, key or value (with the nearest known one); for keys
// that leave several cells (with the keys that distinguish them, and, if the sides agree in these,
// the completed command); for the same cell twice; and for a cell without a trial that counts (with
// the reason and the command that runs it).
ExplainedCells ChooseExplained(const std::vector<Part>& parts,
                               const std::vector<PartResult>& results,
                               const std::vector<TrialRow>& rows, const ExplainRequest& request);

// The tensors of an exchanged unit, by the plan that held.
struct UnitTensors {
  std::vector<std::string> names = {};
  std::uint64_t elements = 0;
  // If parts of units have owners: the number of this unit's parts; 0 if it is not sparsified.
  std::optional<int> partitions = {};
  std::optional<int> path = {};  // of the unit, if units have paths
  bool operator==(const UnitTensors&) const = default;
};

// The reason of a wait of the compute lane.
struct StepWait {
  std::string what = {};  // "exchange", "negotiate", "local work", "other ranks", "before", "after"
  std::string unit = {};  // "unit 3"; "" of none
  double seconds = 0, until_last_rank_seconds = 0;
  std::optional<UnitTensors> tensors = {};
  bool operator==(const StepWait&) const = default;
};

// Seconds of work in parallel with the backward pass, or on other lanes.
struct BesideBackward {
  double exchanges = 0, lanes = 0, other_lanes_sparsify = 0;
  bool operator==(const BesideBackward&) const = default;
};

// The steps of a trial that kept spans; times are their means.
struct TracedSteps {
  std::vector<std::uint64_t> steps = {};
  std::vector<int> ranks = {};
  std::string sampling = {};
  std::vector<StepWait> waits = {};
  BesideBackward beside_backward = {};
  bool operator==(const TracedSteps&) const = default;
};

// The parts of a trial's median step in seconds, from the figures' program. They add up to "step".
// "align_wait" and "remainder" come besides.
struct BlockSteps {
  std::map<std::string, double> parts = {};
  std::vector<double> quartiles = {};  // lower and upper, of the steps' durations
  std::size_t steps = 0, middle = 0;
  std::string plan = {};  // "": none was stored
  std::optional<TracedSteps> traces = {};
  bool operator==(const BlockSteps&) const = default;
};
using StepsByBlock = std::map<int, BlockSteps>;

struct ExplainedSteps {
  StepsByBlock of, over;
};
// A file of `sparfuse_report parts`. Throws Error{kData}.
ExplainedSteps ReadExplainedSteps(const std::filesystem::path& file);

// of - over; without ends if nothing is paired or one block leaves none.
struct StepDifference {
  double value = 0;
  std::optional<double> low = {}, high = {};
  std::size_t n = 0;  // pairs of blocks
  bool operator==(const StepDifference&) const = default;
};

// A part of the step: means over the blocks that are compared.
struct PartOfStep {
  std::string name = {};
  double of = 0, over = 0;
  StepDifference difference = {};
  bool operator==(const PartOfStep&) const = default;
};

// Over the blocks of both sides if these have one mode and share some; else of all, unpaired.
struct ComparedSteps {
  bool paired = false;
  std::vector<int> of_blocks = {}, over_blocks = {};
  std::map<std::string, PartOfStep> parts = {};
};
ComparedSteps CompareSteps(const ExplainedSteps& steps, bool same_mode);

// Means over the blocks with traces.
struct TracedMeans {
  std::size_t blocks = 0;
  std::vector<std::uint64_t> steps = {};
  std::vector<int> ranks = {};
  std::string sampling = {};
  std::size_t plans = 0;             // that differ, of all blocks
  std::vector<StepWait> waits = {};  // the longest first
  double exposed_seconds = 0, until_last_rank_seconds = 0;
  std::optional<BesideBackward> beside_backward = {};
  bool operator==(const TracedMeans&) const = default;
};

struct ExplainedSide {
  std::string name = {};  // the method, with further keys if both have the same
  std::string part = {}, cell = {}, mode = {};
  int workers = 0;
  std::string config_hash = {}, hardware = {};
  std::map<std::string, std::string> trials = {};  // of the blocks that are compared
  std::vector<int> blocks_left_out = {};
  std::vector<std::size_t> steps = {}, middle_steps = {};
  std::vector<double> quartiles = {};
  // Metrics of the data exchanged in a step.
  std::map<std::string, std::optional<double>> facts = {};
  TracedMeans traces = {};
  bool operator==(const ExplainedSide&) const = default;
};

struct Explanation {
  std::string experiment = {};
  ExplainedSide of = {}, over = {};
  bool paired = false;
  std::vector<std::string> differ_in = {};  // keys of the method
  // The other keys in which the cells differ, with both values: [of, over]. The values may have any
  // type, so they are JSON.
  std::map<std::string, nlohmann::json> unlike_in = {};
  PartOfStep step = {}, align_wait = {}, remainder = {};
  std::vector<PartOfStep> parts = {};  // "other" is the last; they add up to `step`

  // Whether the step's difference may be noise. With an interval, it may be if the interval
  // contains 0; without one it always may. None if the numbers are computed.
  std::optional<bool> within_noise() const;
};

// results: of the experiment, among them the two cells'.
Explanation Explain(const std::string& experiment, const std::vector<PartResult>& results,
                    const ExplainedCells& cells, const ExplainedSteps& steps);

// One line: which step is shorter, by how much, and the part that most of it comes from.
std::string ConclusionOf(const Explanation& found);
// The whole text. inputs: paragraphs on the inputs of declared clusters.
std::string WordsOf(const Explanation& found, const std::vector<std::string>& inputs);
// For --json and the figures' program, which draws the two steps.
nlohmann::json ToJson(const Explanation& found);

}  // namespace sparfuse::harness
