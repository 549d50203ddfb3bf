// Tests the findings of `sparfuse doctor` about cards, on made-up cards.
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/base/program_folder.hpp"
#include "harness/machine/doctor.hpp"
#include "harness/machine/system.hpp"
#include "tests/support/devices/fake_nvml.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

using Level = Finding::Level;
constexpr unsigned long long kGibibyte = 1ull << 30;

nvml::ProcessInfo Process(unsigned pid, unsigned long long bytes) { return {pid, bytes, 0, 0}; }

// An idle, undisturbed card.
FakeCard QuietCard(const std::string& bus_id) {
  FakeCard card;
  card.name = "NVIDIA H200";
  card.uuid = "GPU-of-" + bus_id;
  card.bus_id = bus_id;
  card.capability = {9, 0};
  card.memory = nvml::MemoryV2{0, 140 * kGibibyte, kGibibyte, 139 * kGibibyte, 0};
  card.clock = {{nvml::kSm, 345}, {nvml::kMemoryClock, 3201}};
  card.max_clock = {{nvml::kSm, 1980}, {nvml::kMemoryClock, 3201}};
  card.application_clock = card.default_application_clock = {{nvml::kSm, 1500}};
  card.throttle_reasons = nvml::kIdle;
  card.persistence = 1;
  card.compute_mode = nvml::kShared;
  card.ecc = 1;
  card.ecc_errors = card.ecc_errors_lifetime = 0;
  card.temperature = 30;
  card.power = 75400;
  card.power_limit = card.power_default = 700000;
  card.mig = card.display = 0;
  card.utilization = nvml::Utilization{0, 0};
  card.cpus = 0b1000'1111;
  card.nodes = 0b10;
  return card;
}

const CudaBuild kBuild{true, "CUDA runtime 13.0, NCCL 2.28.9", 13000, 2, "13.0.96"};

class GpuDoctor : public ::testing::Test {
 protected:
  GpuDoctor() {
    fake = {};
    fake.cards = {QuietCard("00000000:0F:00.0"), QuietCard("00000000:1F:00.0")};
  }

  Finding Found(const std::string& what, const CudaBuild& build = kBuild) {
    for (const Finding& finding : GpuFindings(ReadGpus(functions_), build)) {
      if (finding.what == what) return finding;
    }
    return {Level::kGood, what, "no such finding"};
  }
  void ExpectWarning(const std::string& what, const std::string& part) {
    const Finding finding = Found(what);
    EXPECT_EQ(finding.level, Level::kWarning) << finding.message;
    EXPECT_SAYS(finding.message, part);
  }
  void ExpectGood(const std::string& what, const std::string& message) {
    const Finding finding = Found(what);
    EXPECT_EQ(finding.level, Level::kGood);
    EXPECT_EQ(finding.message, message);
  }
  FakeCard& card() { return fake.cards[1]; }

  nvml::Functions functions_ = FakeFunctions();
};

TEST_F(GpuDoctor, ListsWhatIsThere) {
  ExpectGood("driver", "580.159.04, for CUDA up to 13.0");
  ExpectGood("CUDA", "CUDA runtime 13.0, NCCL 2.28.9; 2 device(s)");
  ExpectGood("NCCL", "2.28.9");
  ExpectGood("toolkit", "CUDA 13.0, but LibTorch's libraries are for 13.0.96");
  ExpectGood("GPU 1",
             "NVIDIA H200, compute capability 9.0, 139.0 GiB of 140.0 GiB free, "
             "PCI 00000000:1F:00.0, GPU-of-00000000:1F:00.0");
  ExpectGood("GPU 1 clocks", "SM 345 of 1980 MHz, memory 3201 of 3201 MHz, idle");
  ExpectGood("GPU 1 power", "75 W, limit 700 W, 30 degrees Celsius");
  ExpectGood("GPU 1 modes", "persistence on, open to several processes, MIG off, no display");
  ExpectGood("GPU 1 memory errors", "ECC on, no uncorrected error since the driver was loaded");
  ExpectGood("GPU 1 use", "busy 0 %, its memory 0 % of the time, 0.0 GiB in use");
  ExpectGood("GPU 1 place", "NUMA node 1, nearest cores 0-3,7");
  ExpectGood("GPU 0 to GPU 1", "PXB: through several PCIe switches");
  EXPECT_EQ(fake.running, 0);
}

TEST_F(GpuDoctor, CountsNvlinkBetweenCardsAndThroughSwitches) {
  fake.cards[0].links = {{nvml::kToGpu, "00000000:1F:00.0"},
                         {nvml::kToGpu, "00000000:2F:00.0"},
                         {nvml::kToGpu, "00000000:1F:00.0"}};
  ExpectGood("GPU 0 to GPU 1", "NV2: 2 NVLink link(s)");
  fake.cards[0].links.assign(18, {nvml::kToSwitch, ""});
  fake.cards[1].links.assign(17, {nvml::kToSwitch, ""});
  ExpectGood("GPU 0 to GPU 1", "NV17: 17 NVLink link(s)");
  fake.cards[1].links.clear();
  fake.ancestor = nvml::kSys;
  ExpectGood("GPU 0 to GPU 1", "SYS: from one NUMA node to another");
}

TEST_F(GpuDoctor, NamesOtherProcessesOnce) {
  const auto own = static_cast<unsigned>(getpid());
  card().compute_processes = {Process(own, kGibibyte), Process(4242, 3 * kGibibyte / 2)};
  card().graphics_processes = {Process(4242, kGibibyte), Process(77, ~0ull)};
  ExpectWarning("GPU 1 use",
                ": other processes: 4242 /usr/bin/train (1.5 GiB), 77 (memory unknown)");
  EXPECT_EQ(Found("GPU 0 use").level, Level::kGood);
  card().compute_processes.assign(100, Process(5, 0));  // more than the first query asks for
  for (unsigned i = 0; i < 100; ++i) card().compute_processes[i].pid = 1000000 + i;
  ExpectWarning("GPU 1 use", "1000099");
}

TEST_F(GpuDoctor, SeesWorkThatADriverDoesNotName) {
  card().utilization = nvml::Utilization{60, 10};
  ExpectWarning("GPU 1 use", "a process that is not visible here keeps it busy");
  card().utilization = nvml::Utilization{0, 0};
  card().memory->used = 2 * kGibibyte;
  ExpectWarning("GPU 1 use", "a process that is not visible here holds memory");
}

TEST_F(GpuDoctor, WarnsOfLowClocksButNotOfRestingOnes) {
  card().throttle_reasons = 0x4 | 0x40;
  ExpectWarning("GPU 1 clocks", "held down by power cap, hot (hardware slowdown)");
  card().throttle_reasons = 0;
  ExpectWarning("GPU 1 clocks", "below maximum while it is not idle");
  card().clock[nvml::kSm] = 1980;
  ExpectGood("GPU 1 clocks", "SM 1980 of 1980 MHz, memory 3201 of 3201 MHz");
  card().application_clock[nvml::kSm] = 1200;
  ExpectWarning("GPU 1 clocks", "SM application clock 1200 MHz, below maximum");
}

TEST_F(GpuDoctor, WarnsOfModesErrorsAndPower) {
  card().compute_mode = nvml::kExclusiveProcess;
  card().mig = 1;
  card().display = 1;
  ExpectWarning("GPU 1 modes", "a second rank on it fails");
  ExpectWarning("GPU 1 modes", "MIG is on");
  ExpectWarning("GPU 1 modes", "a display is attached");
  card().ecc_errors_lifetime = 7;
  ExpectGood("GPU 1 memory errors",
             "ECC on, no uncorrected error since the driver was loaded, 7 in the card's life");
  card().ecc_errors = 2;
  ExpectWarning("GPU 1 memory errors", "2 uncorrected error(s) since the driver was loaded");
  card().power_limit = 450000;
  ExpectWarning("GPU 1 power",
                "limit 450 W, 30 degrees Celsius: the limit is below the default of "
                "700 W");
  card().capability = {7, 0};
  ExpectWarning("GPU 1", "kernels are built for 7.5 and newer");
}

TEST_F(GpuDoctor, WarnsOfVersionsThatDoNotFit) {
  fake.cuda_version = 12080;
  ExpectWarning("driver",
                "for CUDA up to 12.8: older than the toolkit of this build (13.0), so "
                "it cannot run this build's programs");
  CudaBuild newer = kBuild;
  newer.runtime = 12090;
  EXPECT_SAYS(Found("driver", newer).message, "(PTX) cannot run");
  fake.cuda_version = 13010;
  EXPECT_EQ(Found("driver").level, Level::kGood);
  CudaBuild build = kBuild;
  build.wheel = "13.2.51";
  EXPECT_EQ(Found("toolkit", build).level, Level::kWarning);
  build.devices = 0;
  EXPECT_EQ(Found("CUDA", build).level, Level::kWarning);
}

TEST_F(GpuDoctor, ACardMayTellNothingButItsName) {
  fake.cards = {FakeCard{}, FakeCard{}};
  ExpectGood("GPU 0", "Card");
  for (const char* what : {"GPU 0 clocks", "GPU 0 power", "GPU 0 modes", "GPU 0 memory errors",
                           "GPU 0 use", "GPU 0 place"}) {
    EXPECT_EQ(Found(what).level, Level::kNote) << what;
    EXPECT_EQ(Found(what).message, "not reported by this card");
  }
  functions_.nvmlDeviceGetTopologyCommonAncestor = nullptr;
  EXPECT_EQ(Found("GPU 0 to GPU 1").message, "how they are connected is not reported");
}

TEST_F(GpuDoctor, ADriverThatDoesNotStartIsNamed) {
  fake.init_status = 18;
  ExpectWarning("driver", "of different versions");
  EXPECT_EQ(fake.running, 0);
  fake.init_status = 9;
  ExpectWarning("driver", "NVML does not start: the driver is not loaded");
  CudaBuild build = kBuild;
  build.devices = 0;
  EXPECT_EQ(Found("CUDA", build).level, Level::kNote);
}

TEST(GpuLibrary, IsNotThereWithoutADriver) {
  const GpuReport report = ReadGpus("/nowhere/libnvidia-ml.so.1");
  EXPECT_EQ(report.problem, "/nowhere/libnvidia-ml.so.1 is not found: no NVIDIA driver");
  EXPECT_TRUE(report.cards.empty());
  // Only a build with CUDA misses it.
  EXPECT_EQ(GpuFindings(report, kBuild)[0].level, Level::kWarning);
  EXPECT_EQ(GpuFindings(report, {})[0].level, Level::kNote);
  EXPECT_EQ(GpuFindings(report, {})[0].message, report.problem);
}

TEST(GpuLibrary, MayLackFunctions) {
  const GpuReport report = ReadGpus(ProgramFolder() / "libold_nvml_library.so");
  EXPECT_EQ(report.problem, "");
  ASSERT_EQ(report.cards.size(), 1u);
  EXPECT_EQ(report.cards[0].name, "Old Card");
  EXPECT_FALSE(report.cards[0].total_bytes || report.cuda_version);
}

TEST_F(GpuDoctor, ATrialKeepsWhatCardsItRanOn) {
  card().throttle_reasons = 0x4;
  card().power_limit.reset();
  const std::optional<CardStates> states = DescribeGpus(ReadGpus(functions_));
  const auto gpus = ToJson(states);
  EXPECT_EQ(states->driver, "580.159.04");
  EXPECT_EQ(states->cuda, "13.0");
  ASSERT_EQ(states->cards.size(), 2u);
  const auto& second = gpus["cards"][1];
  EXPECT_EQ(second["uuid"], "GPU-of-00000000:1F:00.0");
  EXPECT_EQ(second["sm_clock"]["mhz"], 345);
  EXPECT_EQ(second["sm_clock"]["maximum_mhz"], 1980);
  EXPECT_TRUE(second["sm_clock"]["application_mhz"].is_null());
  EXPECT_EQ(second["held_down_by"], nlohmann::json({"power cap"}));
  EXPECT_EQ(second["ecc"], true);
  EXPECT_TRUE(second["power_limit_watts"].is_null());
  EXPECT_EQ(gpus["topology"], nlohmann::json::parse(R"([{"cards": [0, 1], "kind": "PXB"}])"));
  fake.cards.clear();
  EXPECT_FALSE(DescribeGpus(ReadGpus(functions_)));
}

// The models of cards are part of the machine's identity; values that may change from trial to
// trial are not.
TEST(System, HasModelsOfCardsOnly) {
  const auto system = ToJson(DescribeSystem());
  ASSERT_TRUE(system["gpus"].is_array());
  for (const auto& model : system["gpus"]) EXPECT_TRUE(model.is_string());
  EXPECT_EQ(system.size(), 5u) << system.dump();
}

TEST(CudaBuildOf, FindsTheCudaOfLibTorchsWheel) {
  TemporaryFolder folder;
  EXPECT_EQ(DescribeCudaBuild(folder.path()).wheel, "");
  std::filesystem::create_directories(folder.path() /
                                      ".venv/lib/python3.11/site-packages/"
                                      "nvidia_cuda_runtime-13.0.96.dist-info");
  EXPECT_EQ(DescribeCudaBuild(folder.path()).wheel, "13.0.96");
}

}  // namespace
}  // namespace sparfuse::harness
