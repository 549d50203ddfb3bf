// Makes two systems with trials of real cells, whose times are the model's, for tests of compare.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/catalog/catalog.hpp"
#include "harness/clusters/profile_file.hpp"
#include "harness/compare/comparison_table.hpp"
#include "harness/compare/modelled/modelled_side.hpp"
#include "harness/compare/side.hpp"
#include "harness/experiment/experiment.hpp"
#include "tests/support/tree/source_directory.hpp"

namespace sparfuse::harness {

inline constexpr double kRounding = 1e-9;

// The project's own profile: "digits-resnet" and others on two cores.
inline ProfileOutcomes ProjectProfile() {
  return ReadProfiles(testing::SourceDirectory() / "results" / "profiles" / "epyc-2core.json");
}

// A machine of this profile whose backward pass takes `backward` times as long, and each round of
// its links `links` times as long.
inline ProfileOutcomes Slower(ProfileOutcomes outcomes, double backward, double links) {
  for (ProfileOutcome& outcome : outcomes) {
    BackwardTimes& times = *outcome.profile.backward;
    for (double* seconds : {&times.forward_seconds, &times.tail_seconds, &*times.hooked_seconds,
                            &*times.unhooked_seconds})
      *seconds *= backward;
    for (ProfiledTensor& tensor : times.tensors) tensor.seconds *= backward;
    if (!outcome.profile.link) continue;
    for (ProfilePoint& point : outcome.profile.link->round_seconds) point.seconds *= links;
  }
  return outcomes;
}

// The same times, with errors divided by `times`.
inline ProfileOutcomes BetterKnown(ProfileOutcomes outcomes, double times) {
  for (ProfileOutcome& outcome : outcomes) {
    for (auto& [place, error] : outcome.profile.relative_errors) {
      error.of_all /= times;
      if (!error.of_each) continue;
      for (double& each : *error.of_each) each /= times;
    }
  }
  return outcomes;
}

// The tables of a comparison as a page shows them.
inline std::string TextOf(const ShownComparison& shown) {
  std::string text;
  for (const Table& table : TablesOf(shown)) text += Render(table, TableFormat::kMarkdown);
  return text;
}

// Two systems, a and b. `outcome` gives that of a trial.
class TwoSides {
 public:
  explicit TwoSides(nlohmann::json (*outcome)(const TrialRow&)) {
    for (const char* name : {"a", "b"})
      sides_.push_back(SystemSide{name, std::string("machine ") + name, {}, outcome});
  }

  // Adds a trial that ran well on the machine of its side.
  TrialRow& AddRow(std::size_t side, TrialRow row) {
    const std::string& name = sides_[side].name;
    row.trial_id = name + std::to_string(sides_[side].rows.size());
    row.experiment = "e";
    row.kind = "throughput";
    row.system_hash = name;
    row.system = {{"cpu_model", "cpu " + name},
                  {"cores", 2},
                  {"memory_gib", 4},
                  {"gpus", nlohmann::json::array()}};
    row.status = "ok";
    row.units = {{"throughput", "images/s"}};
    return sides_[side].rows.emplace_back(std::move(row));
  }

  std::vector<SystemSide> sides_;
};

class ComparedSides : public TwoSides {
 public:
  static constexpr int kBlocks = 3;

  ComparedSides()
      : TwoSides([](const TrialRow& row) { return row.provenance["outcome"]; }),
        catalog_(BuiltInCatalog()),
        profiles_("nowhere") {}

  // Cells of an experiment file with these [[axis]] tables.
  std::vector<Cell> Cells(const std::string& axes) const {
    const std::string text =
        "id = \"e\"\n[defaults]\nmode = \"emulated\"\nworkload = \"digits-resnet\"\nworkers = 2\n"
        "link = { gbps = 1, alpha_us = 100 }\n" +
        axes;
    return ParseExperiment(TomlFile::Parse(text, "e.toml"), catalog_, profiles_).parts[0].cells;
  }

  // The cell's step by the model of a machine with this profile.
  static double StepSeconds(const Cell& cell, const ProfileOutcomes& outcomes) {
    CellConfig modelled = cell.config;
    modelled.mode = Mode::kModelled;
    modelled.cluster = "this-machine";
    return ModelSteps({modelled, 1, 0, ""}, ProfilesOf(outcomes, modelled)).seconds;
  }

  TrialRow& Add(std::size_t side, const Cell& cell, int block, double step_seconds) {
    TrialRow row;
    row.part = "main";
    row.mode = NameOf(cell.config.mode);
    row.method = cell.config.method;
    row.workload = cell.config.workload;
    row.workers = cell.config.workers;
    row.config = cell.json;
    row.config_hash = cell.config_hash;
    row.provenance = {{"machine", {{"placement", nlohmann::json::array({"n1", "n1"})}}},
                      {"outcome", nullptr}};
    row.block = block;
    row.metrics = {{"throughput", 64 / step_seconds},
                   {"step_seconds", step_seconds},
                   {"exposed_communication_seconds", 0.5 * step_seconds}};
    return AddRow(side, std::move(row));
  }

  // Adds blocks of all cells with the model's times; steps of other methods than dense take
  // `methods_take` times as long.
  void AddModelled(std::size_t side, const std::vector<Cell>& cells,
                   const ProfileOutcomes& outcomes, double methods_take = 1) {
    for (int block = 0; block < kBlocks; ++block) {
      for (const Cell& cell : cells) {
        const double noise = 1 + 0.001 * block;  // shared by the whole block
        const double times = cell.config.method == "dense" ? 1 : methods_take;
        Add(side, cell, block, noise * times * StepSeconds(cell, outcomes));
      }
    }
  }

  std::vector<std::unique_ptr<ModelledSide>> Models(const ProfileOutcomes& a,
                                                    const ProfileOutcomes& b) const {
    std::vector<std::unique_ptr<ModelledSide>> models;
    for (const auto& [outcomes, name] : {std::pair(a, "a"), std::pair(b, "b")}) {
      const int stream = models.empty() || ToJson(a) == ToJson(b) ? 0 : 1;
      models.push_back(std::make_unique<ModelledSide>(
          profiles_, name, SideProfile{std::string("profile of ") + name, "", "", outcomes},
          stream));
    }
    return models;
  }

  Catalog catalog_;
  ProfileFolders profiles_;
};

}  // namespace sparfuse::harness
