// Reads the measured times in a declared cluster's file.
#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>

#include "harness/catalog/catalog.hpp"
#include "harness/clusters/cluster_calibration.hpp"
#include "harness/clusters/parsing/cluster_file.hpp"
#include "harness/published/published.hpp"
#include "harness/records/cell_keys.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr Range kDensities{1e-9, 1};
constexpr const char* kBars = "";  // no file's name: all of them

// Inserts it at the front: the file's own times precede those that it takes over.
void AddCompute(DeclaredCluster& cluster, ComputeTime time) {
  cluster.compute.insert(cluster.compute.begin(), std::move(time));
}

// Divides a step on one card, less the update: a third for forward, two thirds for backward.
void SplitStep(const ClusterFile& file, const DeclaredCluster& cluster, double step_seconds,
               ComputeTime& time) {
  const double update = UpdateSeconds(cluster, time.workload);
  if (step_seconds <= update) {
    file->Fail("", fmt::format("a step of {} takes {:.4g} ms, its update alone {:.4g} ms at "
                               "memory_gbytes_per_s = {:g}: the two conflict",
                               time.workload, step_seconds * 1e3, update * 1e3,
                               cluster.Value("memory_gbytes_per_s")));
  }
  time.forward_seconds = (step_seconds - update) / 3;
  time.backward_seconds = 2 * time.forward_seconds;
}

// Two statements of one time may differ by this factor, because of rounding and means.
constexpr double kReadAlike = 1.05;

// Throws if the step's time at `at` contradicts its rate of samples. samples: samples of a step.
void CheckOneStep(const ClusterFile& file, const std::string& at, double samples) {
  if (!file.Has(at + "/step_ms")) return;
  const double step = file.Needed(at, "step_ms", kMilliseconds);
  const double by_rate = 1e3 * samples / file.Needed(at, "samples_per_s", kCosts);
  if (step <= by_rate * kReadAlike && by_rate <= step * kReadAlike) return;
  file->FailValue(
      at + "/step_ms",
      fmt::format("the step of {:g} samples at samples_per_s, {:g} ms, or one of the two "
                  "keys alone",
                  samples, by_rate));
}

bool AreAlike(double one, double other, double spread) {
  const double most = kReadAlike * spread;
  return one <= most * other && other <= most * one;
}

double SecondsOf(const ComputeTime& time) { return time.forward_seconds + time.backward_seconds; }

// Throws if a step is shorter than its forward and backward.
void CheckStepHolds(const ClusterFile& file, const std::string& at, double step,
                    double computation) {
  if (step * kReadAlike >= computation) return;
  file->Fail(at, fmt::format("a step of {:g} ms is shorter than its forward and backward, {:g} ms: "
                             "expected times of one step",
                             1e3 * step, 1e3 * computation));
}

class ReferenceReader {
 public:
  ReferenceReader(const ClusterFile& file, const ProfileFolders& profiles, DeclaredCluster& cluster)
      : file_(file), profiles_(profiles), cluster_(cluster) {}

  void Read(const std::string& at) {
    file_.Keys(at, "[[reference]]", {"families",    "workload",      "batch_per_worker",
                                     "workers",     "method",        "method_options",
                                     "sparsifier",  "density",       "link",
                                     "bar",         "row",           "forward_ms",
                                     "backward_ms", "sparsify_ms",   "exposed_ms",
                                     "step_ms",     "samples_per_s", "ratio",
                                     "over",        "spread",        "source"});
    ReferenceStep step;
    step.workload = file_.Workload(at);
    step.families = file_.Families(at, step.workload);
    step.batch_per_worker =
        file_.Count(at, "batch_per_worker", FindCellKey("batch_per_worker")->range);
    step.workers = file_.Count(at, "workers", kWorkersOfClusters);
    step.source = file_->RequiredString(at, "source");
    step.spread = file_.Spread(at, "measured");
    if (step.workers > cluster_.ranks()) {
      file_->FailValue(at + "/workers",
                       fmt::format("at most the cluster's {} devices", cluster_.ranks()));
    }
    ReadMethod(at, step);
    ReadLink(at, step);
    if (file_.Has(at + "/over") || file_.Has(at + "/ratio")) return UseRatio(at, std::move(step));
    const Seconds seconds = ReadSeconds(at, step);
    Use(at, seconds, step);
  }

 private:
  using Seconds = std::map<std::string, double>;  // keys as in "step_ms"

  void ReadLink(const std::string& at, ReferenceStep& step) const {
    const json* link = file_->Find(at + "/link");
    if (link == nullptr) return;
    const std::string wrong = WhatIsWrong("link", *link);
    if (!wrong.empty() || !link->is_object()) file_->FailValue(at + "/link", wrong);
    step.link = StoredLink(*link);
  }

  // Reads the ratio of two steps whose cells differ in the keys of [over]: a ratio, or two rows.
  void UseRatio(const std::string& at, ReferenceStep step) {
    const std::string over = at + "/over";
    if (!file_.Has(over)) file_->Fail(at, "ratio needs over = { keys of the other step }");
    for (const char* key : {"bar", "forward_ms", "backward_ms", "sparsify_ms", "exposed_ms",
                            "step_ms", "samples_per_s"}) {
      if (file_.Has(at + "/" + key)) {
        file_->Fail(at + "/" + key, "expected a row or a ratio, because over names another step");
      }
    }
    file_.Keys(over, "over",
               {"batch_per_worker", "workers", "method", "method_options", "sparsifier", "density",
                "link", "row"});
    ReferenceStep other = step;
    if (file_.Has(over + "/batch_per_worker")) {
      other.batch_per_worker =
          file_.Count(over, "batch_per_worker", FindCellKey("batch_per_worker")->range);
    }
    if (file_.Has(over + "/workers")) {
      other.workers = file_.Count(over, "workers", {1, static_cast<double>(cluster_.ranks())});
    }
    ReadMethod(over, other);
    ReadLink(over, other);
    const bool rows = file_.Has(at + "/row");
    if (rows == file_.Has(at + "/ratio") || rows != file_.Has(over + "/row")) {
      file_->Fail(at, "expected a ratio, or a row and another one in over: one of the two");
    }
    const auto seconds = [&](const std::string& table, ReferenceStep& of) {
      return of.workers * of.batch_per_worker / Row(table + "/row", of);
    };
    if (rows) {
      const double of_other = seconds(over, other);
      step.measured = seconds(at, step) / of_other;
    } else {
      step.measured = file_.Needed(at, "ratio", kCosts);
    }
    if (step.workers == 1 || other.workers == 1)
      file_->Fail(at, "expected several workers of both steps whose ratio is to be reproduced");
    step.over = std::make_shared<const ReferenceStep>(std::move(other));
    cluster_.references.push_back(std::move(step));
  }

  // Keys that the table lacks are as in `step`.
  void ReadMethod(const std::string& at, ReferenceStep& step) const {
    static const Catalog catalog = BuiltInCatalog();
    const bool same_method = !step.method.empty() && !file_.Has(at + "/method");
    step.method = file_->String(at, "method", step.method.empty() ? "wfbp" : step.method);
    const Method& method = *file_.At(
        at + "/method", [&] { return &NeedEntry(catalog.methods, "method", step.method); });
    const json* options = file_->Find(at + "/method_options");
    if (!same_method || options) {
      step.method_options = file_.At(at + "/method_options", [&] {
        return ResolveMethodOptions(catalog, method, options ? *options : json::object());
      });
      if (step.method_options.has_local_steps()) {
        file_->Fail(at + "/method",
                    fmt::format("method = \"{}\": its steps differ from one another; expected a "
                                "method that synchronises in every step",
                                step.method));
      }
    }
    const std::string like =
        step.sparsifier.empty() || step.sparsifier == "none" ? "dgc" : step.sparsifier;
    step.sparsifier = file_->String(at, "sparsifier", method.dense() ? "none" : like);
    if (step.sparsifier == "none") {
      step.density = 1;
      step.feedback = "none";
      return;
    }
    file_.At(at + "/sparsifier",
             [&] { NeedEntry(catalog.sparsifiers, "sparsifier", step.sparsifier); });
    step.density = file_->Number(at, "density", step.density < 1 ? step.density : 0.01, kDensities);
    step.feedback = method.feedback;
    file_.At(at, [&] { cluster_.CheckSparsifier(CellOf(cluster_, step)); });
  }

  // Reads times, a published bar with times, or a row: exactly one of the three.
  Seconds ReadSeconds(const std::string& at, ReferenceStep& step) {
    Seconds seconds;
    for (const char* key : {"forward_ms", "backward_ms", "sparsify_ms", "exposed_ms", "step_ms"}) {
      if (file_.Has(at + "/" + key)) seconds[key] = 1e-3 * file_.Needed(at, key, kMilliseconds);
    }
    const double samples = static_cast<double>(step.workers) * step.batch_per_worker;
    if (file_.Has(at + "/samples_per_s")) {
      CheckOneStep(file_, at, samples);
      seconds["step_ms"] = samples / file_.Needed(at, "samples_per_s", kCosts);
    }
    const double computation = seconds.contains("forward_ms") && seconds.contains("backward_ms")
                                   ? seconds["forward_ms"] + seconds["backward_ms"]
                                   : 0;
    if (seconds.contains("step_ms")) CheckStepHolds(file_, at, seconds["step_ms"], computation);
    if (file_.Has(at + "/row")) {
      if (!seconds.empty() || file_.Has(at + "/bar"))
        file_->Fail(at + "/row", "expected a row, or times, or a bar: one of the three");
      seconds["step_ms"] = samples / Row(at + "/row", step);
    }
    if (file_.Has(at + "/bar")) AddBar(at + "/bar", step, seconds);
    if (seconds.empty()) {
      file_->Fail(at,
                  "expected a measured time: forward_ms and backward_ms, sparsify_ms, "
                  "exposed_ms, step_ms, samples_per_s, a row, or a bar");
    }
    return seconds;
  }

  // The numbers that `read` gives, kept by the name of their file.
  const std::vector<PublishedNumber>& Kept(const std::string& name, const auto& read) {
    const auto found = published_.find(name);
    return found != published_.end() ? found->second
                                     : published_.emplace(name, read()).first->second;
  }

  const std::vector<PublishedNumber>& Published(const std::string& name) {
    return Kept(name, [&] { return ReadPublished(profiles_.File("../published/" + name)); });
  }

  // The numbers that a bar may name: the project's, and one's own.
  const std::vector<PublishedNumber>& Bars() {
    return Kept(kBars, [&] {
      return ReadAllPublished(profiles_.PublishedOfProject(), profiles_.PublishedOfUser());
    });
  }

  // Finds the row of a file of results/published by its columns. Returns its samples per second.
  double Row(const std::string& at, ReferenceStep& step) {
    file_.Keys(at, "row", {"file", "artifact", "model", "workers", "network", "method", "density"});
    const std::string name = file_->RequiredString(at, "file");
    const int workers = file_.Count(at, "workers", kWorkersOfClusters);
    if (workers != step.workers)
      file_->FailValue(at + "/workers", fmt::format("the reference's workers, {}", step.workers));
    const std::string count = std::to_string(workers);
    const std::pair<const char*, std::string PublishedNumber::*> named[] = {
        {"artifact", &PublishedNumber::artifact},
        {"model", &PublishedNumber::model},
        {"network", &PublishedNumber::network},
        {"method", &PublishedNumber::method},
        {"density", &PublishedNumber::density}};
    const std::set<std::string> optional = {"artifact", "density"};
    std::vector<const PublishedNumber*> left;
    for (const PublishedNumber& row : Published(name)) left.push_back(&row);
    for (const auto& [key, column] : named) {
      if (optional.contains(key) && !file_.Has(at + "/" + key)) continue;
      const std::string wanted = file_->RequiredString(at, key);
      std::set<std::string> known;
      for (const PublishedNumber* row : left) known.insert(row->*column);
      std::erase_if(left, [&](const PublishedNumber* row) { return row->*column != wanted; });
      if (left.empty()) {
        const std::vector<std::string> names(known.begin(), known.end());
        file_->Fail(at + "/" + key, fmt::format("{} has no row with {} \"{}\"{}", name, key, wanted,
                                                Suggestion(wanted, names)));
      }
    }
    std::erase_if(left, [&](const PublishedNumber* row) { return row->workers != count; });
    const auto is_rate = [](const PublishedNumber& row) {
      return row.value && (row.unit == "samples/s" || row.unit == "images/s");
    };
    if (left.size() != 1 || !is_rate(*left.front())) {
      file_->FailValue(at, fmt::format("one row of {} with {} workers and a number of samples/s or "
                                       "images/s; artifact and density tell several apart",
                                       name, workers));
    }
    const PublishedNumber& row = *left.front();
    step.bar = CalibrationBar{row.paper, row.artifact, row.method,
                              fmt::format("{}/{}/{}", row.model, row.workers, row.network)};
    if (file_.Has(at + "/density")) step.bar->row += "/" + row.density;
    return *row.value;
  }

  CalibrationBar BarAt(const std::string& at) const {
    const json* name = file_->Find(at);
    std::vector<std::string> parts(1);
    for (const char c : name->is_string() ? name->get<std::string>() : "") {
      if (c == '/') {
        parts.emplace_back();
      } else {
        parts.back() += c;
      }
    }
    if (parts.size() != 3) file_->FailValue(at, "\"PAPER/ARTIFACT/METHOD\"");
    return {parts[0], parts[1], parts[2], {}};
  }

  // Adds the parts of a published bar, which replace times in the file itself.
  void AddBar(const std::string& at, ReferenceStep& step, Seconds& seconds) {
    step.bar = BarAt(at);
    static const std::map<std::string, std::string> kKeys = {
        {"time/iter:Forward", "forward_ms"},
        {"time/iter:Backward", "backward_ms"},
        {"time/iter:Sparsification", "sparsify_ms"},
        {"time/iter:NOCT", "exposed_ms"}};
    Seconds published;
    for (const PublishedNumber& row : Bars()) {
      const auto key = kKeys.find(row.metric);
      if (key == kKeys.end() || row.paper != step.bar->paper ||
          row.artifact != step.bar->artifact || row.method != step.bar->method ||
          row.unit != "ms" || !row.value) {
        continue;
      }
      published.emplace(key->second, 1e-3 * *row.value);
    }
    for (const auto& [key, value] : published) seconds[key] = value;
    if (seconds.empty()) {
      file_->FailValue(at,
                       "a bar of results/published, or of your own published/, with "
                       "time/iter:Forward, Backward, Sparsification or NOCT in ms");
    }
  }

  // Forward and backward are compute times. The other parts are to be reproduced.
  void Use(const std::string& at, const Seconds& seconds, const ReferenceStep& step) {
    const auto has = [&](const char* key) { return seconds.contains(key); };
    if (has("forward_ms") != has("backward_ms"))
      file_->Fail(at, "expected both of forward_ms and backward_ms");
    ComputeTime time{step.families,
                     step.workload,
                     step.batch_per_worker,
                     0,
                     0,
                     step.spread,
                     step.bar ? "calibrated" : "measured",
                     step.bar ? step.bar->name() : step.source};
    if (has("forward_ms")) {
      time.forward_seconds = seconds.at("forward_ms");
      time.backward_seconds = seconds.at("backward_ms");
      AddCompute(cluster_, std::move(time));
    } else if (step.workers == 1 && has("step_ms")) {
      SplitStep(file_, cluster_, seconds.at("step_ms"), time);
      AddCompute(cluster_, std::move(time));
    }
    if (has("step_ms") && !step.bar) CheckAgainstCompute(at, seconds.at("step_ms"), step);
    const auto reproduce = [&](const char* key, StepPart part) {
      if (!has(key)) return;
      ReferenceStep wanted = step;
      wanted.part = part;
      wanted.measured = seconds.at(key);
      cluster_.references.push_back(std::move(wanted));
    };
    reproduce("sparsify_ms", StepPart::kSparsify);
    if (step.workers == 1) return;
    reproduce("exposed_ms", StepPart::kExposed);
    reproduce("step_ms", StepPart::kStep);
  }

  // A step of several workers takes at least the computation of one, which [[compute]] states.
  void CheckAgainstCompute(const std::string& at, double seconds, const ReferenceStep& step) const {
    for (const ComputeTime& time : cluster_.compute) {
      if (time.workload != step.workload || time.batch_per_worker != step.batch_per_worker ||
          seconds * kReadAlike * time.spread * step.spread >= SecondsOf(time))
        continue;
      file_->Fail(at, fmt::format("a step of {:g} ms, and one worker's forward and backward take "
                                  "{:g} ms ({}): expected times of one cluster",
                                  1e3 * seconds, 1e3 * SecondsOf(time), time.source));
    }
  }

  const ClusterFile& file_;
  const ProfileFolders& profiles_;
  DeclaredCluster& cluster_;
  std::map<std::string, std::vector<PublishedNumber>> published_;  // by file
};

}  // namespace

void ReadCompute(const ClusterFile& file, const std::string& at, DeclaredCluster& cluster) {
  file.Keys(at, "[[compute]]",
            {"families", "workload", "batch_per_worker", "forward_ms", "backward_ms", "step_ms",
             "samples_per_s", "spread", "kind", "source"});
  ComputeTime time;
  time.workload = file.Workload(at);
  time.families = file.Families(at, time.workload);
  time.batch_per_worker =
      file.Count(at, "batch_per_worker", FindCellKey("batch_per_worker")->range);
  time.kind = file.Kind(at);
  time.source = file->RequiredString(at, "source");
  time.spread = file.Spread(at, time.kind);
  if (file.Has(at + "/samples_per_s")) CheckOneStep(file, at, time.batch_per_worker);
  std::optional<double> step;
  if (file.Has(at + "/step_ms")) {
    step = 1e-3 * file.Needed(at, "step_ms", kMilliseconds);
  } else if (file.Has(at + "/samples_per_s")) {
    step = time.batch_per_worker / file.Needed(at, "samples_per_s", kCosts);
  }
  if (!step || file.Has(at + "/forward_ms") || file.Has(at + "/backward_ms")) {
    time.forward_seconds = 1e-3 * file.Needed(at, "forward_ms", kMilliseconds);
    time.backward_seconds = 1e-3 * file.Needed(at, "backward_ms", kMilliseconds);
    if (step) CheckStepHolds(file, at, *step, SecondsOf(time));
  } else {
    SplitStep(file, cluster, *step, time);
  }
  AddCompute(cluster, std::move(time));
}

void CheckComputeAlike(const ClusterFile& file, const DeclaredCluster& cluster,
                       const std::vector<std::string>& places) {
  // The table read last comes first.
  const auto time = [&](std::size_t i) { return cluster.compute[places.size() - 1 - i]; };
  for (std::size_t i = 0; i < places.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const ComputeTime one = time(j), other = time(i);
      if (one.workload != other.workload || one.batch_per_worker != other.batch_per_worker ||
          AreAlike(SecondsOf(one), SecondsOf(other), one.spread * other.spread))
        continue;
      file->Fail(places[i],
                 fmt::format("{} with batch {} takes {:.4g} ms, and {} says {:.4g} ms: expected "
                             "one of the two",
                             other.workload, other.batch_per_worker, 1e3 * SecondsOf(other),
                             file->Where(places[j]), 1e3 * SecondsOf(one)));
    }
  }
}

void ReadReferences(const ClusterFile& file, const ProfileFolders& profiles,
                    DeclaredCluster& cluster) {
  ReferenceReader reader(file, profiles, cluster);
  file.ForEach("reference", [&](const std::string& at) { reader.Read(at); });
}

}  // namespace sparfuse::harness
