// Describes a trial for readers, made of its trial.json or of its row in the index. Common parts of
// many trials are held once: JSON that is parsed at the first look, and short names.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/records/trial.hpp"
#include "harness/store/trial_files.hpp"

namespace sparfuse::harness {

// A value of JSON whose copies share one text. It reads like json; a copy that is changed becomes
// independent. For one thread at a time.
class StoredJson {
 public:
  StoredJson() = default;  // null
  StoredJson(nlohmann::json value);
  StoredJson(nlohmann::json::initializer_list_t members) : StoredJson(nlohmann::json(members)) {}
  // Precondition: `text` is JSON.
  static StoredJson OfText(std::string text);

  const nlohmann::json& Value() const;
  operator const nlohmann::json&() const { return Value(); }
  // Canonical, or as it was given; valid as long as a copy of this lives.
  std::string_view Text() const;

  bool contains(const std::string& key) const { return Value().contains(key); }
  template <class T>
  auto value(const char* key, const T& otherwise) const {
    return Value().value(key, otherwise);
  }
  const nlohmann::json& operator[](const std::string& key) const { return Value().at(key); }
  nlohmann::json& operator[](const std::string& key);

  friend bool operator==(const StoredJson& a, const StoredJson& b) {
    return a.shared_ == b.shared_ || a.Value() == b.Value();
  }
  friend bool operator==(const StoredJson& a, const nlohmann::json& b) { return a.Value() == b; }

 private:
  struct Shared {
    std::string text;  // "": not made yet
    std::optional<nlohmann::json> value;
  };
  std::shared_ptr<Shared> shared_;
};

// The one copy of `name` in this process; for a small number of different names.
std::string_view Interned(std::string_view name);

// A small map from interned names, in one block of memory. Its names, and text as values, are
// Interned.
template <class Value>
class NamedValues {
 public:
  using Entry = std::pair<std::string_view, Value>;

  NamedValues() = default;
  NamedValues(std::initializer_list<Entry> entries) {
    for (const auto& [name, value] : entries) Set(name, value);
  }
  template <class Other>
  NamedValues(const std::map<std::string, Other>& entries) {
    for (const auto& [name, value] : entries) Set(name, value);
  }

  void Set(std::string_view name, Value value) {
    if constexpr (std::is_same_v<Value, std::string_view>) value = Interned(value);
    const auto at = std::lower_bound(
        entries_.begin(), entries_.end(), name,
        [](const Entry& entry, std::string_view wanted) { return entry.first < wanted; });
    if (at != entries_.end() && at->first == name) {
      at->second = value;
    } else {
      entries_.emplace(at, Interned(name), value);
    }
  }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  auto find(std::string_view name) const {
    return std::find_if(begin(), end(), [&](const Entry& entry) { return entry.first == name; });
  }
  const Value& at(std::string_view name) const {
    const auto found = find(name);
    if (found == end()) throw std::out_of_range(std::string(name));
    return found->second;
  }
  bool contains(std::string_view name) const { return find(name) != end(); }
  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }
  friend bool operator==(const NamedValues&, const NamedValues&) = default;

 private:
  std::vector<Entry> entries_;  // by name
};

// How a trial was run: in a launch of its own, in turn with others, or drawn again and again.
struct RowLaunch {
  std::string id;
  std::size_t trials = 1;           // in the launch
  double start_seconds = 0;         // of its processes, once for all; 0: not known
  std::vector<double> rounds = {};  // step_seconds of each; empty: it took no turns
  // For a trial modelled on a declared cluster: metrics, each once for every draw of its inputs.
  std::map<std::string, std::vector<double>> draws = {};
};

struct TrialRow {
  std::string trial_id, experiment, part, kind, mode, method, workload;
  // system_hash: of the system that ran it or whose profile it was computed from; "HASH@ORIGIN"
  // after TellStoresApart found that other hosts may be meant.
  std::string config_hash, system_hash, status, failure_kind, directory, started_utc;
  std::string origin;       // OriginOf
  std::string original_id;  // of an early trial that came in a bundle, which names no store
  // Set by TellStoresApart. store: the store that counted the block, "" for the reading store.
  // block_apart: the number shared by trials of one block, which no other store's trial of the
  // system has.
  std::string store;
  std::optional<int> block_apart;
  int workers = 0;
  int block = 0;
  std::int64_t seed = 0;
  double seconds = 0;
  StoredJson config, system;
  // source, sources, software, environment, machine, sampling; for live trials that know them
  // launch ({"interface", "cores_a_rank"}), nodes and fingerprint; for results of others, imported
  StoredJson provenance;
  // The trial's readings of its machine, judged (harness/machine/quiet.hpp); null if it is modelled
  // or older.
  StoredJson quiet;
  RowLaunch launch;
  StoredJson revisions;
  NamedValues<double> metrics;
  NamedValues<std::string_view> units;  // of metrics
  std::vector<std::string> checks;      // the passed ones
  std::vector<std::string> failed_checks;
  std::vector<std::string> annotations;  // reasons why readers leave it out
  // The first number that its series do not give: nobody called the trial bad, but it counts no
  // more than if somebody had. Kept in the index, so that series are read once.
  std::string contradiction;
  FileStamp stamp;  // of the trial.json that it was read from

  bool counts() const { return status == "ok" && !is_left_out(); }
  bool is_left_out() const { return !annotations.empty() || !contradiction.empty(); }
  // Sentences: annotations on it, and the contradictions in it.
  std::vector<std::string> WhyLeftOut() const;
  bool imported() const { return mode == kImported; }
  int paired_block() const { return block_apart.value_or(block); }
  bool disturbed() const;
  std::string WhyDisturbed() const;  // a sentence; "" if it is not disturbed
};

TrialRow RowOf(const Trial& trial);

// The number of hosts with its ranks; 0 if it does not say, for example if it is modelled.
int HostsOf(const TrialRow& trial);
// Whether trials of a cell may replace one another: they must have run on equal numbers of hosts.
bool RanAlike(const TrialRow& one, const TrialRow& other);

// In order of start; trials that started together, by the number that ends their ids.
void SortByAge(std::vector<TrialRow>& rows);

}  // namespace sparfuse::harness
