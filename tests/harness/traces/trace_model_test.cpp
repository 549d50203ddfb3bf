// Tests how a trace is combined with a model's table and a cluster: joins, corrections, and the
// block in the cluster's file. Also writes a modelled step as a trace and reads it again.
#include "harness/traces/trace_model.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/base/error.hpp"
#include "core/engine/model/model_engine.hpp"
#include "harness/catalog/model_table.hpp"
#include "harness/clusters/cluster_calibration.hpp"
#include "harness/clusters/cluster_text.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/toml_file.hpp"
#include "harness/run/model/modelled_cell.hpp"
#include "harness/traces/kineto_trace.hpp"
#include "harness/traces/nccl_logs.hpp"
#include "tests/harness/traces/cases.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using testing::ErrorOf;
using workloads::LayerTensor;

LayerTensor Tensor(const char* name, std::vector<std::int64_t> shape) {
  std::size_t numel = 1;
  for (const std::int64_t size : shape) numel *= static_cast<std::size_t>(size);
  return {name, std::move(shape), numel, 1};
}

TraceFacts HandCpu() { return ReadTraceFacts(Case("hand-cpu.json"), {}); }

TEST(JoinedTensors, AreByPositionIfShapesAgree) {
  const std::vector<LayerTensor> table = {Tensor("a", {4}), Tensor("b", {4, 8}),
                                          Tensor("c", {8, 16})};
  const JoinedTensors joined = JoinTensors(HandCpu(), table, "t.json");
  EXPECT_EQ(joined.positions, (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_TRUE(joined.notes.empty());
}

TEST(JoinedTensors, AreByShapeIfTheOrderDiffers) {
  const std::vector<LayerTensor> table = {Tensor("c", {8, 16}), Tensor("b", {4, 8}),
                                          Tensor("a", {4})};
  const JoinedTensors joined = JoinTensors(HandCpu(), table, "t.json");
  EXPECT_EQ(joined.positions, (std::vector<std::size_t>{2, 1, 0}));
  EXPECT_SAYS(joined.notes.at(0), "may be swapped");
}

TEST(JoinedTensors, LeaveOutWhatIsUnusedIfOneChoiceAlonDoes) {
  std::vector<LayerTensor> table = {Tensor("a", {4}), Tensor("unused", {7}), Tensor("b", {4, 8}),
                                    Tensor("c", {8, 16})};
  const JoinedTensors joined = JoinTensors(HandCpu(), table, "t.json");
  EXPECT_EQ(joined.positions, (std::vector<std::size_t>{0, 2, 3}));
  EXPECT_SAYS(joined.notes.at(0), "left out: unused");
  table[1] = Tensor("a2", {4});  // either tensor may be the one
  EXPECT_SAYS(ErrorOf([&] { JoinTensors(HandCpu(), table, "t.json"); }),
              "hand-cpu.json and t.json: shapes differ (4: 1 in the trace, 2 in the table)");
}

TEST(JoinedTensors, OfAnotherModelAreRefused) {
  EXPECT_SAYS(ErrorOf([&] { JoinTensors(HandCpu(), std::vector{Tensor("a", {4})}, "t.json"); }),
              "3 gradients, and the table has 1 tensors");
  const std::vector<LayerTensor> other = {Tensor("a", {4}), Tensor("b", {4, 9}),
                                          Tensor("c", {8, 16})};
  EXPECT_SAYS(ErrorOf([&] { JoinTensors(HandCpu(), other, "t.json"); }),
              "4x8: 1 in the trace, 0 in the table; 4x9: 0 in the trace, 1 in the table");
}

// Without shapes DDP's buckets prove the order.
TEST(JoinedTensors, WithoutShapesAreProvedByBuckets) {
  TraceFacts facts = ReadTraceFacts(Case("hand-gpu-ddp.json"), {});
  for (TracedTensor& tensor : facts.tensors) tensor.shape.reset();
  const std::vector<LayerTensor> table = {Tensor("fc", {10, 8}), Tensor("conv", {8, 3, 3, 3})};
  EXPECT_EQ(JoinTensors(facts, table, "t.json").positions, (std::vector<std::size_t>{0, 1}));
  const std::vector<LayerTensor> swapped = {table[1], table[0]};
  EXPECT_SAYS(
      ErrorOf([&] { JoinTensors(facts, swapped, "t.json"); }),
      "exchange 0 of 80 elements is not the sum of the table's next tensors (216 up to conv)");
}

// Traces of our own: all 28 and 29 tensors, by position.
TEST(JoinedTensors, OfRealTracesAreThoseOfDescribe) {
  for (const auto& [trace, table] :
       {std::pair("gpt-torch2.11-cpu.json.gz", "gpt.json"),
        std::pair("gpt-torch2.15-gloo-rank0.json.gz", "gpt.json"),
        std::pair("resnet-torch2.11-gloo-rank0.json.gz", "resnet.json")}) {
    const auto known = ReadJsonFile(Case(table));
    std::vector<LayerTensor> layers;
    for (const auto& tensor : known["tensors"])
      layers.push_back(Tensor("x", tensor["shape"].get<std::vector<std::int64_t>>()));
    const TraceFacts facts = ReadTraceFacts(Case(trace), {});
    EXPECT_TRUE(JoinTensors(facts, layers, table).notes.empty()) << trace;
  }
  // Without shapes and of one process, nothing proves the order, and a note says so.
  const auto known = ReadJsonFile(Case("resnet.json"));
  std::vector<LayerTensor> layers;
  for (const auto& tensor : known["tensors"])
    layers.push_back(Tensor("x", tensor["shape"].get<std::vector<std::int64_t>>()));
  const TraceFacts facts = ReadTraceFacts(Case("resnet-torch2.11-noshapes.json.gz"), {});
  EXPECT_EQ(JoinTensors(facts, layers, "resnet.json").notes.size(), 1U);
}

// A cluster of two nodes of four cards.
constexpr const char* kCluster = R"(title    = "Two nodes"
source   = "test"
hardware = "made up"
nodes          = 2
ranks_per_node = 4
[input] # mine
inter_node_gbps          = { value = 100, kind = "data sheet", source = "t" }
inter_node_us            = { value = 5, kind = "declared", source = "t" }
intra_node_gbps          = { value = 1000, kind = "data sheet", source = "t" }
intra_node_us            = { value = 2, kind = "declared", source = "t" }
memory_gbytes_per_s      = { value = 1000, kind = "data sheet", source = "t" }
kernel_us                = { value = 4, kind = "declared", source = "t" }
compute_tflops           = { value = 30, kind = "declared", source = "t" }
host_link_gbytes_per_s   = { value = 25, kind = "data sheet", source = "t" }
host_memory_gbytes_per_s = { value = 100, kind = "declared", source = "t" }
exchange_host_us         = { value = 100, kind = "declared", source = "t" }
)";

class TraceOnCluster : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    Write("mine.toml", kCluster);
  }
  void TearDown() override { fs::remove_all(folder_); }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }

  const fs::path folder_ =
      fs::temp_directory_path() / ("trace_on_cluster_" + std::to_string(::getpid()));
  const ProfileFolders profiles_{folder_};

  const DeclaredCluster& Cluster() const { return LoadDeclaredCluster(profiles_, "mine"); }
  TraceImport Import(const std::string& file) const {
    TraceImport asked;
    asked.files = {file};
    asked.batch = 32;
    return asked;
  }
};

TEST_F(TraceOnCluster, BecomesATableAndABlockThatTheNextImportReplaces) {
  const TraceImport asked = Import(Case("hand-gpu-ddp.json"));
  const TracedModel model = ModelOfTrace(Cluster(), asked);
  EXPECT_EQ(model.name, "hand-gpu-ddp");
  EXPECT_EQ(model.table["tensors"][0]["name"], "t000-10x8");
  EXPECT_DOUBLE_EQ(model.table["tensors"][0]["backward_us"].get<double>(), 40);
  EXPECT_DOUBLE_EQ(model.table["tensors"][1]["backward_us"].get<double>(), 105);
  EXPECT_DOUBLE_EQ(model.table["forward_us"].get<double>(), 150);
  EXPECT_DOUBLE_EQ(model.backward_ms, 0.145);

  const TracedCluster placed =
      PlaceTrace(profiles_, "mine", model, StatedInputs::kStay, folder_ / "out");
  const std::string text = ReadFile(placed.file);
  EXPECT_TRUE(text.starts_with(kCluster));  // the owner's part is unchanged
  EXPECT_SAYS(text, "kind             = \"measured: trace\"");
  EXPECT_SAYS(text, "workload         = \"table:tables/hand-gpu-ddp.json\"");
  // The file states these itself: they stay, and are reported.
  std::vector<std::string> stated;
  for (const DeclaredInput& input : placed.stated) stated.push_back(input.name);
  EXPECT_EQ(stated, (std::vector<std::string>{"exchange_host_us", "kernel_us"}));
  EXPECT_NEAR(placed.cluster.ComputeOf(placed.workload)->backward_seconds, 145e-6, 1e-12);

  // Applied to its own output, it gives the same text; it refuses an edited one.
  TracedModel later = model;
  later.backward_ms = 0.2;
  const ClusterWithTrace again = WithTrace(text, "mine.toml", later, placed.links,
                                           "tables/hand-gpu-ddp.json", StatedInputs::kStay);
  EXPECT_SAYS(again.text, "backward_ms      = 0.2\n");
  EXPECT_EQ(again.text.find("backward_ms      = 0.145"), std::string::npos);
  const std::string edited = testing::Replaced(text, "backward_ms      = 0.145", "backward_ms = 7");
  EXPECT_SAYS(ErrorOf([&] {
                WithTrace(edited, "mine.toml", later, placed.links, "t", StatedInputs::kStay);
              }),
              "the block of an earlier import was edited");
}

TEST_F(TraceOnCluster, ForAdviceStandsInThePlaceOfWhatTheFileStates) {
  const TracedModel model = ModelOfTrace(Cluster(), Import(Case("hand-gpu-ddp.json")));
  const TracedCluster placed =
      PlaceTrace(profiles_, "mine", model, StatedInputs::kReplaced, folder_ / "out");
  EXPECT_TRUE(placed.stated.empty());
  EXPECT_DOUBLE_EQ(placed.cluster.Value("exchange_host_us"), 12);
  EXPECT_EQ(placed.cluster.Find("kernel_us")->kind, kTraceKind);
  const CellConfig cell = CellOf(placed.cluster, DenseStep(placed.workload, 32, 2));
  EXPECT_EQ(DeclaredProfile(placed.cluster, cell)[0].kind, "declared, measured: trace");
}

// An input may be written in any form of TOML.
TEST(WithoutInput, TakesEveryForm) {
  const std::string others = "kernel_us = { value = 4 }\n[selection_costs]\nhost_us = 1\n";
  for (const std::string form :
       {"host_us = { value = 12, source = \"a } b\" }\n",
        "  host_us  = { value = 12, of = [ 1,\n 2 ] }\n",
        "\"host_us\" = { value = 12, source = \"\"\"two\n[input]\nlines\"\"\" }\n",
        "host_us.value = 12\nhost_us.source = 't'\n"}) {
    const std::string left = WithoutInput("[input]\n" + form + others, "host_us");
    EXPECT_TRUE(left.ends_with(others)) << left;
    const TomlFile toml = TomlFile::Parse(left, "t.toml");
    EXPECT_EQ(toml.Find("/input/host_us"), nullptr) << left;
    EXPECT_NE(toml.Find("/input/kernel_us"), nullptr) << left;
  }
  const std::string own = "[input.host_us]\nvalue = 12\n[input.host_us_more]\nvalue = 1\n";
  const TomlFile toml = TomlFile::Parse(WithoutInput(own, "host_us"), "t.toml");
  EXPECT_EQ(toml.Find("/input/host_us"), nullptr);
  EXPECT_NE(toml.Find("/input/host_us_more"), nullptr);
}

TEST_F(TraceOnCluster, IsCorrectedByTheStepWithoutTheProfiler) {
  TraceImport asked = Import(Case("hand-cpu.json"));
  asked.step_ms = 0.4;  // the traced one takes 0.5
  const TracedModel model = ModelOfTrace(Cluster(), asked);
  EXPECT_NEAR(model.backward_ms, 0.8 * 0.22, 1e-9);
  EXPECT_NEAR(model.table["tensors"][0]["backward_us"].get<double>(), 0.8 * 65, 1e-9);
  asked.step_ms = 0.6;
  EXPECT_SAYS(ErrorOf([&] { ModelOfTrace(Cluster(), asked); }),
              "--step-ms 0.6: the traced step takes 0.500 ms");
}

// The profiler does not slow down a card's kernels: only the gaps shrink.
TEST_F(TraceOnCluster, OfACardShrinksInItsGapsAlone) {
  TraceImport asked = Import(Case("hand-gpu-ddp.json"));
  asked.step_ms = 0.5;
  const TracedModel model = ModelOfTrace(Cluster(), asked);
  EXPECT_NEAR(model.backward_ms, 0.145, 1e-9);  // no gap
  // A step takes 1,000 us, kernels some 320 of them: half of the rest is left.
  const DeclaredInput& call = model.inputs.front();
  EXPECT_EQ(call.name, "exchange_host_us");
  const TraceFacts& facts = model.facts();
  const double busy = facts.period_us->median - *facts.idle.period_us;
  EXPECT_NEAR(call.value, 12 * (500 - busy) / *facts.idle.period_us, 1e-9);
}

TEST_F(TraceOnCluster, OfUnequalStepsOrWithoutShapesIsRefused) {
  TraceImport asked = Import(Case("gpt-torch2.11-cpu.json.gz"));
  EXPECT_SAYS(ErrorOf([&] { ModelOfTrace(Cluster(), asked); }),
              "expected similar steps, or --accept-spread");
  asked.accept_spread = true;
  EXPECT_GT(ModelOfTrace(Cluster(), asked).spread, 1.5);
  EXPECT_SAYS(
      ErrorOf([&] { ModelOfTrace(Cluster(), Import(Case("resnet-torch2.11-noshapes.json.gz"))); }),
      "its gradients have no shapes: expected record_shapes=True, or --workload");
}

TEST_F(TraceOnCluster, OfAHostBoundStepBoundsTheHostFromBelow) {
  TraceImport asked = Import(Case("resnet50-a100-nccl-rank0.json.gz"));
  asked.workload = "";
  EXPECT_SAYS(ErrorOf([&] { ModelOfTrace(Cluster(), asked); }), "no shapes");
  // A table with as many tensors, whose sums equal the buckets.
  TraceFacts facts = ReadTraceFacts(asked.files[0], {});
  EXPECT_EQ(facts.bound, "host-bound");
}

// A modelled dense step is written as a trace, imported, and modelled again.
TEST_F(TraceOnCluster, OfOurOwnModelComesBackAsItWas) {
  Write("net.json", R"({"name": "net", "unit": "images", "units_per_sample": 1,
    "batch_per_worker": 32, "source": "test", "tensors": [
     {"name": "fc", "shape": [1000, 2048], "macs": 2e7},
     {"name": "conv2", "shape": [512, 512, 3, 3], "macs": 3e8},
     {"name": "conv1", "shape": [64, 3, 7, 7], "macs": 1e8}]})");
  const ReferenceStep step =
      DenseStep(TableWorkloadName("table:" + (folder_ / "net.json").string(), {}), 32, 8);
  const DeclaredCluster& cluster = Cluster();
  const CellConfig cell = CellOf(cluster, step);
  const ModelConfig config =
      ConfigureModel(TrialConfig{cell, 1, 0, ""}, DeclaredProfile(cluster, cell));
  const ModelStep simulated = SimulateStep(config, 0, 1);
  KinetoStep written;
  written.world = 8;
  written.modelled = true;
  for (const auto& tensor : workloads::LayersOf(step.workload).tensors) {
    written.tensors.push_back(
        {tensor.name, tensor.shape, static_cast<std::int64_t>(tensor.numel), false});
  }
  written.spans = simulated.spans.at(0);
  Write("ours.json", KinetoTrace(written));

  const TraceFacts facts = ReadTraceFacts((folder_ / "ours.json").string(), {});
  EXPECT_EQ(facts.world, 8);
  ASSERT_EQ(facts.tensors.size(), 3U);
  const BackwardTimes& backward = *DeclaredProfile(cluster, cell)[0].profile.backward;
  EXPECT_NEAR(facts.forward_us.median, 1e6 * backward.forward_seconds, 1);
  double ready = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    ready += 1e6 * backward.tensors[i].seconds;
    EXPECT_NEAR(facts.tensors[i].ready_us, ready, 1) << i;
    EXPECT_EQ(facts.tensors[i].shape, written.tensors[i].shape);
  }
  EXPECT_NEAR(facts.update_us.median, 1e6 * backward.update_seconds, 1);

  TraceImport asked = Import((folder_ / "ours.json").string());
  asked.workload = "table:" + (folder_ / "net.json").string();
  const TracedModel model = ModelOfTrace(cluster, asked);
  const TracedCluster placed =
      PlaceTrace(profiles_, "mine", model, StatedInputs::kStay, folder_ / "out");
  const double modelled = 1e3 * Modelled(cluster, step);
  EXPECT_NEAR(placed.modelled_ms, modelled, 0.005 * modelled);
}

// The broadcast of buffers stands in the trace before forward, and comes back as the table's bytes.
TEST_F(TraceOnCluster, OfOurOwnModelHasTheBuffersThatItBroadcasts) {
  Write("buffered.toml", "buffers = \"ring\"\n" + std::string(kCluster));
  Write("net.json", R"({"name": "net", "unit": "images", "units_per_sample": 1,
    "batch_per_worker": 32, "source": "test", "broadcast_bytes": 4000000, "tensors": [
     {"name": "fc", "shape": [1000, 2048], "macs": 2e7},
     {"name": "conv1", "shape": [64, 3, 7, 7], "macs": 1e8}]})");
  const std::string net = "table:" + (folder_ / "net.json").string();
  const ReferenceStep step = DenseStep(TableWorkloadName(net, {}), 32, 8);
  const DeclaredCluster& cluster = LoadDeclaredCluster(profiles_, "buffered");
  const CellConfig cell = CellOf(cluster, step);
  const ProfileOutcomes profile = DeclaredProfile(cluster, cell);
  ASSERT_EQ(profile[0].profile.buffers.value().bytes, 4e6);
  KinetoStep written;
  written.world = 8;
  for (const auto& tensor : workloads::LayersOf(step.workload).tensors) {
    written.tensors.push_back(
        {tensor.name, tensor.shape, static_cast<std::int64_t>(tensor.numel), false});
  }
  written.spans =
      SimulateStep(ConfigureModel(TrialConfig{cell, 1, 0, ""}, profile), 0, 1).spans.at(0);
  Write("ours.json", KinetoTrace(written));

  const TraceFacts facts = ReadTraceFacts((folder_ / "ours.json").string(), {});
  EXPECT_EQ(facts.before_backward, (std::vector<TracedBroadcast>{{"broadcast", 1, 4e6}}));
  EXPECT_NEAR(facts.forward_us.median, 1e6 * profile[0].profile.backward->forward_seconds, 1);
  EXPECT_EQ(facts.buffers_us, 0);  // before forward's first kernel
  TraceImport asked = Import((folder_ / "ours.json").string());
  asked.workload = net;
  const TracedModel model = ModelOfTrace(cluster, asked);
  EXPECT_EQ(model.table.at("broadcast_bytes"), 4'000'000);
  const TracedCluster placed =
      PlaceTrace(profiles_, "buffered", model, StatedInputs::kStay, folder_ / "out");
  const double modelled = 1e3 * Modelled(cluster, step);
  EXPECT_NEAR(placed.modelled_ms, modelled, 0.005 * modelled);
  // A cluster whose software leaves buffers to each rank takes none of them, and says so.
  const TracedModel local = ModelOfTrace(Cluster(), asked);
  EXPECT_FALSE(local.table.contains("broadcast_bytes"));
  EXPECT_SAYS(fmt::format("{}", fmt::join(local.notes, "; ")),
              "4000000 bytes of buffers are broadcast before forward");
}

// The trial's trace.json rounds begins and durations to nanoseconds. Each hook stays its own
// gradient's, and each gradient is ready when its kernel ends.
TEST_F(TraceOnCluster, OfATrialHasReadyTimesInSpiteOfRounding) {
  constexpr int kTensors = 60;
  KinetoStep written;
  std::vector<double> ready;
  double now = 1.0 / 3000, until = 0;
  const double begin = now;
  const auto add = [&](SpanKind kind, const std::string& label, double seconds) {
    Span span;
    span.kind = kind;
    span.lane = "compute";
    span.label = label;
    span.begin_seconds = now;
    span.end_seconds = now += seconds;
    written.spans.push_back(span);
  };
  now = 0;
  add(SpanKind::kForward, "", begin);
  for (int i = 0; i < kTensors; ++i) {
    const std::string name = "t" + std::to_string(i);
    written.tensors.push_back({name, {8, i + 1}, 8L * (i + 1), false});
    const double seconds = 1e-6 * (2 + 97.0 / (i + 1) + i % 7 / 3.0);
    add(SpanKind::kBackward, name, seconds);
    ready.push_back(until += 1e6 * seconds);
    add(SpanKind::kPack, name, 4.0006e-6 + 1e-9 / (i + 2));
  }
  add(SpanKind::kOuter, "window", 1e-5);  // of local steps
  add(SpanKind::kUpdate, "", 1e-4);

  const auto spans = SpansOfTrace(ChromeTrace({written.spans}), "trace.json");
  written.spans = spans.at(0);
  Write("ours.json", KinetoTrace(written));
  const TraceFacts facts = ReadTraceFacts((folder_ / "ours.json").string(), {});
  ASSERT_EQ(facts.tensors.size(), ready.size());
  for (std::size_t i = 0; i < ready.size(); ++i)
    EXPECT_NEAR(facts.tensors[i].ready_us, ready[i], 0.2) << i;
  EXPECT_NEAR(facts.update_us.median, 100, 0.01);
}

// Times may be of one rank alone; the step that is compared is the traced training's all the same.
TEST_F(TraceOnCluster, WithOneRankAloneIsComparedWithTheStepOfAll) {
  TraceImport asked = Import(Case("resnet-torch2.11-gloo-rank0.json.gz"));
  asked.alone = Case("resnet-torch2.11-noshapes.json.gz");
  asked.workload = "table:" + Case("resnet.json");
  asked.accept_spread = true;
  const TracedModel model = ModelOfTrace(Cluster(), asked);
  EXPECT_NEAR(model.step_ms, 249.208, 1e-3);
  EXPECT_FALSE(model.step_measured);
  EXPECT_NEAR(model.backward_ms, 139.510, 1e-3);  // alone
  asked.step_ms = 200;
  const TracedModel measured = ModelOfTrace(Cluster(), asked);
  EXPECT_EQ(measured.step_ms, 200);
  EXPECT_TRUE(measured.step_measured);
  EXPECT_NEAR(measured.backward_ms, 139.510 * 200 / 249.208, 1e-3);
}

const DeclaredInput* InputOf(const TracedModel& model, const std::string& name) {
  for (const DeclaredInput& input : model.inputs)
    if (input.name == name) return &input;
  return nullptr;
}

// Hooks on the host lengthen a step that waits for the host, and hide behind a device otherwise.
TEST_F(TraceOnCluster, TakesHooksOfAStepThatWaitsForItsHost) {
  TraceImport asked = Import(Case("resnet-torch2.11-gloo-rank0.json.gz"));
  asked.step_ms = 249.208;
  const TracedModel cpu = ModelOfTrace(Cluster(), asked);
  const DeclaredInput* hook = InputOf(cpu, "hook_host_us_a_tensor");
  ASSERT_NE(hook, nullptr);
  // The copy into a bucket is the work of the model's methods with buffers.
  EXPECT_NEAR(hook->value, *cpu.facts().bare_hook_us, 0.01);
  EXPECT_LT(hook->value, cpu.facts().host.hook_us_a_tensor->median);
  EXPECT_LT(hook->high, cpu.facts().host.hook_us_a_tensor->high);  // the 90th percentile
  const TracedModel card = ModelOfTrace(Cluster(), Import(Case("hand-gpu-ddp.json")));
  EXPECT_EQ(InputOf(card, "hook_host_us_a_tensor"), nullptr);
  EXPECT_SAYS(fmt::format("{}", fmt::join(card.notes, "; ")),
              "15.0 us a tensor, beside the device");
}

// A kernel's name beside the choice of the model's NCCL: two ranks of a node take a ring.
TEST_F(TraceOnCluster, NotesAnAlgorithmThatTheModelDoesNotChoose) {
  Write("nccl.toml",
        "all_reduce = \"nccl-2.20\"\n" + std::string(kCluster) +
            "[nccl]\nwithin = \"nvlink\"\ncards = \"ampere\"\nprocessor = \"amd\"\nchannels = 8\n");
  const DeclaredCluster& cluster = LoadDeclaredCluster(profiles_, "nccl");
  const std::string ours = ModelledAllReduce(cluster, {2, 2}, 320);
  const auto notes = [&](const std::string& file) {
    return fmt::format("{}", fmt::join(ModelOfTrace(cluster, Import(file)).notes, "; "));
  };
  const std::string hand = ReadFile(Case("hand-gpu-ddp.json"));
  const bool ring = ours.starts_with("ring/");
  Write("other.json",
        testing::Replaced(hand, "AllReduce_Sum_f32_RING",
                          ring ? "AllReduce_Sum_f32_TREE" : "AllReduce_Sum_f32_RING"));
  EXPECT_SAYS(notes((folder_ / "other.json").string()), "chooses " + ours);
  EXPECT_EQ(notes(Case("hand-gpu-ddp.json")).find("chooses") == std::string::npos, ring);
}

// Three exchanges of 10,000, 20,000 and 80,000 elements, whose calls take 100 us and 2 ns an
// element more, and whose tensors are copied back in 1 us and 3 ns an element.
TEST_F(TraceOnCluster, TakesTheHostsTimeOfAnElementFromGloosCallsAndCopies) {
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  const auto add = [&](const char* cat, const std::string& name, int tid, double ts, double dur,
                       nlohmann::ordered_json args = nlohmann::ordered_json::object()) {
    events.push_back({{"ph", "X"},
                      {"cat", cat},
                      {"name", name},
                      {"pid", 1},
                      {"tid", tid},
                      {"ts", ts},
                      {"dur", dur},
                      {"args", std::move(args)}});
  };
  const auto of_size = [](double size) {
    using Json = nlohmann::ordered_json;
    return Json{{"Input Dims", Json::array({Json::array({static_cast<int>(size)})})},
                {"Input type", Json::array({"float"})}};
  };
  const std::vector<double> sizes = {10'000, 20'000, 80'000};
  const auto write = [&](const std::vector<double>& of) {
    events.clear();
    for (int step = 1; step <= 4; ++step) {
      double now = 1e5 * step;
      add("user_annotation", "ProfilerStep#" + std::to_string(step), 1, now, 9e4);
      add("cpu_op", "aten::linear", 1, now + 10, 1000, {{"Sequence number", step}});
      now += 2000;
      for (const double size : of) {
        const double call = 100 + 2e-3 * size;
        add("cpu_op", "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 1,
            now, 30 + call);
        add("cpu_op", "torch::autograd::AccumulateGrad", 1, now + 1, 10, of_size(size));
        add("cpu_op", "c10d::allreduce_", 1, now + 20, call);
        add("user_annotation", "gloo:all_reduce", 2, now + 60, 300, of_size(size));
        now += 1000;
      }
      for (const double size : of) {
        add("cpu_op", "torch.distributed.ddp.reducer::copy_bucket_to_grad", 1, now,
            1 + 3e-3 * size);
        now += 1000;
      }
    }
    Write("gloo.json",
          nlohmann::ordered_json{
              {"distributedInfo", {{"backend", "gloo"}, {"rank", 0}, {"world_size", 2}}},
              {"traceEvents", events}}
              .dump());
  };
  write(sizes);
  TraceImport asked = Import((folder_ / "gloo.json").string());
  asked.step_ms = 100;
  const TracedModel model = ModelOfTrace(Cluster(), asked);
  const DeclaredInput* staging = InputOf(model, "exchange_host_ns_an_element");
  ASSERT_NE(staging, nullptr);
  EXPECT_NEAR(staging->value, 5, 1e-3);
  // Copies back are in that input or the work of the model's methods, so they are no rest of the
  // step.
  const TraceFacts& facts = model.facts();
  EXPECT_NEAR(facts.copies_back_us, 3 + 3e-3 * 110'000, 1e-6);
  write({10'000, 20'000, 30'000});
  const TracedModel alike = ModelOfTrace(Cluster(), asked);
  EXPECT_EQ(InputOf(alike, "exchange_host_ns_an_element"), nullptr);  // 3:1 apart
  EXPECT_NEAR(alike.facts().copies_back_us, 3 + 3e-3 * 60'000, 1e-6);
  const auto rest = [this](const TracedModel& of, std::size_t elements) {
    return 1e3 * of.forward_ms - of.facts().forward_us.median + of.facts().hooks_us->median +
           of.facts().copies_back_us - *of.facts().rest_us +
           1e6 * UpdateSeconds(Cluster(), elements);
  };
  EXPECT_NEAR(rest(alike, 60'000), rest(model, 110'000), 1e-3);
}

// A window of three local steps: each has its own gradients, and the exchange is the last one's.
TEST_F(TraceOnCluster, OfAWindowOfLocalStepsHasItsSteps) {
  KinetoStep written;
  written.world = 4;
  written.tensors = {{"a", {8, 2}, 16, false}, {"b", {8, 3}, 24, false}};
  double now = 0;
  const auto add = [&](SpanKind kind, const std::string& label, double us, const char* lane) {
    Span span;
    span.kind = kind;
    span.lane = lane;
    span.label = label;
    span.begin_seconds = now;
    span.end_seconds = now += 1e-6 * us;
    span.bytes = 160;
    written.spans.push_back(span);
  };
  for (int step = 1; step <= 3; ++step) {
    add(SpanKind::kForward, "", 100, "compute");
    add(SpanKind::kBackward, "a", 50, "compute");
    add(SpanKind::kBackward, "b", 10.0 * step, "compute");
    add(SpanKind::kUpdate, "", 5, "compute");
  }
  add(SpanKind::kExchange, "window", 70, "channel 0");
  add(SpanKind::kOuter, "window", 9, "compute");
  Write("window.json", KinetoTrace(written));
  const TraceFacts facts = ReadTraceFacts((folder_ / "window.json").string(), {});
  EXPECT_EQ(facts.steps_used, (std::vector<std::string>{"ProfilerStep#1", "ProfilerStep#2"}));
  EXPECT_EQ(facts.steps_found.size(), 4U);  // an empty one for tools that drop the last
  EXPECT_EQ(facts.tensors_a_step, (std::vector<int>{2, 2}));
  EXPECT_NEAR(facts.forward_us.median, 100, 1e-3);
  EXPECT_NEAR(facts.backward_us.low, 70, 1e-3);
  EXPECT_NEAR(facts.backward_us.high, 80, 1e-3);
  EXPECT_NEAR(facts.update_us.median, 5, 1e-3);
  EXPECT_NEAR(facts.period_us->median, 175, 1e-3);
}

TEST_F(TraceOnCluster, OfOneRankIsComparedWithoutExchanges) {
  const TracedModel model = ModelOfTrace(Cluster(), Import(Case("hand-cpu.json")));
  const TracedCluster placed =
      PlaceTrace(profiles_, "mine", model, StatedInputs::kStay, folder_ / "out");
  EXPECT_DOUBLE_EQ(placed.cluster.Value("exchange_host_us"), 100);
  // Packing takes three kernels of 4 us of a step of 0.5 ms. An exchange would add 0.1 ms.
  EXPECT_NEAR(placed.modelled_ms, model.step_ms, 0.06 * model.step_ms);
}

TEST_F(TraceOnCluster, OfSeveralRanksMayBecomeAReferenceThatCalibrates) {
  TraceImport asked = Import(Case("resnet-torch2.11-gloo-rank0.json.gz"));
  asked.files.push_back(Case("resnet-torch2.11-gloo-rank1.json.gz"));
  asked.step_ms = 250;
  asked.accept_spread = true;
  asked.reference = "ddp";
  const TracedModel model = ModelOfTrace(Cluster(), asked);
  EXPECT_EQ(model.name, "resnet-torch2.11-gloo-rank0");
  ASSERT_TRUE(model.reference);
  EXPECT_EQ(model.reference->workers, 2);
  EXPECT_DOUBLE_EQ(model.reference->step_ms, 250);
  const TracedCluster placed =
      PlaceTrace(profiles_, "mine", model, StatedInputs::kStay, folder_ / "out");
  ASSERT_EQ(placed.cluster.references.size(), 2U);  // exposed communication, and the step
  for (const ReferenceStep& each : placed.cluster.references) {
    EXPECT_EQ(each.method, "ddp");
    EXPECT_EQ(each.workers, 2);
    EXPECT_SAYS(each.source, "resnet-torch2.11-gloo-rank0.json.gz sha256");
  }

  asked = Import(Case("hand-cpu.json"));
  asked.reference = "ddp";
  EXPECT_SAYS(ErrorOf([&] { ModelOfTrace(Cluster(), asked); }),
              "hand-cpu.json: --reference: it is of one rank");
}

}  // namespace
}  // namespace sparfuse::harness
