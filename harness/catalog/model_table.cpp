#include "harness/catalog/model_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/options.hpp"
#include "core/fusion/layout.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/range.hpp"
#include "harness/files/toml_file.hpp"
#include "harness/records/cell_keys.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;
using workloads::LayerTensor;

constexpr Range kElements{1, 4'294'967'295};  // elements of a tensor: indices are 32 bits
constexpr std::size_t kMostDimensions = 64;
constexpr Range kMacs{0, 1e18};
constexpr Range kMicroseconds{0, 1e12};
constexpr Range kUnits{1, 1e9};
constexpr std::size_t kLongestName = 100;  // it names folders of trials

// Refuses duplicate names. The parser itself would silently keep the last of two members.
void RequireKeysOnce(const std::string& file, std::string_view text) {
  using Event = json::parse_event_t;
  std::vector<std::set<std::string>> open;  // the keys of each object around the place
  const auto see = [&](int, Event event, const json& parsed) {
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key && !open.back().insert(parsed.get<std::string>()).second) {
      SPARFUSE_THROW(kConfig, fmt::format("{}: the key {} is twice in one table: expected it once",
                                          file, parsed.dump()));
    }
    return true;
  };
  [[maybe_unused]] const json again = json::parse(text, see);
}

// One object of the file, and its name in errors.
class Members {
 public:
  Members(std::string where, const json& object) : where_(std::move(where)), object_(object) {}

  [[noreturn]] void Fail(const std::string& message) const {
    SPARFUSE_THROW(kConfig, where_ + ": " + message);
  }
  [[noreturn]] void FailValue(const char* key, const std::string& expected) const {
    Fail(fmt::format("{} = {}: expected {}", key, Shown(object_.at(key)), expected));
  }

  void CheckKeys(const std::vector<std::string>& known) const {
    for (const auto& [key, value] : object_.items()) {
      if (std::ranges::find(known, key) == known.end())
        Fail(fmt::format("unknown key \"{}\" = {}{}", key, Shown(value), Suggestion(key, known)));
    }
  }

  bool Has(const char* key) const { return object_.contains(key); }
  const json& Need(const char* key, const std::string& expected) const {
    if (!Has(key)) Fail(fmt::format("the key \"{}\" is missing: expected {}", key, expected));
    return object_.at(key);
  }
  std::string Text(const char* key) const {
    static const std::string kExpected = "a string that is not empty";
    const json& value = Need(key, kExpected);
    if (!value.is_string() || value.get_ref<const std::string&>().empty())
      FailValue(key, kExpected);
    return value.get<std::string>();
  }
  std::size_t Integer(const char* key, Range range) const {
    const json& value = Need(key, "an integer from " + harness::Text(range));
    if (const std::string wrong = WhatIsWrongWithInteger(value, range); !wrong.empty())
      FailValue(key, wrong);
    return value.get<std::size_t>();
  }
  double Number(const char* key, Range range) const {
    const json& value = Need(key, "a number from " + harness::Text(range));
    if (const std::string wrong = WhatIsWrongWithNumber(value, range); !wrong.empty())
      FailValue(key, wrong);
    return value.get<double>();
  }

 private:
  std::string where_;
  const json& object_;
};

class TableParser {
 public:
  TableParser(const std::filesystem::path& path, const json& root)
      : file_(path.string()), stem_(path.stem().string()), root_(root), top_(file_, root_) {}

  workloads::WorkloadDescriptor Parse() {
    if (!root_.is_object()) top_.Fail("expected an object");
    top_.CheckKeys({"name", "unit", "units_per_sample", "batch_per_worker", "broadcast_bytes",
                    "family", "source", "tensors", "forward_us", "update_us", "batch",
                    "measured_on"});
    CheckName();
    workloads::WorkloadDescriptor workload;
    workload.unit = top_.Text("unit");
    workload.units_per_sample = top_.Integer("units_per_sample", kUnits);
    workload.batch_per_worker = top_.Integer("batch_per_worker", Batches());
    workload.summary = top_.Text("source");
    workload.revision = kModelTableRevision;
    workload.table.emplace();
    if (top_.Has("family")) workload.table->family = Family();
    if (top_.Has("broadcast_bytes")) {
      workload.table->broadcast_bytes =
          static_cast<std::int64_t>(top_.Integer("broadcast_bytes", kBroadcastBytes));
    }
    const std::vector<Members> listed = Tensors();
    const std::vector<std::size_t> order = ReadyOrder(listed);
    workload.table->layers = Layers(listed, order);
    workload.table->times = Times(listed, order);
    return workload;
  }

 private:
  static Range Batches() { return FindCellKey("batch_per_worker")->range; }

  void CheckName() const {
    const bool good = stem_.size() <= kLongestName && std::ranges::all_of(stem_, [](char c) {
                        return std::isalnum(static_cast<unsigned char>(c)) ||
                               std::string_view("-_.").find(c) != std::string_view::npos;
                      });
    if (!good) {
      top_.Fail(fmt::format(
          "its name, \"{}\": expected up to {} letters, digits, '-', '_' and '.': it names folders",
          stem_, kLongestName));
    }
    if (top_.Text("name") != stem_)
      top_.FailValue("name", fmt::format("the file's name, \"{}\"", stem_));
  }

  std::string Family() const {
    const std::string family = top_.Text("family");
    const std::vector<std::string> known = workloads::Families();
    if (std::ranges::find(known, family) == known.end())
      top_.Fail(fmt::format("unknown family \"{}\"{}", family, Suggestion(family, known)));
    return family;
  }

  // The tensors in the order of the file.
  std::vector<Members> Tensors() const {
    static const std::string kExpected = "a list of at least one tensor";
    const json& list = top_.Need("tensors", kExpected);
    if (!list.is_array() || list.empty()) top_.FailValue("tensors", kExpected);
    if (list.size() > kMostTensors) {
      top_.Fail(
          fmt::format("tensors has {} entries: expected at most {}", list.size(), kMostTensors));
    }
    std::vector<Members> tensors;
    std::map<std::string, std::size_t> positions;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string where = fmt::format("{}: tensors[{}]", file_, i);
      if (!list[i].is_object()) {
        SPARFUSE_THROW(kConfig, fmt::format("{} = {}: expected an object", where, Shown(list[i])));
      }
      const std::string name = Members(where, list[i]).Text("name");
      const Members& tensor = tensors.emplace_back(fmt::format("{} \"{}\"", where, name), list[i]);
      tensor.CheckKeys({"name", "shape", "macs", "ready", "backward_us"});
      const auto [earlier, is_new] = positions.emplace(name, i);
      if (!is_new) {
        tensor.FailValue(
            "name",
            fmt::format("a name that tensors[{}] does not have: a tied weight is one tensor",
                        earlier->second));
      }
    }
    return tensors;
  }

  // Whether all tensors have the key. Throws if only some do.
  static bool AllHave(const std::vector<Members>& listed, const char* key) {
    const bool first = listed.front().Has(key);
    for (const Members& tensor : listed) {
      if (tensor.Has(key) == first) continue;
      const Members& without = first ? tensor : listed.front();
      without.Fail(
          fmt::format("the key \"{}\" is missing: expected it in every tensor or in none", key));
    }
    return first;
  }

  // [tensors] positions in the file, in ready order.
  static std::vector<std::size_t> ReadyOrder(const std::vector<Members>& listed) {
    std::vector<std::size_t> order(listed.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (!AllHave(listed, "ready")) return order;
    const std::size_t nobody = listed.size();
    const Range places{0, static_cast<double>(listed.size() - 1)};
    std::ranges::fill(order, nobody);
    for (std::size_t i = 0; i < listed.size(); ++i) {
      std::size_t& taken = order[listed[i].Integer("ready", places)];
      if (taken != nobody) {
        listed[i].FailValue("ready", fmt::format("each of {} once: tensors[{}] has it, too",
                                                 harness::Text(places), taken));
      }
      taken = i;
    }
    return order;
  }

  static LayerTensor Tensor(const Members& tensor) {
    static const std::string kExpected = fmt::format(
        "a list of 1 to {} integers from 1, whose product is at most {} (a scalar is [1])",
        kMostDimensions, static_cast<std::uint64_t>(kElements.most));
    const json& shape = tensor.Need("shape", kExpected);
    if (!shape.is_array() || shape.empty() || shape.size() > kMostDimensions)
      tensor.FailValue("shape", kExpected);
    LayerTensor layer{tensor.Text("name"), {}, 1, tensor.Number("macs", kMacs)};
    for (const json& size : shape) {
      if (!WhatIsWrongWithInteger(size, kElements).empty()) tensor.FailValue("shape", kExpected);
      layer.shape.push_back(size.get<std::int64_t>());
      layer.numel *= size.get<std::size_t>();  // both factors are below 2^32
      if (!kElements.Has(static_cast<double>(layer.numel))) tensor.FailValue("shape", kExpected);
    }
    return layer;
  }

  workloads::LayerTable Layers(const std::vector<Members>& listed,
                               const std::vector<std::size_t>& order) const {
    workloads::LayerTable layers;
    for (const std::size_t i : order) layers.tensors.push_back(Tensor(listed[i]));
    if (layers.macs() == 0 && !AllHave(listed, "backward_us")) {
      top_.Fail(
          "macs of all tensors are 0: expected one above 0, or backward_us of all: times of "
          "computation are in proportion to them");
    }
    return layers;
  }

  std::optional<workloads::MeasuredTimes> Times(const std::vector<Members>& listed,
                                                const std::vector<std::size_t>& order) const {
    workloads::MeasuredTimes times;
    for (const auto& [key, value] :
         {std::pair("forward_us", &times.forward_us), std::pair("update_us", &times.update_us)}) {
      if (top_.Has(key)) *value = top_.Number(key, kMicroseconds);
    }
    if (AllHave(listed, "backward_us")) {
      for (const std::size_t i : order)
        times.backward_us.push_back(listed[i].Number("backward_us", kMicroseconds));
      if (std::ranges::all_of(times.backward_us, [](double each) { return each == 0; }))
        top_.Fail("backward_us of all tensors are 0: expected one above 0, or none at all");
    }
    if (!times.forward_us && !times.update_us && times.backward_us.empty()) {
      for (const char* key : {"batch", "measured_on"}) {
        if (top_.Has(key)) top_.FailValue(key, "it beside forward_us, update_us or backward_us");
      }
      return std::nullopt;
    }
    times.batch = top_.Integer("batch", Batches());
    times.measured_on = top_.Text("measured_on");
    return times;
  }

  const std::string file_, stem_;
  const json& root_;
  const Members top_;
};

}  // namespace

workloads::WorkloadDescriptor ParseModelTable(const std::filesystem::path& path,
                                              std::string_view text) {
  const json root = ParseJson(text, path.string());
  RequireKeysOnce(path.string(), text);
  return TableParser(path, root).Parse();
}

namespace fs = std::filesystem;
namespace {

constexpr std::string_view kTablePrefix = "table:";
constexpr std::string_view kExtension = ".json";

// The text after the prefix: FILE.json in experiment files, NAME@HASH in cells.
std::string_view RestOf(std::string_view workload) { return workload.substr(kTablePrefix.size()); }

bool IsFile(std::string_view rest) { return rest.ends_with(kExtension); }

fs::path FindFile(const fs::path& file, const fs::path& folder) {
  std::vector<std::string> tried;
  for (const fs::path& from : {folder, fs::path()}) {
    const fs::path path = fs::absolute(from / file).lexically_normal();
    std::error_code failed;
    if (fs::is_regular_file(path, failed)) return path;
    if (tried.empty() || tried.front() != path.string()) tried.push_back(path.string());
  }
  SPARFUSE_THROW(kConfig,
                 fmt::format("no file at {}: expected a model table", fmt::join(tried, " or ")));
}

}  // namespace

std::string TableWorkloadName(std::string_view given, const fs::path& folder) {
  const std::string_view rest = RestOf(given);
  if (!IsFile(rest)) {
    SPARFUSE_THROW(kConfig, fmt::format("expected \"{}FILE{}\"{}", kTablePrefix, kExtension,
                                        rest.find('@') == std::string_view::npos
                                            ? ""
                                            : "; sparfuse computes the hash"));
  }
  const fs::path path = FindFile(rest, folder);
  const std::string text = ReadFile(path);
  const std::string name =
      fmt::format("{}{}@{}", kTablePrefix, path.stem().string(), ShortHash(text));
  if (workloads::FindTable(name) == nullptr) {  // an experiment calls this for each cell
    workloads::WorkloadDescriptor workload = ParseModelTable(path, text);
    workload.name = name;
    workloads::KnowTable(std::move(workload));
  }
  return name;
}

std::string WorkloadLabel(std::string_view workload) {
  if (!workloads::IsTable(workload)) return std::string(workload);
  const std::string_view rest = RestOf(workload);
  return IsFile(rest) ? fs::path(rest).stem().string()
                      : std::string(rest.substr(0, rest.rfind('@')));
}

bool MeansTable(std::string_view given, std::string_view resolved) {
  if (!workloads::IsTable(given) || !workloads::IsTable(resolved)) return false;
  return IsFile(RestOf(given)) && !IsFile(RestOf(resolved)) &&
         WorkloadLabel(given) == WorkloadLabel(resolved);
}

const workloads::WorkloadDescriptor& NeedTrainable(const Catalog& catalog,
                                                   const std::string& workload) {
  if (workloads::IsTable(workload)) {
    SPARFUSE_THROW(
        kConfig,
        fmt::format(
            "workload \"{}\": a table lists a model's tensors and cannot train it, only "
            "experiments in mode modelled take it; expected one of `sparfuse list workloads`",
            workload));
  }
  return NeedEntry(catalog.workloads, "workload", workload);
}

}  // namespace sparfuse::harness
