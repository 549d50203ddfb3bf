#include "harness/experiment/experiment.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <utility>

#include "harness/clusters/declared_cluster.hpp"
#include "harness/clusters/own_clusters.hpp"
#include "harness/experiment/cells.hpp"
#include "harness/experiment/claims_and_figures.hpp"
#include "harness/experiment/experiment_keys.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

std::vector<std::string> KeysOfBoth(std::string_view one, std::string_view other) {
  std::vector<std::string> keys = KeysOf(one);
  for (std::string& key : KeysOf(other)) keys.push_back(std::move(key));
  return keys;
}

void ReadRepeat(const TomlFile& file, const std::string& pointer, Part& part) {
  const std::string at = pointer + "/repeat";
  file.CheckKeys(at, "[repeat]", KeysOf("[repeat]"));
  part.blocks = static_cast<int>(file.Integer(at, "blocks", part.blocks, kBlocks));
  part.base_seed = file.Integer(at, "seed", part.base_seed, kSeeds);
  part.timeout_seconds = file.Number(at, "timeout_seconds", part.timeout_seconds, kTimeoutSeconds);
  part.predict = file.Boolean(at, "predict", part.predict);
  part.interleave = file.Boolean(at, "interleave", part.interleave);
}

// An id names a folder, which file systems allow no more than 255 characters.
void CheckLength(const TomlFile& file, const std::string& pointer, const std::string& id) {
  if (id.size() <= kLongestId) return;
  file.Fail(pointer,
            fmt::format("{} = \"{:.20}...\" has {} characters: expected at most {}: it "
                        "is part of folders' names",
                        pointer.substr(pointer.rfind('/') + 1), id, id.size(), kLongestId));
}

void ReadQuiet(const TomlFile& file, const std::string& pointer, QuietLimits& limits) {
  const std::string at = pointer + "/quiet";
  file.CheckKeys(at, "[quiet]", KeysOf("[quiet]"));
  limits.other_cpu = file.Number(at, "other_cpu", limits.other_cpu, kShareOfCores);
  limits.stolen = file.Number(at, "stolen", limits.stolen, kShareOfCores);
  limits.slowdown = file.Number(at, "slowdown", limits.slowdown, kSlowdown);
  limits.reruns = static_cast<int>(file.Integer(at, "reruns", limits.reruns, kReruns));
}

std::vector<std::string> ReadCalibration(const TomlFile& file) {
  const json* list = file.Find("/calibration");
  if (list == nullptr) return {};
  const bool good =
      list->is_array() && std::all_of(list->begin(), list->end(), [](const json& name) {
        if (!name.is_string()) return false;
        const auto& text = name.get_ref<const std::string&>();
        return std::count(text.begin(), text.end(), '/') >= 2;
      });
  if (!good) {
    file.FailValue("/calibration",
                   "a list of published numbers, each \"PAPER/ARTIFACT/METHOD\": \"SAFusion (HPDC "
                   "25)/Fig15a/WFBP\"");
  }
  return list->get<std::vector<std::string>>();
}

std::vector<NotRun> ReadNotRun(const TomlFile& file) {
  const json* list = file.Find("/not_run");
  if (list == nullptr) return {};
  if (!list->is_array()) file.FailValue("/not_run", "[[not_run]] tables");
  std::vector<NotRun> entries;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string at = "/not_run/" + std::to_string(i);
    file.CheckKeys(at, "[[not_run]]", KeysOf("[[not_run]]"));
    entries.push_back({file.RequiredString(at, "what"), file.RequiredString(at, "reason")});
  }
  return entries;
}

std::string Quoted(const std::set<std::string>& names) {
  std::vector<std::string> quoted;
  for (const std::string& name : names) quoted.push_back('"' + name + '"');
  return fmt::format("{}", fmt::join(quoted, ", "));
}

// A number that the profile was made to give says nothing when it comes back.
void RefuseClaimsOfCalibration(const TomlFile& file, const Experiment& experiment) {
  for (const auto& part : experiment.parts) {
    for (const auto& claim : part.claims) {
      const auto& given = experiment.calibration;
      if (std::find(given.begin(), given.end(), claim.source) == given.end()) continue;
      file.Fail("/calibration",
                fmt::format("[[claim]] \"{}\" of part {} has source = \"{}\", which calibration "
                            "names: expected no claim about a number that the profile was "
                            "calibrated with",
                            claim.quote, part.id, claim.source));
    }
  }
}

// A file that shows predictions says what they were calibrated with.
void CheckCalibrationIsNamed(const TomlFile& file, const Experiment& experiment,
                             const ProfileFolders& profiles) {
  std::set<std::string> used;
  for (const auto& part : experiment.parts) {
    for (const auto& cell : part.cells) {
      const std::string& cluster = cell.config.cluster;
      if (cluster.empty() || !IsDeclared(profiles, cluster)) continue;
      for (const ReferenceStep& reference : LoadDeclaredCluster(profiles, cluster).references) {
        if (reference.bar) used.insert(reference.bar->name());
      }
    }
  }
  const std::set<std::string> named(experiment.calibration.begin(), experiment.calibration.end());
  if (std::includes(named.begin(), named.end(), used.begin(), used.end())) return;
  file.Fail("/calibration",
            fmt::format("calibration = [{}]: expected [{}], which the clusters of this file are "
                        "calibrated with (`sparfuse calibrate`)",
                        Quoted(named), Quoted(used)));
}

Part ReadPart(const CellSource& source, const std::optional<Published>& published,
              const std::string& pointer, const GivenKeys& inherited, Part part) {
  const TomlFile& file = source.file;
  ReadRepeat(file, pointer, part);
  ReadQuiet(file, pointer, part.quiet);
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
  const auto has_method = [&](const std::string& name) {
    return std::any_of(part.cells.begin(), part.cells.end(),
                       [&](const Cell& cell) { return cell.config.method == name; });
  };
  part.reference = file.String(pointer, "reference", has_method("dense") ? "dense" : "");
  if (IsMethodFile(part.reference)) part.reference = MethodNameOf(part.reference);
  if (!part.reference.empty() && !has_method(part.reference)) {
    std::set<std::string> methods;
    for (const auto& cell : part.cells) methods.insert(cell.config.method);
    const std::vector<std::string> known(methods.begin(), methods.end());
    file.Fail(pointer + "/reference",
              fmt::format("reference = \"{}\": no cell has this method{}", part.reference,
                          Suggestion(part.reference, known)));
  }
  ReadClaims(file, pointer, part);
  ReadFigures(file, pointer, published, part);
  return part;
}

// Each part of an id names a folder, and the whole is in the path of every trial.
void CheckLengths(const TomlFile& file, const std::string& pointer, const std::string& id) {
  constexpr std::size_t kMostOfPart = 100, kMostParts = 10;
  std::size_t parts = 0;
  for (std::size_t begin = 0; begin <= id.size(); ++parts) {
    const std::size_t end = std::min(id.find('/', begin), id.size());
    if (end == begin) {
      file.FailValue(pointer, "no '/' at the ends and no two in a row: each part names a folder");
    }
    if (end - begin > kMostOfPart) {
      file.FailValue(
          pointer, fmt::format("parts of at most {} characters: each names a folder", kMostOfPart));
    }
    begin = end + 1;
  }
  if (parts > kMostParts)
    file.FailValue(pointer, fmt::format("at most {} parts between '/'", kMostParts));
}

// id, title and what else concerns the whole file.
Experiment ReadHead(const TomlFile& file) {
  Experiment experiment;
  experiment.file = file.name();
  file.CheckKeys("", "experiment", KeysOfBoth(kTopTable, kPartTable));
  experiment.id = file.RequiredString("", "id");
  CheckLength(file, "/id", experiment.id);
  for (const char c : experiment.id) {
    if (!std::isalnum(static_cast<unsigned char>(c)) &&
        std::string_view("-_/").find(c) == std::string_view::npos) {
      file.FailValue("/id", "letters, digits, '-', '_' and '/': it names folders");
    }
  }
  CheckLengths(file, "/id", experiment.id);
  experiment.title = file.String("", "title", experiment.id);
  experiment.paper = file.String("", "paper", "");
  experiment.minutes = file.Number("", "minutes", 0, kMinutes);
  experiment.calibration = ReadCalibration(file);
  experiment.not_run = ReadNotRun(file);
  return experiment;
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
  const auto published = ReadPublished(file, catalog, published_folder);
  Part base;
  base.id = "main";
  base.title = experiment.title;
  const json* parts = file.Find("/part");
  if (parts == nullptr) {
    experiment.parts.push_back(ReadPart(source, published, "", {}, base));
    RefuseClaimsOfCalibration(file, experiment);
    CheckCalibrationIsNamed(file, experiment, profiles);
    return experiment;
  }
  if (!parts->is_array() || parts->empty()) file.FailValue("/part", "[[part]] tables");
  for (const char* key : {"reference", "axis", "exclude", "claim", "figure"}) {
    if (file.Find(std::string("/") + key) != nullptr) {
      file.Fail(std::string("/") + key,
                fmt::format("{}: expected it inside a [[part]] of a file that has parts", key));
    }
  }
  const GivenKeys inherited = ReadDefaults(source, "/defaults", {});
  ReadRepeat(file, "", base);
  ReadQuiet(file, "", base.quiet);
  const std::vector<std::string> part_keys = KeysOfBoth("[[part]]", kPartTable);
  std::set<std::string> ids;
  for (std::size_t i = 0; i < parts->size(); ++i) {
    const std::string at = "/part/" + std::to_string(i);
    file.CheckKeys(at, "[[part]]", part_keys);
    Part part = base;
    part.id = file.RequiredString(at, "id");
    CheckLength(file, at + "/id", part.id);
    for (const char c : part.id) {
      if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_') {
        file.FailValue(at + "/id", "letters, digits, '-' and '_': it names a folder");
      }
    }
    CheckLengths(file, at + "/id", part.id);
    if (!ids.insert(part.id).second) file.FailValue(at + "/id", "an id that no other part has");
    part.title = file.String(at, "title", part.id);
    experiment.parts.push_back(ReadPart(source, published, at, inherited, std::move(part)));
    if (experiment.cells() > kMostCells) {
      file.Fail(at, fmt::format("with part \"{}\" the file has {} cells: expected at most {}; "
                                "divide it into several files",
                                experiment.parts.back().id, experiment.cells(), kMostCells));
    }
  }
  RefuseClaimsOfCalibration(file, experiment);
  CheckCalibrationIsNamed(file, experiment, profiles);
  return experiment;
}

Experiment LoadExperiment(const std::filesystem::path& path, const Catalog& catalog,
                          const ProfileFolders& profiles,
                          const std::filesystem::path& published_folder,
                          std::span<const std::string> joined) {
  return ParseExperiment(TomlFile::Read(path), catalog, profiles, published_folder, joined);
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

// fig3 before fig14: groups of digits compare as numbers.
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
      return std::pair(at - begin, text.substr(begin, at - begin));  // the longer is the larger
    };
    const auto of_a = number(a, i), of_b = number(b, j);
    if (of_a != of_b) return of_a < of_b;
  }
  return a.size() - i < b.size() - j;
}

}  // namespace

std::vector<fs::path> ExperimentFiles(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code none;  // a folder that is not there has none
  for (const auto& entry : fs::recursive_directory_iterator(folder, none)) {
    if (entry.path().extension() == ".toml" && !HasFormOfMethod(entry.path()))
      files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end(), [](const fs::path& a, const fs::path& b) {
    return NaturallyBefore(a.string(), b.string());
  });
  return files;
}

}  // namespace sparfuse::harness
