// Shows the content of training traces: `sparfuse trace`.
#include "harness/cli/traces/trace.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "harness/cli/verbs.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/traces/kineto_trace.hpp"
#include "harness/traces/trace_facts.hpp"
#include "harness/traces/trace_model.hpp"
#include "harness/wording/numbers.hpp"
#include "harness/wording/table.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr double kNearStep = 0.1;  // distance of the modelled from the traced step

std::string Ms(const Spread& us) {
  return us.low == us.high ? fmt::format("{:.3f} ms", us.median / 1e3)
                           : fmt::format("{:.3f} ms [{:.3f}, {:.3f}]", us.median / 1e3,
                                         us.low / 1e3, us.high / 1e3);
}

std::string Us(const std::optional<Spread>& us) {
  if (!us) return kNone;
  return fmt::format("{:.1f} us [{:.1f}, {:.1f}] of {}", us->median, us->low, us->high, us->n);
}

Table StepTable(const TraceFacts& facts) {
  Table table;
  table.columns = {"step", "time", "on the host"};
  const auto add = [&](const char* what, const std::optional<Spread>& time,
                       const std::optional<Spread>& host) {
    table.rows.push_back({what, time ? Ms(*time) : kNone, host ? Ms(*host) : kNone});
  };
  add("period", facts.period_us, {});
  add("forward", facts.forward_us, facts.host.forward_us);
  add("backward", facts.backward_us, facts.host.backward_us);
  add("update", facts.update_us, facts.host.update_us);
  add("exposed exchanges", facts.exposed_us, {});
  table.rows.push_back(
      {"rest", facts.rest_us ? fmt::format("{:.3f} ms", *facts.rest_us / 1e3) : std::string(kNone),
       kNone});
  table.notes = facts.notes;
  return table;
}

Table HostTable(const TraceFacts& facts) {
  Table table;
  table.columns = {"the host spends", "median [least, most]"};
  table.rows = {{"on a hook of a tensor, without its exchange", Us(facts.host.hook_us_a_tensor)},
                {"on the call of an exchange", Us(facts.host.exchange_call_us)},
                {"on copying a tensor back", Us(facts.host.copy_back_us_a_tensor)}};
  return table;
}

Table ExchangeTable(const TraceFacts& facts) {
  Table table;
  table.columns = {"exchange", "elements", "bytes", "begins", "takes", "bus at least"};
  table.alignment = "lrrrrr";
  for (const TracedExchange& each : facts.exchanges) {
    table.rows.push_back(
        {each.collective, each.elements ? fmt::format("{}", *each.elements) : kNone,
         each.bytes ? fmt::format("{:.0f}", *each.bytes) : kNone,
         fmt::format("{:.3f} ms", each.begin_us / 1e3), Ms(each.us),
         each.bus_gbytes_per_s_at_low ? fmt::format("{:.3f} GB/s", *each.bus_gbytes_per_s_at_low)
                                      : kNone});
  }
  return table;
}

Table TransferTable(const TransferFacts& transfers) {
  Table table;
  table.title = fmt::format("Transfers of ranks {}: of each exchange the shortest over ranks",
                            fmt::join(transfers.ranks, ", "));
  table.columns = {"exchange", "elements", "bytes", "takes"};
  table.alignment = "lrrr";
  for (const TracedTransfer& each : transfers.exchanges) {
    table.rows.push_back({each.collective, fmt::format("{}", each.elements),
                          fmt::format("{:.0f}", each.bytes), Ms(each.transfer_us)});
  }
  return table;
}

std::string ShapeText(const TracedTensor& tensor) {
  return tensor.shape ? fmt::format("{}", fmt::join(*tensor.shape, " x ")) : "no shape";
}

void PrintFacts(const TraceFacts& facts) {
  std::string device = facts.device == "cpu" ? "on CPUs" : facts.bound;
  if (facts.idle_share_of_backward)
    device +=
        fmt::format(": {:.0f} % of backward no kernel runs", 100 * *facts.idle_share_of_backward);
  fmt::print("{}: rank {} of {}, {}\n", facts.file, facts.rank, facts.world, device);
  fmt::print("{}{} tensors, ready from {:.3f} ms ({}) to {:.3f} ms ({}); steps used: {} of {}\n\n",
             facts.hardware.empty() ? "" : facts.hardware + "; ", facts.tensors.size(),
             facts.tensors.front().ready_us / 1e3, ShapeText(facts.tensors.front()),
             facts.tensors.back().ready_us / 1e3, ShapeText(facts.tensors.back()),
             fmt::join(facts.steps_used, ", "), facts.steps_found.size());
  fmt::print("{}\n", Render(StepTable(facts), TableFormat::kMarkdown));
  if (facts.host.hook_us_a_tensor || facts.host.exchange_call_us)
    fmt::print("{}\n", Render(HostTable(facts), TableFormat::kMarkdown));
  if (!facts.exchanges.empty())
    fmt::print("{}\n", Render(ExchangeTable(facts), TableFormat::kMarkdown));
  for (const TracedBroadcast& each : facts.before_backward) {
    fmt::print(
        "before backward: {:g} {} a step, {:.0f} bytes, which a model without buffers does not "
        "send\n",
        each.a_step, each.collective, each.bytes_a_step);
  }
}

// The folder of a trial, by its path or its id.
fs::path FolderOfTrial(Program& program, const std::string& trial) {
  if (fs::is_directory(trial)) return trial;
  for (const TrialRow& row : program.Rows()) {
    if (row.trial_id == trial) return program.store().results() / row.directory;
  }
  SPARFUSE_THROW(kConfig,
                 fmt::format("no trial \"{}\": expected the folder of one, or its id", trial));
}

// The spans of a trial's traced step by rank; none if the trial kept none.
std::map<int, std::vector<Span>> SpansOfTrial(const fs::path& folder) {
  std::map<int, std::vector<Span>> spans;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name == "trace.json" || (name.starts_with("trace-rank") && name.ends_with(".json")))
      files.push_back(entry.path());
  }
  std::ranges::sort(files);
  for (const fs::path& file : files) spans.merge(SpansOfTrace(ReadFile(file), file.string()));
  return spans;
}

}  // namespace

std::vector<fs::path> WriteKineto(const fs::path& folder, const fs::path& out) {
  auto spans = SpansOfTrial(folder);
  if (spans.empty()) return {};
  const json stored = ReadJsonFile(folder / "trial.json");
  KinetoStep step;
  std::vector<fs::path> written;
  const json& config = stored.at("config");
  step.world = config.at("workers");
  step.modelled = config.at("mode") == "modelled";
  step.dense = config.at("sparsifier") == "none";
  for (const json& tensor : stored.at("layout")) {
    step.tensors.push_back({tensor.at("name"), tensor.at("shape"), tensor.at("numel"), false});
  }
  MakeDirectories(out);
  for (auto& [rank, of_rank] : spans) {
    step.rank = rank;
    step.spans = std::move(of_rank);
    const fs::path file = out / fmt::format("trace-rank{}.json", rank);
    WriteFileDurably(file, KinetoTrace(step));
    written.push_back(file);
  }
  return written;
}

int TraceVerb(Program& program, const TraceRequest& request) {
  if (!request.kineto.empty()) {
    const fs::path folder = FolderOfTrial(program, request.files.front());
    const std::vector<fs::path> written = WriteKineto(folder, request.kineto);
    if (written.empty()) {
      SPARFUSE_THROW(kConfig, fmt::format("{} has no trace.json: expected a trial of steps that "
                                          "kept its spans",
                                          folder.string()));
    }
    for (const fs::path& file : written) fmt::print("wrote {}\n", file.string());
    return kDone;
  }
  const std::vector<TraceFacts> ranks = ReadTraceFacts(request.files, request.options);
  std::optional<TransferFacts> transfers;
  if (ranks.size() > 1) transfers = TransfersOf(ranks);
  if (program.json()) {
    if (!transfers) {
      PrintJson(ToJson(ranks.front()));
      return kDone;
    }
    json all = {{"ranks", json::array()}, {"transfers", ToJson(*transfers)}};
    for (const TraceFacts& each : ranks) all["ranks"].push_back(ToJson(each));
    PrintJson(all);
    return kDone;
  }
  for (const TraceFacts& each : ranks) PrintFacts(each);
  if (transfers) fmt::print("\n{}", Render(TransferTable(*transfers), TableFormat::kMarkdown));
  return kDone;
}

namespace {

// Whether the traced step calibrates the cluster, so that no prediction is compared with it.
bool Calibrates(const TracedModel& model, const TracedCluster& traced) {
  return model.reference && std::ranges::any_of(traced.cluster.inputs,
                                                [](const auto& each) { return each.calibrated; });
}

std::string StepLine(const TracedModel& model, const TracedCluster& traced) {
  if (Calibrates(model, traced)) {
    return fmt::format(
        "The traced step of {} ranks calibrates the cluster: the model is not "
        "compared with it",
        model.reference->workers);
  }
  if (traced.modelled_ms == 0 || model.step_ms == 0) {
    return "the trace has no step time to compare the modelled step with";
  }
  const double off = traced.modelled_ms / model.step_ms - 1;
  return fmt::format(
      "{} dense step of {} rank{}: {:.3f} ms modelled, {:.3f} ms {}: {:+.1f} %",
      std::abs(off) > kNearStep ? "**The model misses the traced step**: the" : "The",
      model.facts().world, model.facts().world == 1 ? "" : "s", traced.modelled_ms, model.step_ms,
      model.step_measured ? "measured" : "traced", 100 * off);
}

}  // namespace

std::string TraceSummary(const TracedModel& model, const TracedCluster& traced) {
  std::string text;
  if (model.host_bound) {
    text += fmt::format(
        "{}: host-bound: work that methods add on the host lengthens backward itself, which the "
        "model leaves out\n",
        model.facts().file);
  }
  text += StepLine(model, traced) + "\n\n";
  Table table;
  table.title = "From the trace: " + model.source;
  table.columns = {"what", "value", "from", "to"};
  table.alignment = "lrrr";
  const auto add = [&](const std::string& what, double value, double low, double high) {
    table.rows.push_back({what, fmt::format("{:.4g}", value), fmt::format("{:.4g}", low),
                          fmt::format("{:.4g}", high)});
  };
  add("forward_ms, with the rest of the step", model.forward_ms, model.forward_ms / model.spread,
      model.forward_ms * model.spread);
  add("backward_ms", model.backward_ms, model.backward_ms / model.spread,
      model.backward_ms * model.spread);
  for (const std::vector<DeclaredInput>* inputs : {&model.inputs, &traced.links.inputs}) {
    for (const DeclaredInput& input : *inputs) add(input.name, input.value, input.low, input.high);
  }
  for (const LinkLog* curve : traced.links.curves) {
    table.rows.push_back({fmt::format("all-reduces of {} ranks", curve->ranks),
                          fmt::format("{} sizes", curve->samples.size()), kNone, kNone});
  }
  table.notes = model.corrections;
  table.notes.insert(table.notes.end(), model.notes.begin(), model.notes.end());
  table.notes.insert(table.notes.end(), traced.links.notes.begin(), traced.links.notes.end());
  text += Render(table, TableFormat::kMarkdown) + "\n";
  std::vector<std::string> stay;
  for (const DeclaredInput& input : traced.cluster.inputs) {
    if (input.kind != kTraceKind) stay.push_back(fmt::format("{} ({})", input.name, input.kind));
  }
  return text + fmt::format("As the cluster's file has them: {}\n", fmt::join(stay, ", "));
}

json TraceSummaryJson(const TracedModel& model, const TracedCluster& traced) {
  const bool compared = !Calibrates(model, traced) && traced.modelled_ms > 0 && model.step_ms > 0;
  json inputs = json::array(), stay = json::array();
  for (const std::vector<DeclaredInput>* some : {&model.inputs, &traced.links.inputs}) {
    for (const DeclaredInput& input : *some) {
      inputs.push_back(
          {{"name", input.name}, {"value", input.value}, {"low", input.low}, {"high", input.high}});
    }
  }
  for (const DeclaredInput& input : traced.cluster.inputs) {
    if (input.kind != kTraceKind) stay.push_back({{"name", input.name}, {"kind", input.kind}});
  }
  std::vector<std::string> notes = model.notes;
  notes.insert(notes.end(), traced.links.notes.begin(), traced.links.notes.end());
  const auto seconds = [](double ms) { return ms > 0 ? json(ms / 1e3) : json(); };
  return {{"source", model.source},
          {"host_bound", model.host_bound},
          {"workers", model.facts().world},
          {"step_seconds", seconds(model.step_ms)},
          {"step_is", model.step_measured ? "measured" : "traced"},
          {"modelled_step_seconds", seconds(traced.modelled_ms)},
          {"off", compared ? json(traced.modelled_ms / model.step_ms - 1) : json()},
          {"forward_seconds", model.forward_ms / 1e3},
          {"backward_seconds", model.backward_ms / 1e3},
          {"spread", model.spread},
          {"inputs", std::move(inputs)},
          {"as_declared", std::move(stay)},
          {"corrections", model.corrections},
          {"notes", std::move(notes)}};
}

int ImportKinetoVerb(Program& program, const KinetoImport& asked) {
  const ProfileFolders& profiles = program.store().profiles();
  const fs::path file = FileOfDeclared(profiles, asked.cluster);
  if (!asked.print) NeedOwn(profiles, file);
  const TracedModel model = ModelOfTrace(LoadDeclaredCluster(profiles, asked.cluster), asked.trace);
  const PassingFolder folder;
  const TracedCluster traced =
      PlaceTrace(profiles, asked.cluster, model, StatedInputs::kStay, folder.path());
  fmt::print("{}\n", TraceSummary(model, traced));
  if (asked.print) {
    fmt::print("{}", ReadFile(traced.file));
  } else {
    for (const fs::path& each : {traced.table, traced.record, traced.file}) {
      const fs::path to = profiles.own() / fs::relative(each, folder.path());
      MakeDirectories(to.parent_path());
      WriteFileDurably(to, ReadFile(each));
      fmt::print("wrote {}\n", to.string());
    }
    fmt::print("workload = \"table:{}\" names the model\n",
               (profiles.own() / fs::relative(traced.table, folder.path())).string());
  }
  if (!traced.stated.empty()) {
    fmt::print("\nFor [input] of {}, instead of its own lines of these names:\n\n", file.string());
    for (const DeclaredInput& input : traced.stated) fmt::print("{}\n", LineOf(input));
  }
  return kDone;
}

PassingFolder::PassingFolder() {
  std::string path = (fs::temp_directory_path() / "sparfuse-trace-XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr) {
    SPARFUSE_THROW(kData, fmt::format("cannot make a folder {}: {} (errno {})", path,
                                      std::strerror(errno), errno));
  }
  path_ = path;
}

PassingFolder::~PassingFolder() {
  std::error_code none;
  fs::remove_all(path_, none);
}

TraceForAdvice::TraceForAdvice(const ProfileFolders& declared, const std::string& cluster,
                               const TraceImport& asked)
    : profiles(declared.Behind(folder.path())) {
  TracedModel model = ModelOfTrace(LoadDeclaredCluster(declared, cluster), asked);
  // Host work of methods lengthens the backward pass itself, which the model ignores.
  constexpr double kStretched = 2;
  for (DeclaredInput& input : model.inputs) {
    if (model.host_bound && input.group == "host_overhead") input.high *= kStretched;
  }
  const TracedCluster traced =
      PlaceTrace(declared, cluster, model, StatedInputs::kReplaced, folder.path());
  workload = "table:" + traced.table.string();
  summary = TraceSummary(model, traced);
  record = TraceSummaryJson(model, traced);
}

}  // namespace sparfuse::harness
