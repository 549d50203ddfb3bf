// Tests the trial's records of machine, software, source and quiet: their JSON stays the same.
#include "harness/records/machine.hpp"

#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "harness/files/canonical.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;
using testing::ErrorOf;

const json kMachine = json::parse(R"({"communication_threads": "real time", "cores": 2,
  "cuda_devices": 0, "kernels": "avx512", "load_before": 3.47265625,
  "placement": ["host0", "host1"]})");

TEST(Machine, IsWhatItWas) {
  EXPECT_EQ(ToJson(MachineIn(kMachine)), kMachine);
  json with_cards = kMachine;
  with_cards["cards"] = {"cuda:0 H100", "cuda:1 H100"};
  with_cards["gpus"] = json::parse(R"({"driver": "580.1", "cuda": null, "topology":
    [{"cards": [0, 1], "kind": "NV18"}], "cards": [{"index": 0, "name": "H100", "uuid": null,
    "pci": null, "sm_clock": {"mhz": 345, "maximum_mhz": 1980, "application_mhz": null},
    "memory_clock": {"mhz": null, "maximum_mhz": null, "application_mhz": null},
    "held_down_by": ["power cap"], "ecc": true, "power_limit_watts": 700, "mig": null}]})");
  EXPECT_EQ(ToJson(MachineIn(with_cards)), with_cards);
}

TEST(Machine, WhatIsMissingIsNamed) {
  json stored = kMachine;
  stored.erase("kernels");
  EXPECT_EQ(testing::ErrorOf([&] { MachineIn(stored); }, FailureKind::kData),
            "machine: kernels is missing");
}

TEST(Software, IsWhatItWas) {
  const json stored = {{"compiler", "g++ 12"}, {"container", "unknown"}, {"cuda_build", ""}};
  EXPECT_EQ(ToJson(SoftwareIn(stored)), stored);
  EXPECT_FALSE(ToJson(Software{"g++ 12", "", ""}).contains("container"));
}

TEST(Source, IsUnknownWithoutGit) {
  EXPECT_EQ(ToJson(SourceState()), json::parse(R"({"commit": "unknown", "dirty": null})"));
  const json stored = {{"commit", "b6f5"}, {"dirty", true}};
  EXPECT_EQ(ToJson(SourceIn(stored)), stored);
}

const json kQuiet = json::parse(R"({"cards": null, "causes": {}, "clock_mhz": [2596.14, 2596.14],
  "cores": 2, "disturbed": false, "involuntary_switches": 520.0,
  "limits": {"other_cpu": 1.0, "slowdown": 100.0, "stolen": 1.0}, "load": [6.486328125, null],
  "loop_seconds": [0.0006990579999999191, 0.000784053999999923], "other_cpu": 0.633162102953187,
  "own_cpu_seconds": 0.638488194, "pressure": 0.8987309719287494, "quota": null,
  "resolution": 0.017236241820634806, "seconds": 0.870259315, "slowdown": 1.0483424996606479,
  "stolen": 0.0, "why": ""})");

TEST(Quiet, IsWhatItWas) {
  const auto quiet = QuietOf(kQuiet);
  EXPECT_EQ(ToJson(quiet), kQuiet);
  EXPECT_EQ(ContentHash(ToJson(quiet)), ContentHash(kQuiet));
  EXPECT_EQ(QuietOf(ToJson(quiet)), quiet);
}

TEST(Quiet, HasNoJudgementBeforeItIsJudged) {
  const json readings = ToJson(Quiet());
  for (const char* key : {"limits", "slowdown", "disturbed", "causes", "why"})
    EXPECT_FALSE(readings.contains(key)) << key;
  EXPECT_EQ(QuietOf(readings), Quiet());
  EXPECT_TRUE(ToJson(std::optional<Quiet>()).is_null());
  EXPECT_FALSE(QuietOf(nullptr));
  EXPECT_SAYS(ErrorOf([] { QuietOf(json::object()); }, FailureKind::kData),
              "quiet: other_cpu is missing");
}

}  // namespace
}  // namespace sparfuse::harness
