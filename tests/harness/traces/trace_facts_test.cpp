// Tests the reading of training traces: files with known answers, their refusals, and laws that
// hold for any order and packing of a file.
#include "harness/traces/trace_facts.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <random>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"
#include "tests/harness/traces/cases.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ErrorOf;

json FactsOfFile(const fs::path& file, const TraceOptions& options = {}) {
  return ToJson(ReadTraceFacts(file.string(), options));
}

// Expects that `made` contains all of `expected`, numbers within 0.001 (us), rates and shares
// within 0.0001.
void ExpectHas(const json& expected, const json& made, const std::string& at) {
  if (expected.is_object()) {
    for (const auto& [key, value] : expected.items()) {
      ASSERT_TRUE(made.contains(key)) << at << "/" << key;
      ExpectHas(value, made.at(key), at + "/" + key);
    }
  } else if (expected.is_array()) {
    ASSERT_TRUE(made.is_array() && made.size() == expected.size()) << at << ": " << made.dump();
    for (std::size_t i = 0; i < expected.size(); ++i)
      ExpectHas(expected[i], made[i], at + "/" + std::to_string(i));
  } else if (expected.is_number_float()) {
    ASSERT_TRUE(made.is_number()) << at << ": " << made.dump();
    const bool fine = at.find("share") != std::string::npos || at.find("bus") != std::string::npos;
    EXPECT_NEAR(expected.get<double>(), made.get<double>(), fine ? 0.0001 : 0.001000001) << at;
  } else {
    EXPECT_EQ(expected, made) << at;
  }
}

class GoldenTraces : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTraces, HaveTheirFacts) {
  const std::string name = GetParam();
  TraceOptions options;
  options.optimizer_steps = name.find("nosteps") != std::string::npos;
  const fs::path file = Case(name + (name.starts_with("hand") ? ".json" : ".json.gz"));
  ExpectHas(ReadJsonFile(Case("expected/" + name + ".expected.json")), FactsOfFile(file, options),
            name);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTraces,
                         ::testing::Values("hand-cpu", "hand-gpu-ddp", "gpt-torch2.11-compiled",
                                           "gpt-torch2.11-cpu", "gpt-torch2.15-gloo-rank0",
                                           "mi250-rocm6.2", "resnet-torch2.11-gloo-rank0",
                                           "resnet-torch2.11-gloo-rank1",
                                           "resnet-torch2.11-noshapes", "resnet-torch2.11-nosteps",
                                           "resnet50-a100-nccl-rank0"));

TEST(Traces, OfTwoRanksGiveTheShortestTransfers) {
  const TransferFacts made =
      TransfersOf({ReadTraceFacts(Case("resnet-torch2.11-gloo-rank0.json.gz"), {}),
                   ReadTraceFacts(Case("resnet-torch2.11-gloo-rank1.json.gz"), {})});
  ExpectHas(ReadJsonFile(Case("expected/resnet-torch2.11-gloo.transfers.json")), ToJson(made),
            "transfers");
}

// One rank's file asks for the others'. If they are all there, there is nothing to ask for.
TEST(Traces, OfAllRanksAskForNoMore) {
  const std::string one = Case("resnet-torch2.11-gloo-rank0.json.gz");
  const auto asks = [](const TraceFacts& facts) {
    return std::ranges::any_of(facts.notes, [](const std::string& note) {
      return note.find("give the other ranks' files") != std::string::npos;
    });
  };
  EXPECT_TRUE(asks(ReadTraceFacts(one, {})));
  const std::vector<std::string> files = {one, Case("resnet-torch2.11-gloo-rank1.json.gz")};
  for (const TraceFacts& each : ReadTraceFacts(files, {})) EXPECT_FALSE(asks(each)) << each.rank;
}

TEST(Traces, OfOneRankTwiceAreRefused) {
  const TraceFacts facts = ReadTraceFacts(Case("hand-gpu-ddp.json"), {});
  EXPECT_SAYS(ErrorOf([&] {
                TransfersOf({facts, facts});
              }),
              "both of rank 0: expected a file a rank");
  TraceFacts other = facts;
  other.rank = 1;
  other.exchanges[1].elements = 7;
  EXPECT_SAYS(ErrorOf([&] { TransfersOf({facts, other}); }), "exchange 1 has 216 and 7 elements");
  other = facts;
  other.rank = 1;
  other.exchanges[0].group = "3";
  EXPECT_SAYS(ErrorOf([&] {
                TransfersOf({facts, other});
              }),
              "exchange 0 has \"0\" and \"3\" as process groups");
  other = facts;
  other.rank = 1;
  other.steps_used = {"ProfilerStep#9", "ProfilerStep#10"};
  EXPECT_SAYS(ErrorOf([&] { TransfersOf({facts, other}); }), "expected the same");
}

// Each refusal names the file, the problem and the remedy.
TEST(Traces, ThatCannotBeReadAreRefused) {
  const std::pair<const char*, const char*> kRefused[] = {
      {"truncated", "at byte 2401"},
      {"no-steps",
       "no ProfilerStep#N: expected a schedule and prof.step() after each step, or "
       "--steps optimizer"},
      {"no-accumulate", "no torch::autograd::AccumulateGrad in its steps"},
      {"cuda-graph", "ProfilerStep#8: cudaGraphLaunch: kernels of a graph"},
      {"no-launches", "18 of 18 kernels have no launch on the host"},
      {"tensors-differ", "ProfilerStep#6 has 2 accumulated gradients, and ProfilerStep#5 has 3"},
      {"two-optimizers", "Optimizer.step#Adam.step and Optimizer.step#SGD.step in one step"},
      {"negative-duration", "traceEvents[3] \"aten::linear\": dur = -2.000"},
      {"tpu", "it comes from a TPU"}};
  for (const auto& [name, words] : kRefused) {
    const std::string file = Case(std::string("refused/") + name + ".json");
    const std::string error = ErrorOf([&] { ReadTraceFacts(file, {}); });
    EXPECT_SAYS(error, file + ": ");
    EXPECT_SAYS(error, words);
  }
}

class EditedTrace : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("traces_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path Write(const std::string& text, const char* name = "hand.json") {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  // The facts, without the keys that name the file.
  json Facts(const std::string& text, const TraceOptions& options = {}) {
    json facts = FactsOfFile(Write(text), options);
    facts.erase("file");
    facts.erase("sha256");
    return facts;
  }
  std::string Error(const std::string& text) {
    const std::string file = Write(text).string();
    return ErrorOf([&] { ReadTraceFacts(file, {}); });
  }

  static json Hand(const char* name = "hand-gpu-ddp.json") { return ReadJsonFile(Case(name)); }
  static std::string Packed(const std::string& text) {
    z_stream stream{};
    deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
    std::string packed(deflateBound(&stream, text.size()), '\0');
    std::string in = text;
    stream.next_in = reinterpret_cast<unsigned char*>(in.data());
    stream.avail_in = static_cast<uInt>(in.size());
    stream.next_out = reinterpret_cast<unsigned char*>(packed.data());
    stream.avail_out = static_cast<uInt>(packed.size());
    deflate(&stream, Z_FINISH);
    packed.resize(stream.total_out);
    deflateEnd(&stream);
    return packed;
  }

  static std::string Unpacked(std::string packed) {
    z_stream stream{};
    inflateInit2(&stream, 16 + MAX_WBITS);
    std::string text(100 * packed.size(), '\0');
    stream.next_in = reinterpret_cast<unsigned char*>(packed.data());
    stream.avail_in = static_cast<uInt>(packed.size());
    stream.next_out = reinterpret_cast<unsigned char*>(text.data());
    stream.avail_out = static_cast<uInt>(text.size());
    inflate(&stream, Z_FINISH);
    text.resize(stream.total_out);
    inflateEnd(&stream);
    return text;
  }

  fs::path folder_;
};

TEST_F(EditedTrace, HasTheSameFactsInAnyOrderOfItsEvents) {
  for (const char* name : {"hand-cpu.json", "hand-gpu-ddp.json"}) {
    json trace = Hand(name);
    const json expected = Facts(trace.dump());
    std::mt19937 random(1);
    for (int i = 0; i < 5; ++i) {
      auto& events = trace["traceEvents"].get_ref<json::array_t&>();
      std::shuffle(events.begin(), events.end(), random);
      EXPECT_EQ(Facts(trace.dump()), expected);
    }
  }
}

// gloo sums and scatters by an all-reduce, so that only the call on the host shows FSDP. A CPU's
// trace gets the call within backward.
TEST_F(EditedTrace, IsRefusedIfItsCallsShowAShardedModel) {
  json trace = Hand("hand-cpu.json");
  json call;
  for (const json& event : trace["traceEvents"]) {
    if (event.value("name", "") == "torch::autograd::AccumulateGrad") call = event;
  }
  call["name"] = "c10d::_reduce_scatter_base_";
  call["dur"] = 0;
  trace["traceEvents"].push_back(call);
  EXPECT_SAYS(Error(trace.dump()), "_reduce_scatter_base_ within backward: the model is sharded");
}

// An optimizer that wraps another is one optimizer, and its time counts once.
TEST_F(EditedTrace, CountsAnOptimizerWithinAnotherOnce) {
  json trace = Hand("hand-cpu.json");
  const json expected = Facts(trace.dump());
  json inner = json::array();
  for (const json& event : trace["traceEvents"]) {
    if (!event.value("name", "").starts_with("Optimizer.step#")) continue;
    inner.push_back(event);
    inner.back()["name"] = "Optimizer.step#Adam.step";
    inner.back()["dur"] = 1;
  }
  ASSERT_FALSE(inner.empty());
  for (const json& each : inner) trace["traceEvents"].push_back(each);
  EXPECT_EQ(Facts(trace.dump()), expected);
}

// DDP sums a map of the parameters that were used, as integers: no gradient's exchange.
TEST_F(EditedTrace, TakesNoSumOfIntegersForAnExchangeOfGradients) {
  json trace = Hand();
  const json whole = Facts(trace.dump());
  ASSERT_EQ(whole["exchanges"].size(), 2u);
  for (json& event : trace["traceEvents"]) {
    if (!event.contains("args") || event["args"].value("In msg nelems", 0) != 216) continue;
    event["args"]["dtype"] = "Int";
  }
  const json facts = Facts(trace.dump());
  ASSERT_EQ(facts["exchanges"].size(), 1u);
  EXPECT_EQ(facts["exchanges"][0], whole["exchanges"][0]);
  EXPECT_SAYS(facts["notes"].dump(), "1 all-reduce of a step is of integers");
}

TEST_F(EditedTrace, IsRefusedWithRanksAndSizesThatNothingHas) {
  const auto with = [](const std::function<void(json&)>& edit) {
    json trace = Hand();
    edit(trace);
    return trace.dump();
  };
  for (const auto& [rank, world] : {std::pair{-1, 2}, {0, 0}, {2, 2}, {0, -1}}) {
    const std::string text = with([&](json& trace) {
      trace["distributedInfo"]["rank"] = rank;
      trace["distributedInfo"]["world_size"] = world;
    });
    EXPECT_SAYS(Error(text), fmt::format("rank = {} and world_size = {}", rank, world));
  }
  const auto sized = [&](const char* key, const json& value) {
    return with([&](json& trace) {
      for (json& event : trace["traceEvents"]) {
        const bool has = event.value("name", "") == "torch::autograd::AccumulateGrad" ||
                         event.value("name", "") == "record_param_comms";
        if (has) event["args"][key] = value;
      }
    });
  };
  EXPECT_SAYS(Error(sized("Input Dims", json::parse("[[-3, 4]]"))), "Input Dims [-3, 4]: expected");
  EXPECT_SAYS(Error(sized("Input Dims", json::parse("[[4611686018427387904, 4]]"))),
              "at most 2^48");
  EXPECT_SAYS(Error(sized("In msg nelems", 1ll << 60)), "In msg nelems = 1.15292e+18: expected");
  EXPECT_SAYS(Error(sized("bytes", 1e300)), "bytes = 1e+300: expected");
  for (const std::int64_t number : {std::int64_t{-7}, std::int64_t{1} << 32}) {
    const std::string text = with([&](json& trace) {
      for (json& event : trace["traceEvents"]) {
        if (event.value("cat", "") == "kernel") event["args"]["correlation"] = number;
      }
    });
    EXPECT_SAYS(Error(text), fmt::format("correlation = {}: expected 0 to 4294967294", number));
  }
}

TEST_F(EditedTrace, HasTheSameFactsPackedInMembersAndWithEscapes) {
  std::string text = Hand().dump(1);
  const json expected = Facts(text);
  EXPECT_EQ(Facts(Packed(text)), expected);
  for (const std::size_t at : {std::size_t{1}, text.size() / 3, text.size() - 2})
    EXPECT_EQ(Facts(Packed(text.substr(0, at)) + Packed(text.substr(at))), expected);
  for (std::size_t at = 0; (at = text.find("torch::autograd::Acc", at)) != std::string::npos;)
    text.replace(at, 1, "\\u0074");
  EXPECT_EQ(Facts(text), expected);
}

TEST_F(EditedTrace, CutOffAnywhereIsRefusedOrWhole) {
  const std::string text = ReadFile(Case("hand-cpu.json"));
  const json expected = Facts(text);
  for (std::size_t size = 0; size < text.size(); size += 97)
    EXPECT_SAYS(Error(text.substr(0, size)), "cut off, or not JSON, at byte");
  EXPECT_EQ(Facts(text.substr(0, text.rfind('}') + 1)), expected);
  const std::string packed = Packed(text);
  EXPECT_SAYS(Error(packed.substr(0, packed.size() / 2)), "the packed file ends");
  EXPECT_SAYS(Error(packed + "rest"), "the packed file is broken");
  EXPECT_SAYS(Error(text + "{}"), "cut off, or not JSON, at byte");
}

TEST_F(EditedTrace, HasTheSameFactsLaterAndOnOtherThreads) {
  json trace = Hand();
  const json expected = Facts(trace.dump());
  for (json& event : trace["traceEvents"]) {
    event["ts"] = 1'700'000'000'000'000 + event["ts"].get<std::int64_t>();
    event["pid"] = 7 - event["pid"].get<int>();
    event["tid"] = event["tid"] == 20 ? json("main") : json(-event["tid"].get<int>());
  }
  EXPECT_EQ(Facts(trace.dump()), expected);
}

TEST_F(EditedTrace, TwiceAsLongHasTwiceTheTimes) {
  json trace = Hand();
  const TraceFacts once = ReadTraceFacts(Case("hand-gpu-ddp.json"), {});
  for (json& event : trace["traceEvents"]) {
    for (const char* key : {"ts", "dur"}) event[key] = 2 * event[key].get<double>();
  }
  const TraceFacts twice = ReadTraceFacts(Write(trace.dump()).string(), {});
  EXPECT_EQ(twice.forward_us.median, 2 * once.forward_us.median);
  EXPECT_EQ(twice.tensors[1].ready_us, 2 * once.tensors[1].ready_us);
  EXPECT_EQ(twice.exposed_us->median, 2 * once.exposed_us->median);
  EXPECT_EQ(twice.idle_share_of_backward, once.idle_share_of_backward);
}

TEST_F(EditedTrace, TellsWhatIsWrongAndWhere) {
  json trace = Hand("hand-cpu.json");
  trace["traceEvents"][2]["dur"] = "60";
  EXPECT_SAYS(Error(trace.dump()),
              "traceEvents[2] \"aten::linear\": dur = \"60\": expected a number");
  trace["traceEvents"][2]["dur"] = nullptr;
  EXPECT_SAYS(Error(trace.dump()), "traceEvents[2] \"aten::linear\": dur = null");
  trace["traceEvents"][2].erase("dur");
  EXPECT_SAYS(Error(trace.dump()), "traceEvents[2] \"aten::linear\": the key \"dur\" is missing");
  trace["traceEvents"][2]["dur"] = 0;  // Kineto's way of saying "too short"
  Facts(trace.dump());
  std::string twice = Hand("hand-cpu.json").dump();
  twice.insert(twice.size() - 1, ",\"traceEvents\":[]");
  EXPECT_SAYS(Error(twice), "the key \"traceEvents\" is twice");
  EXPECT_SAYS(Error("[]"), "its top is a list, as Chrome's own tracing writes");
  EXPECT_SAYS(Error("{\"schemaVersion\": 1}"), "no key \"traceEvents\"");
}

// With the kernels of a device that is not read, backward would be what the host launches.
TEST_F(EditedTrace, OfADeviceThatIsNotReadIsRefused) {
  for (const auto& [runtime, kernel, device] :
       {std::tuple("mtia_runtime", "mtia_ccp_events", "an MTIA device"),
        std::tuple("xpu_runtime", "kernel", "an Intel XPU")}) {
    json trace = Hand();
    for (json& event : trace["traceEvents"]) {
      if (event["cat"] == "cuda_runtime") event["cat"] = runtime;
      if (event["cat"] == "kernel") event["cat"] = kernel;
    }
    EXPECT_SAYS(Error(trace.dump()), std::string("events are of ") + device);
  }
}

TEST_F(EditedTrace, ShardedOrInSeveralGroupsIsRefused) {
  json trace = Hand();
  const auto set = [&](std::size_t i, const char* key, const json& value) {
    for (json& event : trace["traceEvents"]) {
      json& args = event["args"];
      if (args.value("External id", 0) % 100 == (i == 0 ? 50 : 70) && args.contains(key))
        args[key] = value;
    }
  };
  set(1, "Process Group Name", "7");
  EXPECT_SAYS(Error(trace.dump()),
              "all-reduces of the process groups 0, 7 within backward: expected "
              "--group");
  TraceOptions options;
  options.group = "7";
  EXPECT_EQ(Facts(trace.dump(), options)["exchanges"].size(), 1U);
  set(1, "Process Group Name", "0");
  set(0, "Collective name", "reduce_scatter");
  EXPECT_SAYS(Error(trace.dump()), "reduce_scatter within backward: the model is sharded");
}

// A program may sum its loss over ranks when backward is over, and the profiler may leave out the
// size of an exchange in one step.
TEST_F(EditedTrace, TakesAllReducesOfBackwardAlone) {
  const std::string real = Case("resnet-torch2.11-gloo-rank0.json.gz");
  const TraceFacts expected = ReadTraceFacts(real, {});
  json trace = json::parse(Unpacked(ReadFile(real)));
  json& events = trace["traceEvents"];
  const auto begins = [](const json& event) { return event.value("ts", 0.0); };
  std::vector<json> steps;
  json call, exchange;
  for (const json& event : events) {
    const std::string name = event.value("name", "");
    if (name.starts_with("ProfilerStep#") && event.value("cat", "") == "user_annotation")
      steps.push_back(event);
    if (name == "c10d::allreduce_") call = event;
    if (name == "gloo:all_reduce") exchange = event;
  }
  std::ranges::sort(steps, {}, begins);
  ASSERT_EQ(steps.size(), 3U);
  for (const json& step : steps) {
    const double end = begins(step) + step["dur"].get<double>();
    call["ts"] = end - 8;
    exchange["ts"] = end - 5;
    call["dur"] = exchange["dur"] = 2;
    exchange["args"]["Input Dims"] = {json::array({1})};
    events.push_back(call);
    events.push_back(exchange);
  }
  json* last = nullptr;
  for (json& event : events) {
    const bool later = event.value("name", "") == "gloo:all_reduce" &&
                       begins(event) > begins(steps[2]) && event["dur"] != 2;
    if (later && (last == nullptr || begins(event) > begins(*last))) last = &event;
  }
  ASSERT_NE(last, nullptr);
  (*last)["args"].erase("Input Dims");
  (*last)["args"].erase("Input type");

  const TraceFacts facts = ReadTraceFacts(Write(trace.dump()).string(), {});
  ASSERT_EQ(facts.exchanges.size(), expected.exchanges.size());
  for (std::size_t i = 0; i < facts.exchanges.size(); ++i) {
    EXPECT_EQ(facts.exchanges[i].elements, expected.exchanges[i].elements) << i;
    EXPECT_NEAR(facts.exchanges[i].us.median, expected.exchanges[i].us.median, 0.002) << i;
  }
  EXPECT_NEAR(facts.exposed_us->median, expected.exposed_us->median, 0.002);
  EXPECT_TRUE(std::ranges::any_of(facts.notes, [](const std::string& note) {
    return note.starts_with("1 all-reduce of a step is called after backward");
  }));
}

// The closure of L-BFGS runs forward and backward within the optimizer's step. Its passes would
// count as update, too.
TEST_F(EditedTrace, OfAnOptimizerThatRunsBackwardItselfIsRefused) {
  json trace = Hand("hand-cpu.json");
  for (json& event : trace["traceEvents"]) {
    if (event["name"] != "Optimizer.step#SGD.step") continue;
    event["name"] = "Optimizer.step#LBFGS.step";
    event["ts"] = event["ts"].get<int>() - 365;
    event["dur"] = event["dur"].get<int>() + 365;
  }
  EXPECT_SAYS(Error(trace.dump()),
              "ProfilerStep#5: backward runs within Optimizer.step#LBFGS.step: expected an "
              "optimizer that computes no gradients of its own");
}

TEST_F(EditedTrace, TellsNothingOfHostsPathsAndUsers) {
  json trace = Hand();
  trace["host_name"] = "node17.lab";
  trace["traceName"] = "/data/alice/trace.json";
  trace["traceEvents"][2]["args"]["Call stack"] = "/data/alice/train.py(3)";
  const std::string text = Facts(trace.dump()).dump();
  for (const char* name : {"node17", "alice", "train.py"})
    EXPECT_EQ(text.find(name), std::string::npos) << name;
}

TEST(Traces, KeepNanosecondsThatADoubleCannotHold) {
  const std::pair<const char*, std::int64_t> kTimes[] = {
      {"1712345678901234.567", 1'712'345'678'901'234'567},
      {"1712345678901234.568", 1'712'345'678'901'234'568},
      {"0.0005", 1},
      {"0.00049", 0},
      {"-2", -2000},
      {"1.5e3", 1'500'000},
      {"12345e-2", 123'450},
      {"7", 7000}};
  for (const auto& [text, expected] : kTimes) {
    std::int64_t made = 0;
    EXPECT_TRUE(NanosecondsOf(text, made)) << text;
    EXPECT_EQ(made, expected) << text;
  }
  std::int64_t none = 0;
  for (const char* text : {"", "-", "1e99", "99999999999999999999", "1.2.3", "abc"})
    EXPECT_FALSE(NanosecondsOf(text, none)) << text;
}

// This is why a gradient is ready when all operations launched before its end are done: no
// all-reduce of DDP begins before the gradient whose hook launched it.
TEST(Traces, OfACardBeginNoExchangeBeforeItsLastGradient) {
  const TraceFacts facts = ReadTraceFacts(Case("resnet50-a100-nccl-rank0.json.gz"), {});
  ASSERT_EQ(facts.exchanges.size(), 5U);
  std::int64_t elements = 0;
  for (const TracedExchange& each : facts.exchanges) {
    elements += each.elements.value();
    const auto later = std::ranges::count_if(
        facts.tensors, [&](const TracedTensor& tensor) { return tensor.ready_us > each.begin_us; });
    // Some gradient was ready before it, and, except for the last one, some were not.
    EXPECT_LT(later, 161);
    EXPECT_EQ(later == 0, &each == &facts.exchanges.back());
  }
  EXPECT_EQ(elements, 25'557'032);
  EXPECT_TRUE(std::ranges::is_sorted(facts.tensors, {}, &TracedTensor::ready_us));
}

}  // namespace
}  // namespace sparfuse::harness
