// Reads an experiment file: checks it and expands it to cells; finds the files beneath a folder.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/catalog/catalog.hpp"
#include "harness/clusters/profile_folders.hpp"
#include "harness/files/toml_file.hpp"
#include "harness/machine/quiet.hpp"
#include "harness/statistics/statistics.hpp"

namespace sparfuse::harness {

struct Cell {
  CellConfig config;
  std::string config_hash;
  nlohmann::json json;  // the configuration as stored, for code that chooses keys by name
  // The name of its method in figures and tables. If one axis lists a method with several options,
  // they are added: "zen (balance ranges)".
  std::string label;
  bool joined = false;                  // of a method that the file does not name
  std::vector<int> first_blocks = {0};  // of live trials: each begins the part's number of blocks

  Cell() = default;
  explicit Cell(CellConfig made);
};

struct ExcludedCell {
  nlohmann::json cell;  // the keys as defaults and axes give them
  std::string reason;
};

// The quantity of a claim: the metric of `of` divided by that of `over`, their difference, or `of`
// alone.
enum class Compared { kRatio, kDifference, kValue };

// One pair of cells, or one cell, of a [[claim]]; docs/experiments/claims-and-figures.md, "Claims".
struct Claim {
  std::string quote, metric;
  std::string sentence, setting;  // of the quote: less the combination of for_each, and that alone
  std::string source;             // the place of the number, "SAFusion (HPDC 25)/Fig14a", or ""
  Compared compared = Compared::kRatio;
  nlohmann::json of, over;                 // as the file gives them, completed by for_each
  std::size_t of_cell = 0, over_cell = 0;  // positions in the part's cells; equal for kValue
  // Either the number that a paper states, in its text and in its figure if they differ, or a
  // relation to a bound.
  std::optional<double> stated, figure;
  bool judge_figure = false;
  double judged() const { return judge_figure ? *figure : *stated; }
  Bound bound;
};

// [repeat]
struct Repeat {
  int blocks = 1;
  std::int64_t base_seed = 1;    // the seed of block b is base_seed + b
  double timeout_seconds = 600;  // of a whole trial
  bool predict = false;          // live throughput cells get a modelled twin
  bool interleave = true;        // live throughput cells of a block run side by side
};

struct Part : Repeat {
  std::string id, title;
  std::string reference;          // the method that others are compared with, or ""
  QuietLimits quiet;              // of live trials
  nlohmann::json defaults, axes;  // as the file gives them
  std::vector<Cell> cells;        // in the order of the axes, the first outermost
  std::vector<ExcludedCell> excluded;
  std::vector<std::string> joined;  // methods of its cells that the file does not name
  std::vector<Claim> claims;
  nlohmann::json figures = nlohmann::json::array();  // as given, completed: kinds have unlike keys
};

// A result of a paper for which there is no cell.
struct NotRun {
  std::string what, reason;
};

struct Experiment {
  std::string id, title, paper;
  std::filesystem::path file;
  double minutes = 0;  // the time of its trials, as the file states it; 0: not stated
  // The published numbers that profiles of its clusters are calibrated with, each
  // "PAPER/ARTIFACT/METHOD"; no claim may be about them.
  std::vector<std::string> calibration;
  std::vector<NotRun> not_run;
  std::vector<Part> parts;

  std::size_t cells() const;
};

// Reads and checks everything; nothing has started when it throws. Throws Error{kConfig} naming
// file, line, key, value, the expected form and the nearest known name. `profiles` is the folder of
// measured clusters that `cluster` may name. `published_folder` has the papers' numbers for
// [published]. Each of `joined`, a method or the absolute path of a method's file, joins every axis
// of methods and the figures' lists of methods. Its cells that make no sense are excluded with the
// reason.
Experiment ParseExperiment(const TomlFile& file, const Catalog& catalog,
                           const ProfileFolders& profiles,
                           const std::filesystem::path& published_folder = {},
                           std::span<const std::string> joined = {});

// The modelled twins of the part's live throughput cells, as a part named "<id>.predicted". It may
// have no cells.
Part PredictedPart(const Part& part);

// Every part, followed by its twins if it asks for them.
std::vector<Part> PartsWithTwins(const Experiment& experiment);

// The end of the id of a part's twins.
inline constexpr std::string_view kTwinsSuffix = ".predicted";
// IsOfTwins: whether the part consists of twins. HasTwins: whether the twins of parts[i] follow it.
bool IsOfTwins(const Part& part);
bool HasTwins(const std::vector<Part>& parts, std::size_t i);

// The methods of its cells.
std::set<std::string> MethodsOf(const Part& part);

// The methods in the denominators of the part's ratios: its reference, and those that figures name.
std::set<std::string> DenominatorsOf(const Part& part);

// The .toml files below `folder`, without files of methods, sorted so that fig3 comes before fig14.
// Empty if the folder does not exist.
std::vector<std::filesystem::path> ExperimentFiles(const std::filesystem::path& folder);

}  // namespace sparfuse::harness
