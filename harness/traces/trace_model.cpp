#include "harness/traces/trace_model.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/base/error.hpp"
#include "harness/catalog/catalog.hpp"
#include "harness/catalog/model_table.hpp"
#include "harness/statistics/statistics.hpp"
#include "harness/traces/nccl_logs.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::ordered_json;
using workloads::LayerTensor;

constexpr double kLeastSpread = 1.05;
constexpr double kNotedSpread = 1.5, kMostSpread = 3;
constexpr double kUncorrectedSpread = 1.5;  // spread of a CPU's times under the profiler
constexpr double kHostUncorrected = 3;      // a host's number may be this many times too long
constexpr double kMostStretch = 1.05;       // a step without the profiler over one with it
constexpr double kFewStepsSpread = 1.1;
constexpr double kSynchronousCallUs = 1000;

// "net-torch2.11" of net-torch2.11.json.gz: files of other versions have other tables.
std::string NameOfFile(std::string file) {
  for (const std::string_view ending : {".gz", ".json"}) {
    if (file.ends_with(ending)) file.erase(file.size() - ending.size());
  }
  return file;
}

class ModelMaker {
 public:
  ModelMaker(const DeclaredCluster& cluster, const TraceImport& asked)
      : cluster_(cluster), asked_(asked) {}

  TracedModel Make() {
    ReadAll();
    CheckSpreads();
    FindScale();
    Join();
    MakeTable();
    NoteBuffers();
    NoteCompression();
    HostInputs();
    Compute();
    DeviceInputs();
    Links();
    Slowdown();
    Reference();
    return std::move(made_);
  }

 private:
  [[noreturn]] void Fail(const std::string& what) const {
    SPARFUSE_THROW(kConfig, fmt::format("{}: {}", facts_->file, what));
  }
  bool OnCpu() const { return facts_->device == "cpu"; }
  // Host numbers without the profiler's cost, and numbers corrected in the time without a kernel.
  double Host(double us) const { return us * scale_; }
  double Corrected(double us, double idle_us) const { return us - (1 - scale_) * idle_us; }
  bool Uncorrected() const { return !asked_.step_ms && (OnCpu() || made_.host_bound); }

  void ReadAll() {
    TraceOptions options = asked_.options;
    options.keep_kernels = !asked_.alone.empty();
    made_.ranks = ReadTraceFacts(asked_.files, options);
    if (made_.ranks.size() > 1) made_.transfers = TransfersOf(made_.ranks);
    if (!asked_.alone.empty()) {
      alone_ = ReadTraceFacts(asked_.alone, options);
      if (alone_->tensors.size() != made_.ranks.front().tensors.size()) {
        SPARFUSE_THROW(kConfig,
                       fmt::format("{} and {}: {} and {} gradients: expected --alone of the same "
                                   "step on one rank",
                                   made_.ranks.front().file, alone_->file,
                                   made_.ranks.front().tensors.size(), alone_->tensors.size()));
      }
      made_.corrections.push_back("forward, backward and ready times are of " + alone_->file +
                                  ", one rank alone");
    }
    facts_ = alone_ ? &*alone_ : &made_.ranks.front();
    made_.host_bound = facts_->bound == "host-bound";
    made_.batch = asked_.batch;
    made_.notes = facts_->notes;
    if (const int passes = facts_->passes_a_step.back(); passes > 1) {
      made_.notes.push_back(fmt::format(
          "a step has {} passes of backward (gradient accumulation): forward contains all "
          "before the last one, and --batch counts the samples of all",
          passes));
    }
    made_.source =
        fmt::format("{} sha256 {}, {}{}", facts_->file, facts_->sha256, StepsText(*facts_),
                    asked_.torch.empty() ? "" : ", torch " + asked_.torch);
  }

  void CheckSpreads() {
    const std::pair<const char*, std::optional<Spread>> kSpreads[] = {
        {"period", facts_->period_us},
        {"forward", facts_->forward_us},
        {"backward", facts_->backward_us}};
    for (const auto& [what, spread] : kSpreads) {
      if (!spread || spread->ratio() <= kNotedSpread) continue;
      const std::string text = fmt::format("{} takes {:.3f} to {:.3f} ms, by step", what,
                                           spread->low / 1e3, spread->high / 1e3);
      if (spread->ratio() > kMostSpread && !asked_.accept_spread)
        Fail(text + ": expected similar steps, or --accept-spread");
      made_.notes.push_back(text);
    }
  }

  // Sets the factor by which the host's share of a step is shorter without the profiler. The step
  // is the traced training's, also if times are taken from one rank alone.
  void FindScale() {
    const TraceFacts& traced = made_.ranks.front();
    made_.step_measured = asked_.step_ms.has_value();
    if (!asked_.step_ms) {
      made_.step_ms = traced.period_us ? traced.period_us->median / 1e3 : 0;
      if (Uncorrected()) {
        made_.notes.push_back(
            "the host's times include the profiler's own cost: give --step-ms, the step's time "
            "without it");
      }
      return;
    }
    made_.step_ms = *asked_.step_ms;
    if (!traced.period_us || !traced.idle.period_us) {
      SPARFUSE_THROW(kConfig, traced.file +
                                  ": --step-ms: its steps are not neighbours, so that no period is "
                                  "known: expected two neighbouring steps");
    }
    const double idle = *traced.idle.period_us, busy = traced.period_us->median - idle;
    if (idle <= 0) return;
    scale_ = std::max(0.0, 1e3 * *asked_.step_ms - busy) / idle;
    if (scale_ > kMostStretch) {
      SPARFUSE_THROW(
          kConfig,
          fmt::format("{}: --step-ms {:g}: the traced step takes {:.3f} ms, under the profiler: "
                      "expected the same step without it, which cannot take longer",
                      traced.file, *asked_.step_ms, traced.period_us->median / 1e3));
    }
    made_.corrections.push_back(
        fmt::format("the host's times are {:.4g} of the traced ones: a step of {:g} ms without the "
                    "profiler, {:.3f} ms with it, kernels {:.3f} ms of that",
                    scale_, *asked_.step_ms, traced.period_us->median / 1e3, busy / 1e3));
  }

  void Join() {
    const bool shapes = std::ranges::all_of(
        facts_->tensors, [](const TracedTensor& tensor) { return tensor.shape.has_value(); });
    if (asked_.workload.empty()) {
      if (!shapes) {
        Fail(
            "its gradients have no shapes: expected record_shapes=True, or --workload "
            "table:FILE.json, which `python -m sparfuse.describe` makes");
      }
      return;
    }
    const std::string workload = workloads::IsTable(asked_.workload)
                                     ? TableWorkloadName(asked_.workload, {})
                                     : asked_.workload;
    known_ = &workloads::FindWorkload(workload);
    if (!known_->table) {
      Fail(fmt::format("--workload {}: expected table:FILE.json, the table of the traced model",
                       asked_.workload));
    }
    joined_ = JoinTensors(*facts_, known_->table->layers.tensors, asked_.workload);
    made_.notes.insert(made_.notes.end(), joined_.notes.begin(), joined_.notes.end());
  }

  // The bytes of buffers that the traced software broadcasts in a step; with one rank none are
  // seen.
  double TracedBuffers() const {
    double bytes = 0;
    for (const TracedBroadcast& each : made_.ranks.front().before_backward)
      bytes += each.collective.find("broadcast") == std::string::npos ? 0 : each.bytes_a_step;
    return bytes;
  }

  std::int64_t BroadcastBytes() const {
    if (made_.ranks.front().world == 1)
      return known_ == nullptr ? 0 : known_->table->broadcast_bytes;
    return cluster_.buffers == BuffersBy::kLocal ? 0 : std::llround(TracedBuffers());
  }

  // Without the broadcasts within it, if the model has them apart.
  double ForwardUs() const {
    const double apart = BroadcastBytes() > 0 ? facts_->buffers_us : 0;
    return Corrected(facts_->forward_us.median - apart,
                     std::max(0.0, facts_->idle.forward_us - apart));
  }

  void NoteBuffers() {
    const double bytes = TracedBuffers();
    if (bytes <= 0) return;
    if (BroadcastBytes() > 0) {
      made_.corrections.push_back(
          fmt::format("{:.0f} bytes of buffers are broadcast before forward, {:.3f} ms of it: the "
                      "table's broadcast_bytes",
                      bytes, facts_->buffers_us / 1e3));
    } else {
      made_.notes.push_back(fmt::format(
          "{:.0f} bytes of buffers are broadcast before forward, and cluster {} leaves buffers to "
          "each rank: their {:.3f} ms stay in forward",
          bytes, cluster_.name, facts_->buffers_us / 1e3));
    }
  }

  // What a communication hook leaves of the gradients: the share of elements, and bytes of each.
  void NoteCompression() {
    const TraceFacts& traced = made_.ranks.front();
    double sent = 0, bytes = 0;
    for (const TracedExchange& each : traced.exchanges) {
      if (!each.elements || !each.bytes) return;
      sent += static_cast<double>(*each.elements);
      bytes += *each.bytes;
    }
    if (sent == 0) return;
    const auto all = static_cast<double>(Elements());
    constexpr double kAll = 0.99, kBytesOfFloat = 4;
    compressed_ = sent < kAll * all || bytes < kAll * kBytesOfFloat * sent;
    if (!compressed_) return;
    made_.notes.push_back(fmt::format(
        "its exchanges carry {:.0f} of {:.0f} elements, {:g} bytes each: a communication hook, or "
        "gradients in half precision; the modelled dense step sends {:g} bytes of each element",
        sent, all, bytes / sent, kBytesOfFloat));
  }

  void MakeTable() {
    made_.name = asked_.name;
    if (made_.name.empty()) {
      made_.name = known_ != nullptr ? WorkloadLabel(known_->name) : NameOfFile(facts_->file);
    }
    ordered_json& table = made_.table;
    table["name"] = made_.name;
    table["unit"] = known_ != nullptr ? known_->unit : "samples";
    table["units_per_sample"] = known_ != nullptr ? known_->units_per_sample : 1;
    table["batch_per_worker"] = asked_.batch;
    if (const std::int64_t bytes = BroadcastBytes(); bytes > 0) table["broadcast_bytes"] = bytes;
    if (known_ != nullptr && known_->table->family != workloads::kTableFamily)
      table["family"] = known_->table->family;
    table["source"] = "sparfuse import kineto, " + made_.source;
    table["batch"] = asked_.batch;
    table["measured_on"] =
        (facts_->hardware.empty() ? "CPU" : facts_->hardware) + ", by torch.profiler";
    table["forward_us"] = ForwardUs();
    table["update_us"] = Corrected(facts_->update_us.median, facts_->idle.update_us);
    ordered_json tensors = ordered_json::array();
    double ready = 0;
    for (std::size_t k = 0; k < facts_->tensors.size(); ++k) {
      const TracedTensor& traced = facts_->tensors[k];
      const double now = std::max(ready, Corrected(traced.ready_us, traced.idle_us));
      ordered_json tensor;
      if (known_ != nullptr) {
        const LayerTensor& of = known_->table->layers.tensors[joined_.positions[k]];
        tensor = {{"name", of.name}, {"shape", of.shape}, {"macs", of.macs}};
      } else {
        tensor = {{"name", fmt::format("t{:03}-{}", k, fmt::join(*traced.shape, "x"))},
                  {"shape", *traced.shape},
                  {"macs", 0}};
      }
      tensor["backward_us"] = now - ready;
      ready = now;
      tensors.push_back(std::move(tensor));
    }
    table["tensors"] = std::move(tensors);
  }

  std::size_t Elements() const {
    std::size_t all = 0;
    for (const auto& tensor : made_.table["tensors"]) {
      std::size_t elements = 1;
      for (const auto& size : tensor["shape"]) elements *= size.get<std::size_t>();
      all += elements;
    }
    return all;
  }

  // The rest of a step after forward, backward and the model's own update time.
  double RestUs() {
    if (!facts_->rest_us || !facts_->period_us) return 0;
    const double idle = facts_->idle.period_us.value_or(0) - facts_->idle.forward_us -
                        facts_->idle.backward_us - facts_->idle.update_us;
    double rest =
        Corrected(*facts_->rest_us, std::clamp(idle, 0.0, std::max(0.0, *facts_->rest_us)));
    // On a CPU hooks run within the backward pass, whose time excludes them.
    if (OnCpu() && facts_->hooks_us) rest -= Host(facts_->hooks_us->median);
    // On a CPU the model's methods copy sums back into gradients themselves, or
    // exchange_host_ns_an_element contains these copies.
    if (OnCpu() && facts_ == &made_.ranks.front()) rest -= Host(facts_->copies_back_us);
    const double update = Corrected(facts_->update_us.median, facts_->idle.update_us);
    const double own = 1e6 * UpdateSeconds(cluster_, Elements());
    rest += update;
    if (own > std::max(rest, update)) {
      made_.notes.push_back(
          fmt::format("the model's own update takes {:.3f} ms by memory_gbytes_per_s, and the step "
                      "leaves {:.3f} ms "
                      "for it: the modelled step is too long by the difference",
                      own / 1e3, std::max(0.0, rest) / 1e3));
    }
    rest -= own;
    rest -= UpdateHostUs() * static_cast<double>(facts_->tensors.size());
    return std::max(0.0, rest);
  }

  // The host time per tensor, if it exceeds the update on the device.
  double UpdateHostUs() const {
    if (OnCpu() || !facts_->host.update_us) return 0;
    if (facts_->host.update_us->median <= facts_->update_us.median) return 0;
    return Host(facts_->host.update_us->median) / static_cast<double>(facts_->tensors.size());
  }

  void Compute() {
    const double forward = ForwardUs();
    const double backward = Corrected(facts_->backward_us.median, facts_->idle.backward_us);
    const double rest = RestUs();
    made_.forward_ms = (forward + rest) / 1e3;
    made_.backward_ms = backward / 1e3;
    const auto above = [](const Spread& spread) {
      return spread.median > 0 ? spread.high / spread.median : 1;
    };
    made_.spread = std::max({kLeastSpread, above(facts_->forward_us), above(facts_->backward_us),
                             (forward + rest + backward) / (forward + backward)});
    // Of three steps or more the first is dropped.
    if (facts_->steps_used.front() == facts_->steps_found.front())
      made_.spread = std::max(made_.spread, kFewStepsSpread);
    if (Uncorrected()) made_.spread = std::max(made_.spread, kUncorrectedSpread);
    made_.corrections.push_back(
        fmt::format("{:.3f} ms of a step, outside of forward, backward and the model's own update, "
                    "are added to forward",
                    rest / 1e3));
  }

  void Add(const char* name, double value, double low, double high, bool of_host = false) {
    if (!(value > 0)) return;
    if (of_host && Uncorrected()) low = std::min(low, value / kHostUncorrected);
    DeclaredInput input;
    input.name = name;
    input.value = value;
    input.low = std::min(low, value / kLeastSpread);
    input.high = std::max(high, value * kLeastSpread);
    input.kind = kTraceKind;
    input.source = made_.source;
    for (const InputSpec& spec : InputSpecs()) {
      if (input.name != spec.name) continue;
      input.group = spec.group;
      input.low = std::max(input.low, spec.values.least);
      input.high = std::min(input.high, spec.values.most);
      input.value = std::clamp(input.value, input.low, input.high);
    }
    made_.inputs.push_back(std::move(input));
  }

  void HostInputs() {
    const TraceFacts& exchanged = made_.ranks.front();
    if (exchanged.exchanges.size() > 1 && exchanged.host.exchange_call_us) {
      const double call = exchanged.host.exchange_call_us->median;
      if (exchanged.backend == "gloo" && call > kSynchronousCallUs) {
        made_.notes.push_back(
            fmt::format("calls of gloo take {:.1f} ms, so that they hold the exchange itself: no "
                        "exchange_host_us is taken from them",
                        call / 1e3));
      } else {
        Add("exchange_host_us", Host(call), Host(*exchanged.exchange_call_tenth_us),
            Host(*exchanged.exchange_call_ninetieth_us), true);
      }
    }
    if (exchanged.host.hook_us_a_tensor) {
      const double hook = Host(exchanged.host.hook_us_a_tensor->median);
      // A host that is ahead of its device runs hooks while the device computes. On a CPU a hook
      // copies the gradient itself, as the model's methods with buffers do.
      if (exchanged.device == "cpu") {
        Add("hook_host_us_a_tensor", Host(*exchanged.bare_hook_us),
            Host(*exchanged.bare_hook_tenth_us), Host(*exchanged.bare_hook_ninetieth_us), true);
      } else if (exchanged.bound == "host-bound") {
        Add("hook_host_us_a_tensor", hook, Host(*exchanged.hook_tenth_us),
            Host(*exchanged.hook_ninetieth_us), true);
      } else {
        made_.notes.push_back(fmt::format(
            "a hook takes the host {:.1f} us a tensor, beside the device: in no input", hook));
      }
    }
    StagingInput(exchanged);
    const double update = UpdateHostUs();
    if (update > 0) {
      const Spread& host = *facts_->host.update_us;
      Add("update_host_us_a_tensor", update, update * host.low / host.median,
          update * host.high / host.median, true);
    } else if (!OnCpu() && facts_->host.update_us) {
      made_.notes.push_back(
          "the optimizer's work on the host hides behind the device's: no "
          "update_host_us_a_tensor is taken");
    }
  }

  // The host's time of calls and copies by elements, if gloo's exchanges have several sizes.
  static constexpr const char* kStaging = "exchange_host_ns_an_element";
  void StagingInput(const TraceFacts& exchanged) {
    constexpr std::size_t kLeastSizes = 3;
    constexpr double kLeastRange = 4;
    if (exchanged.backend != "gloo" || exchanged.exchanges.empty()) return;
    std::set<std::int64_t> sizes;
    double calls = 0;
    for (const TracedExchange& each : exchanged.exchanges) {
      if (each.host_us_by_step.empty()) return;
      sizes.insert(*each.elements);
      calls = std::max(calls, Median(each.host_us_by_step));
    }
    const bool tells =
        sizes.size() >= kLeastSizes &&
        static_cast<double>(*sizes.rbegin()) >= kLeastRange * static_cast<double>(*sizes.begin());
    if (!tells || calls > kSynchronousCallUs) return;
    std::vector<double> slopes;
    for (std::size_t s = 0; s < exchanged.steps_used.size(); ++s)
      slopes.push_back(NanosecondsAnElement(exchanged.exchanges, s));
    const auto [low, high] = std::ranges::minmax(slopes);
    Add(kStaging, Host(Median(slopes)), Host(std::max(0.0, low)), Host(high), true);
  }

  // The slope of the line through the exchanges of one step, by least squares.
  static double NanosecondsAnElement(const std::vector<TracedExchange>& exchanges,
                                     std::size_t step) {
    const double n = static_cast<double>(exchanges.size());
    double elements = 0, us = 0;
    for (const TracedExchange& each : exchanges) {
      elements += static_cast<double>(*each.elements) / n;
      us += (each.host_us_by_step[step] + each.copies_us_by_step[step]) / n;
    }
    double above = 0, below = 0;
    for (const TracedExchange& each : exchanges) {
      const double x = static_cast<double>(*each.elements) - elements;
      above += x * (each.host_us_by_step[step] + each.copies_us_by_step[step] - us);
      below += x * x;
    }
    return 1e3 * above / below;
  }

  void DeviceInputs() {
    if (!facts_->on_device) return;
    const TracedDevice& device = *facts_->on_device;
    Add("kernel_us", device.kernel_us_tenth, device.kernel_us_hundredth, device.kernel_us_tenth);
    for (const auto& [name, rate] :
         {std::pair("memory_gbytes_per_s", device.memory_gbytes_per_s),
          std::pair("host_link_gbytes_per_s", device.host_link_gbytes_per_s)}) {
      if (rate) Add(name, rate->median, rate->low, rate->high);
    }
  }

  void Links() {
    if (made_.ranks.front().exchanges.empty()) return;
    made_.links = LinkLogsOf(made_.ranks, cluster_.ranks_per_node);
    if (!made_.links.empty() && made_.links[0].nodes > 1 && made_.links[0].samples.size() < 2) {
      made_.notes.push_back("its exchanges have one size: no [[curve]] is made of them");
      made_.links.clear();
    }
    const auto names = [&](const char* part) {
      return std::ranges::any_of(made_.ranks.front().exchanges, [&](const TracedExchange& each) {
        return each.kernel.find(part) != std::string::npos;
      });
    };
    const bool ring = cluster_.all_reduce == AllReduceBy::kRing;
    const bool tree = cluster_.all_reduce == AllReduceBy::kTree;
    if ((names("TREE") && ring) || (names("RING") && tree)) {
      made_.notes.push_back(fmt::format(
          "the trace's all-reduces are done by {}, the cluster's file says all_reduce = \"{}\"",
          names("TREE") ? "trees" : "rings",
          kAllReduceNames[static_cast<std::size_t>(cluster_.all_reduce)]));
    }
    if (cluster_.all_reduce >= AllReduceBy::kNccl2_8) CompareChoices();
  }

  // Notes the first exchange whose kernel names another algorithm than the model's NCCL chooses.
  // The protocol in a kernel's name is LL whatever was chosen (NCCL's src/device/generate.py).
  void CompareChoices() {
    for (const TracedExchange& each : made_.ranks.front().exchanges) {
      const bool tree = each.kernel.find("_TREE_") != std::string::npos;
      const bool ring = each.kernel.find("_RING_") != std::string::npos;
      const auto ranks = static_cast<int>(each.ranks.value_or(made_.ranks.front().world));
      if (!each.bytes || ranks < 2 || !(tree || ring)) continue;
      const std::string ours = ModelledAllReduce(
          cluster_, {ranks, std::min(ranks, cluster_.ranks_per_node)}, *each.bytes);
      if (ours.starts_with(tree ? "tree/" : "ring/")) continue;
      made_.notes.push_back(fmt::format(
          "the kernel of an all-reduce of {:.0f} bytes is called {}, and all_reduce = \"{}\" "
          "chooses {}",
          *each.bytes, tree ? "TREE" : "RING",
          kAllReduceNames[static_cast<std::size_t>(cluster_.all_reduce)], ours));
      return;
    }
  }

  // Adds the slowdown of kernels beside exchanges: their time over the time of the same kernels
  // alone.
  void Slowdown() {
    if (!alone_) return;
    const TraceFacts& together = made_.ranks.front();
    if (OnCpu()) {
      Add("compute_slowdown",
          std::max(1.0, together.backward_us.median / alone_->backward_us.median),
          together.backward_us.low / alone_->backward_us.high,
          together.backward_us.high / alone_->backward_us.low);
      return;
    }
    constexpr double kBeside = 0.9, kLeastUs = 1000;
    constexpr int kLeastKernels = 20;
    double here = 0, there = 0;
    int n = 0;
    const std::size_t steps = std::min(together.kernels.size(), alone_->kernels.size());
    for (std::size_t s = 0; s < steps; ++s) {
      const auto &of = together.kernels[s], &over = alone_->kernels[s];
      const bool same =
          std::ranges::equal(of, over, {}, &BackwardKernel::name, &BackwardKernel::name);
      if (!same) {
        SPARFUSE_THROW(kConfig, fmt::format("{} and {}: backward's kernels differ ({} and {}): "
                                            "expected --alone of the same step on one rank",
                                            together.file, alone_->file, of.size(), over.size()));
      }
      for (std::size_t k = 0; k < of.size(); ++k) {
        if (of[k].beside < kBeside) continue;
        here += of[k].us;
        there += over[k].us;
        ++n;
      }
    }
    if (n < kLeastKernels || there < kLeastUs) {
      made_.notes.push_back(fmt::format(
          "{} kernels of {:.0f} us run beside an exchange: too few to tell compute_slowdown", n,
          there));
      return;
    }
    const double slowdown = std::max(1.0, here / there);
    Add("compute_slowdown", slowdown, 1, slowdown);
  }

  // Takes the step of several ranks as a reference.
  void Reference() {
    if (asked_.reference.empty()) return;
    static const Catalog catalog = BuiltInCatalog();
    const Method& method = NeedEntry(catalog.methods, "method", asked_.reference);
    const TraceFacts& of = made_.ranks.front();
    const auto fail = [&](const std::string& what) {
      SPARFUSE_THROW(kConfig, fmt::format("{}: --reference: {}", of.file, what));
    };
    if (of.world == 1)
      fail(
          "it is of one rank, so that its step is computation alone: expected a trace of several "
          "ranks");
    if (of.world > cluster_.ranks()) {
      fail(fmt::format("{} ranks: expected at most the {} devices of cluster {}", of.world,
                       cluster_.ranks(), cluster_.name));
    }
    if (!of.period_us)
      fail(
          "its steps are not neighbours, so that no period is known: expected two neighbouring "
          "steps");
    if (compressed_ && (method.strategy == "dense-units" || method.strategy == "horovod-cycle")) {
      fail(
          fmt::format("its exchanges carry less than float32 gradients, and {} sends these: "
                      "expected the method that was traced",
                      asked_.reference));
    }
    TracedReference made{asked_.reference, of.world,
                         asked_.step_ms.value_or(of.period_us->median / 1e3), 0, kLeastSpread};
    made.spread = std::max({made.spread, of.period_us->high / of.period_us->median,
                            of.period_us->median / of.period_us->low});
    if (of.exposed_us) made.exposed_ms = of.exposed_us->median / 1e3;
    made_.reference = made;
  }

  const DeclaredCluster& cluster_;
  const TraceImport& asked_;
  std::optional<TraceFacts> alone_;
  const TraceFacts* facts_ = nullptr;  // of the rank whose compute times are used
  const workloads::WorkloadDescriptor* known_ = nullptr;
  JoinedTensors joined_;
  bool compressed_ = false;  // its exchanges carry less than float32 gradients
  double scale_ = 1;         // factor on host times
  TracedModel made_;
};

}  // namespace

TracedModel ModelOfTrace(const DeclaredCluster& cluster, const TraceImport& asked) {
  return ModelMaker(cluster, asked).Make();
}

}  // namespace sparfuse::harness
