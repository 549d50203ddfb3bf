#include "harness/experiment/experiment.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "harness/clusters/declared_cluster.hpp"
#include "harness/experiment/cells.hpp"
#include "harness/experiment/claims_and_figures.hpp"
#include "harness/experiment/experiment_keys.hpp"
#include "harness/records/cell_keys.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

// Reads a part's [repeat] and [quiet], which override those of its file.
void ReadRepeatAndQuiet(const TomlFile& file, const std::string& pointer, Part& part) {
  ReadTable<Repeat>(file, pointer + "/repeat", "[repeat]", part);
  GivenQuiet quiet{part.quiet};
  ReadTable(file, pointer + "/quiet", "[quiet]", quiet);
  part.quiet = quiet;
}

void CheckCalibration(const TomlFile& file, const std::vector<std::string>& numbers) {
  const bool good = std::ranges::all_of(
      numbers, [](const std::string& name) { return std::ranges::count(name, '/') >= 2; });
  if (good) return;
  file.FailValue("/calibration",
                 "a list of published numbers, each \"PAPER/ARTIFACT/METHOD\": \"SAFusion (HPDC "
                 "25)/Fig15a/WFBP\"");
}

std::string Quoted(const std::set<std::string>& names) {
  return fmt::format("\"{}\"", fmt::join(names, "\", \""));
}

// A number that calibrated the profile proves nothing when the model reproduces it.
void RefuseClaimsOfCalibration(const TomlFile& file, const Experiment& experiment) {
  for (const auto& part : experiment.parts) {
    for (const auto& claim : part.claims) {
      const auto& given = experiment.calibration;
      if (std::ranges::find(given, claim.source) == given.end()) continue;
      file.Fail("/calibration",
                fmt::format("[[claim]] \"{}\" of part {} has source = \"{}\", which calibration "
                            "names: expected no claim about a number that the profile was "
                            "calibrated with",
                            claim.quote, part.id, claim.source));
    }
  }
}

// Whether the cluster was calibrated with the cell's step.
bool IsReference(const DeclaredCluster& cluster, const CellConfig& cell) {
  const auto is_step = [&](const ReferenceStep& step) {
    return step.workload == cell.workload && step.batch_per_worker == cell.batch_per_worker &&
           step.workers == cell.workers && step.method == cell.method &&
           step.method_options == cell.method_options && step.sparsifier == cell.sparsifier &&
           step.density == cell.density && step.link == cell.link;
  };
  return cluster.calibrated_on.empty() && cell.inputs.empty() &&
         std::ranges::any_of(cluster.references, [&](const ReferenceStep& step) {
           return is_step(step) || (step.over && is_step(*step.over));
         });
}

// Whether the cell's cluster was calibrated with the cell's own step, or states the time of this
// step, which is of one worker.
bool Calibrates(const CellConfig& cell, const ProfileFolders& profiles) {
  if (cell.cluster.empty() || !IsDeclared(profiles, cell.cluster)) return false;
  const DeclaredCluster& cluster = LoadDeclaredCluster(profiles, cell.cluster);
  const bool stated = std::ranges::any_of(cluster.compute, [&](const ComputeTime& time) {
    return time.workload == cell.workload && time.batch_per_worker == cell.batch_per_worker;
  });
  if (cell.workers == 1 && cell.sparsifier == "none" && stated) return true;
  return std::ranges::any_of(cluster.inputs, &DeclaredInput::calibrated) &&
         IsReference(cluster, cell);
}

// Lists in each figure with published numbers the cells that calibrated their clusters, whether a
// reference names a published number or states its own time. The model reproduces them.
void MarkCalibratingCells(Experiment& experiment, const ProfileFolders& profiles) {
  for (Part& part : experiment.parts) {
    for (json& figure : part.figures) {
      if (!figure.contains("published")) continue;
      json calibrating = json::array();
      for (const json& cell : figure["cells"]) {
        if (Calibrates(part.cells[cell.get<std::size_t>()].config, profiles))
          calibrating.push_back(cell);
      }
      if (!calibrating.empty()) figure["calibrating"] = std::move(calibrating);
    }
  }
}

// Refuses claims that compare two calibrating steps, because the model reproduces both.
void RefuseClaimsBetweenReferences(const TomlFile& file, const Part& part,
                                   const ProfileFolders& profiles) {
  for (const Claim& claim : part.claims) {
    if (claim.compared == Compared::kValue) continue;
    const CellConfig& of = part.cells[claim.of_cell].config;
    const CellConfig& over = part.cells[claim.over_cell].config;
    if (of.cluster.empty() || of.cluster != over.cluster || !IsDeclared(profiles, of.cluster))
      continue;
    const DeclaredCluster& cluster = LoadDeclaredCluster(profiles, of.cluster);
    if (!IsReference(cluster, of) || !IsReference(cluster, over)) continue;
    file.Fail(
        "/calibration",
        fmt::format("[[claim]] \"{}\" of part {} compares {} on {} workers with {} on {}, and "
                    "cluster {} is calibrated with both: expected a claim about a prediction",
                    claim.quote, part.id, of.method, of.workers, over.method, over.workers,
                    of.cluster));
  }
}

// A file that shows predictions must name the numbers that calibrated them.
void CheckCalibrationIsNamed(const TomlFile& file, const Experiment& experiment,
                             const ProfileFolders& profiles) {
  std::set<std::string> used;
  for (const auto& part : experiment.parts) {
    RefuseClaimsBetweenReferences(file, part, profiles);
    for (const auto& cell : part.cells) {
      const std::string& cluster = cell.config.cluster;
      if (cluster.empty() || !IsDeclared(profiles, cluster)) continue;
      for (const ReferenceStep& reference : LoadDeclaredCluster(profiles, cluster).references) {
        for (const CalibrationBar& bar : BarsOf(reference)) used.insert(bar.name());
      }
    }
  }
  const std::set<std::string> named(experiment.calibration.begin(), experiment.calibration.end());
  if (std::includes(named.begin(), named.end(), used.begin(), used.end())) return;
  const std::string lacks =
      named.empty() ? "the key \"calibration\" is missing"
                    : fmt::format("calibration = [{}] lacks published numbers", Quoted(named));
  file.Fail("/calibration",
            fmt::format("{}: a cluster of this file is calibrated with published numbers "
                        "(`sparfuse calibrate`), which the file must name; expected "
                        "calibration = [{}] above the first table",
                        lacks, Quoted(used)));
}

Part ReadPart(const CellSource& source, const std::optional<Published>& published,
              const std::string& pointer, const GivenKeys& inherited, Part part) {
  const TomlFile& file = source.file;
  GivenPart given;
  ReadTable(file, pointer, "[[part]]", given, KeysOf(pointer.empty() ? kTopTable : "[[part]]"));
  ReadRepeatAndQuiet(file, pointer, part);
  const GivenKeys defaults = ReadDefaults(source, pointer + "/defaults", inherited);
  part.defaults = json::object();
  for (const auto& [key, value] : defaults) part.defaults[key] = value.value;
  ExpandCells(source, pointer, defaults, part);
  if (const std::size_t blocks = static_cast<std::size_t>(part.blocks);
      part.cells.size() * blocks > kMostTrials) {
    file.Fail(pointer + "/repeat/blocks",
              fmt::format("blocks = {} with {} cells: expected at most {} trials in a part; lower "
                          "blocks, or drop values of the axes",
                          blocks, part.cells.size(), kMostTrials));
  }
  const std::set<std::string> methods = MethodsOf(part);
  part.reference = given.reference.empty() && methods.contains("dense") ? "dense" : given.reference;
  if (IsMethodFile(part.reference)) part.reference = MethodNameOf(part.reference);
  if (!part.reference.empty() && !methods.contains(part.reference)) {
    const std::vector<std::string> known(methods.begin(), methods.end());
    file.Fail(pointer + "/reference",
              fmt::format("reference = \"{}\": no cell has this method{}", part.reference,
                          Suggestion(part.reference, known)));
  }
  ReadClaims(file, pointer, part);
  ReadFigures(file, pointer, published, part);
  return part;
}

// Each component of an id names a folder of at most 255 characters in file systems. The whole id is
// part of every trial's path. marks: allowed characters beside letters and digits.
void CheckId(const TomlFile& file, const std::string& pointer, const std::string& id,
             std::string_view marks, const char* expected) {
  if (id.size() > kLongestId) {
    file.Fail(pointer, fmt::format("id = \"{:.20}...\" has {} characters: expected at most {}: it "
                                   "is part of folders' names",
                                   id, id.size(), kLongestId));
  }
  const bool good = std::ranges::all_of(id, [&](unsigned char c) {
    return std::isalnum(c) != 0 || marks.find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (!good) file.FailValue(pointer, expected);
  constexpr std::size_t kMostParts = 10;
  std::size_t parts = 0;
  for (std::size_t begin = 0; begin <= id.size(); ++parts) {
    const std::size_t end = std::min(id.find('/', begin), id.size());
    if (end == begin) {
      file.FailValue(pointer, "no '/' at the ends and no two in a row: each part names a folder");
    }
    begin = end + 1;
  }
  if (parts > kMostParts)
    file.FailValue(pointer, fmt::format("at most {} parts between '/'", kMostParts));
}

// Says where a key of cells belongs that is above all tables.
void RefuseCellKeys(const TomlFile& file) {
  for (const auto& [key, value] : file.Find("")->items()) {
    if (FindCellKey(key) == nullptr || value.is_object()) continue;
    file.Fail("/" + key, fmt::format("experiment: {} = {} is a key of cells: expected it in "
                                     "[defaults] or an [[axis]]",
                                     key, Shown(value)));
  }
}

// Reads id, title and the other keys of the whole file.
Experiment ReadHead(const TomlFile& file) {
  GivenHead given;
  RefuseCellKeys(file);
  ReadTable(file, "", "experiment", given, KeysOf(kPartTable));
  CheckId(file, "/id", given.id, "-_/", "letters, digits, '-', '_' and '/': it names folders");
  CheckCalibration(file, given.calibration);
  Experiment experiment;
  experiment.file = file.name();
  experiment.id = given.id;
  experiment.title = given.title.empty() ? given.id : given.title;
  experiment.paper = given.paper;
  experiment.minutes = given.minutes;
  experiment.calibration = given.calibration;
  experiment.not_run = ReadTables<NotRun>(file, "/not_run", "[[not_run]]");
  return experiment;
}

void ReadParts(const CellSource& source, const std::optional<Published>& published,
               const json& parts, Part base, Experiment& experiment) {
  const TomlFile& file = source.file;
  if (!parts.is_array() || parts.empty()) file.FailValue("/part", "[[part]] tables");
  for (const char* key : {"reference", "axis", "exclude", "claim", "figure"}) {
    if (file.Find(std::string("/") + key) != nullptr) {
      file.Fail(std::string("/") + key,
                fmt::format("{}: expected it inside a [[part]] of a file that has parts", key));
    }
  }
  const GivenKeys inherited = ReadDefaults(source, "/defaults", {});
  ReadRepeatAndQuiet(file, "", base);
  std::set<std::string> ids;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string at = "/part/" + std::to_string(i);
    GivenPartName given;
    ReadTable(file, at, "[[part]]", given, KeysOf(kPartTable));
    CheckId(file, at + "/id", given.id, "-_", "letters, digits, '-' and '_': it names a folder");
    Part part = base;
    part.id = given.id;
    part.title = given.title.empty() ? given.id : given.title;
    if (!ids.insert(part.id).second) file.FailValue(at + "/id", "an id that no other part has");
    experiment.parts.push_back(ReadPart(source, published, at, inherited, std::move(part)));
    if (experiment.cells() > kMostCells) {
      file.Fail(at, fmt::format("with part \"{}\" the file has {} cells: expected at most {}; "
                                "divide it into several files",
                                experiment.parts.back().id, experiment.cells(), kMostCells));
    }
  }
}

}  // namespace

Cell::Cell(CellConfig made)
    : config(std::move(made)), config_hash(ConfigHash(config)), json(ToJson(config)) {}

std::size_t Experiment::cells() const {
  std::size_t count = 0;
  for (const auto& part : parts) count += part.cells.size();
  return count;
}

Experiment ParseExperiment(const TomlFile& file, const Catalog& catalog,
                           const ProfileFolders& profiles,
                           const std::filesystem::path& published_folder,
                           std::span<const std::string> joined) {
  const CellSource source{file, catalog, profiles, joined};
  Experiment experiment = ReadHead(file);
  const auto published = ReadPublished(file, catalog, published_folder, profiles.PublishedOfUser());
  Part base;
  base.id = "main";
  base.title = experiment.title;
  if (const json* parts = file.Find("/part")) {
    ReadParts(source, published, *parts, std::move(base), experiment);
  } else {
    experiment.parts.push_back(ReadPart(source, published, "", {}, std::move(base)));
  }
  RefuseClaimsOfCalibration(file, experiment);
  CheckCalibrationIsNamed(file, experiment, profiles);
  MarkCalibratingCells(experiment, profiles);
  return experiment;
}

Part PredictedPart(const Part& part) {
  Part twins;
  twins.id = part.id + std::string(kTwinsSuffix);
  twins.title = part.title + ", predicted by the model";
  twins.reference = part.reference;
  twins.base_seed = part.base_seed;
  twins.timeout_seconds = part.timeout_seconds;
  twins.defaults = part.defaults;
  twins.defaults["mode"] = "modelled";
  twins.defaults["cluster"] = kThisMachine;
  twins.axes = part.axes;
  for (const auto& cell : part.cells) {
    if (cell.config.kind != TrialKind::kThroughput || cell.config.modelled()) continue;
    CellConfig twin = cell.config;
    twin.mode = Mode::kModelled;
    twin.cluster = kThisMachine;
    twins.cells.emplace_back(std::move(twin)).label = cell.label;
  }
  return twins;
}

std::vector<Part> PartsWithTwins(const Experiment& experiment) {
  std::vector<Part> parts;
  for (const auto& part : experiment.parts) {
    parts.push_back(part);
    if (!part.predict) continue;
    if (Part twins = PredictedPart(part); !twins.cells.empty()) parts.push_back(std::move(twins));
  }
  return parts;
}

bool IsOfTwins(const Part& part) { return part.id.ends_with(kTwinsSuffix); }

bool HasTwins(const std::vector<Part>& parts, std::size_t i) {
  return i + 1 < parts.size() && parts[i + 1].id == parts[i].id + std::string(kTwinsSuffix);
}

std::set<std::string> MethodsOf(const Part& part) {
  std::set<std::string> methods;
  for (const Cell& cell : part.cells) methods.insert(cell.config.method);
  return methods;
}

std::set<std::string> DenominatorsOf(const Part& part) {
  std::set<std::string> methods;
  if (!part.reference.empty()) methods.insert(part.reference);
  for (const json& figure : part.figures) {
    for (const char* key : {"normalise", "reference"}) {
      if (figure.contains(key)) methods.insert(figure[key].get<std::string>());
    }
  }
  return methods;
}

namespace {

namespace fs = std::filesystem;

// fig3 comes before fig14: groups of digits compare as numbers.
bool NaturallyBefore(const std::string& a, const std::string& b) {
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!digit(a[i]) || !digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    const auto number = [&](const std::string& text, std::size_t& at) {
      const std::size_t begin = at;
      while (at < text.size() && digit(text[at])) ++at;
      return std::pair(at - begin, text.substr(begin, at - begin));  // a longer number is larger
    };
    const auto of_a = number(a, i), of_b = number(b, j);
    if (of_a != of_b) return of_a < of_b;
  }
  return a.size() - i < b.size() - j;
}

}  // namespace

std::vector<fs::path> ExperimentFiles(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code none;  // a missing folder has no files
  for (const auto& entry : fs::recursive_directory_iterator(folder, none)) {
    if (entry.path().extension() == ".toml" && !HasFormOfMethod(entry.path()))
      files.push_back(entry.path());
  }
  std::ranges::sort(files, [](const fs::path& a, const fs::path& b) {
    return NaturallyBefore(a.string(), b.string());
  });
  return files;
}

}  // namespace sparfuse::harness
