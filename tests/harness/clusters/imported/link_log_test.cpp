// Tests readers of nccl-tests and of the OSU micro-benchmarks on logs made in their format: what
// was measured comes back, and what is wrong with a log is named with its line.
#include "harness/clusters/imported/link_log.hpp"

#include <gtest/gtest.h>

#include "harness/files/canonical.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse::harness {
namespace {

using testing::ErrorOf;
using testing::ExpectIn;
using testing::Replaced;
// Microseconds of a message, as a link of 5 us and 10^10 bytes a second takes it.
double Us(double bytes) { return 5 + bytes / 1e4; }

// What all_reduce_perf and its like print, as src/util.cu of nccl-tests formats it.
struct NcclRun {
  std::string program = "all_reduce_perf";
  int nodes = 2, ranks_per_node = 4;
  std::vector<double> sizes = {8, 1024, 1'048'576, 268'435'456};
  std::string columns =
      "size count type redop root time algbw busbw #wrong time algbw busbw #wrong";
  std::string units = "(B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)";
  double factor = 2.0 * 7 / 8;

  std::string Text() const {
    std::string text = "# nccl-tests version 2.17.0 nccl-headers=22807 nccl-library=22807\n";
    if (!program.empty()) text += "# Collective test starting: " + program + "\n";
    text +=
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 268435456 step: 2(factor) warmup iters: 1 "
        "iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n";
    for (int r = 0; r < nodes * ranks_per_node; ++r) {
      text += fmt::format(
          "#  Rank {:2} Group  0 Pid {:6} on     node-{} device {:2} [0000:{:02x}:00] "
          "NVIDIA H100 80GB HBM3\n",
          r, 1000 + r, r / ranks_per_node, r % ranks_per_node, r);
    }
    text += "#\n#                                      out-of-place            in-place\n";
    text += "# " + columns + "\n# " + units + "\n";
    for (const double bytes : sizes) {
      const double us = Us(bytes), rate = bytes / us / 1e3;
      const std::string times = fmt::format("{:.2f}  {:.2f}  {:.2f}", us, rate, factor * rate);
      text += fmt::format("{:12.0f}  {:12.0f}     float     sum      -1  {}       0  {}     N/A\n",
                          bytes, bytes / 4, times, times);
    }
    return text + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 31.7 \n#\n";
  }
};

TEST(NcclTests, GiveBackWhatWasMeasured) {
  const NcclRun run;
  const std::string text = run.Text();
  const LinkLog log = ReadNcclTests(text, "logs/run.log", {});
  EXPECT_EQ(log.program, "all_reduce_perf");
  EXPECT_EQ(log.operation, LinkOperation::kAllReduce);
  EXPECT_EQ(log.ranks, 8);
  EXPECT_EQ(log.nodes, 2);
  EXPECT_TRUE(log.verified);  // in place is N/A of programs that have no such form
  ASSERT_EQ(log.samples.size(), run.sizes.size());
  for (std::size_t i = 0; i < log.samples.size(); ++i) {
    EXPECT_EQ(log.samples[i].bytes, run.sizes[i]);
    EXPECT_NEAR(log.samples[i].seconds, 1e-6 * Us(run.sizes[i]), 1e-8);
  }
  const LinkSample& last = log.samples.back();
  EXPECT_NEAR(log.BusBandwidth(last), 2.0 * 7 / 8 * last.bytes / last.seconds, 1);
  EXPECT_EQ(log.Source(),
            "all_reduce_perf of 8 ranks on 2 nodes: run.log, sha256 " + Sha256Hex(text));
}

TEST(NcclTests, MeasureByTheDefinitionOfEachProgram) {
  for (const auto& [program, operation, factor] :
       {std::tuple("all_gather_perf", LinkOperation::kAllGather, 7.0 / 8),
        std::tuple("sendrecv_perf", LinkOperation::kSendReceive, 1.0),
        std::tuple("all_reduce_perf_mpi", LinkOperation::kAllReduce, 2.0 * 7 / 8)}) {
    NcclRun run;
    run.program = program;
    run.factor = factor;
    const LinkLog log = ReadNcclTests(run.Text(), "run.log", {});
    EXPECT_EQ(log.operation, operation);
    EXPECT_NEAR(log.BusBandwidth(log.samples[2]) / (1e6 * 1'048'576 / Us(1'048'576)), factor, 1e-3);
    // The log of a program whose bandwidth has another definition is told by its numbers.
    run.factor *= 0.9;
    ExpectIn("busbw = ", ErrorOf([&] { ReadNcclTests(run.Text(), "run.log", {}); }));
  }
}

TEST(NcclTests, TagsOfMpirunAndOldColumnsAreRead) {
  NcclRun run;
  std::string tagged = "[1,0]<stdout>:" + run.Text();
  for (std::size_t at = 0; (at = tagged.find("\n#", at)) != std::string::npos; ++at)
    tagged.insert(at + 1, "[1,0]<stdout>:");
  EXPECT_EQ(ReadNcclTests(tagged, "run.log", {}).ranks, 8);

  run.program = "";
  run.columns = "size count type redop root time algbw busbw error time algbw busbw error";
  const std::string old = run.Text();
  ExpectIn("expected --operation", ErrorOf([&] { ReadNcclTests(old, "run.log", {}); }));
  EXPECT_EQ(ReadNcclTests(old, "run.log", {0, 0, LinkOperation::kAllReduce}).program,
            "all_reduce_perf");
}

TEST(NcclTests, WhatIsWrongIsNamedWithItsLine) {
  const NcclRun run;
  const std::string text = run.Text();
  const auto error = [](const std::string& log, const AskedOfLog& asked = {}) {
    return ErrorOf([&] { ReadNcclTests(log, "run.log", asked); });
  };
  // Line 6 begins the devices, 16 the table, 18 its rows.
  ExpectIn("run.log:17: time is in (ms): expected (us)", error(Replaced(text, "(us)", "(ms)")));
  ExpectIn("run.log:17: algbw is in (MB/s): expected (GB/s)",
           error(Replaced(text, "(GB/s)", "(MB/s)")));
  ExpectIn("run.log:16: no column busbw",
           error(Replaced(text, "busbw #wrong time algbw busbw", "rate #wrong time algbw rate")));
  ExpectIn("-C 1", error(Replaced(text, " time ", " cputime ")));
  ExpectIn("run.log:18: #wrong = 3: the results are wrong",
           error(Replaced(text, "       0  ", "       3  ")));
  ExpectIn("its results are wrong; expected 0 OK", error(Replaced(text, ": 0 OK", ": 12 FAILED")));
  ExpectIn("run.log:21: the log ends without", error(text.substr(0, text.find("# Out of"))));
  ExpectIn("was the log cut off?", error(text.substr(0, text.rfind("     N/A\n")) + "\n"));
  ExpectIn("expected sizes that grow", error(Replaced(text, "1048576  ", "     16  ")));
  ExpectIn("was built without MPI", error(Replaced(text, "Rank  1", "Rank  0")));
  ExpectIn("NCCL_TESTS_SPLIT", error(Replaced(text, "Rank  7 Group  0", "Rank  7 Group  1")));
  ExpectIn("a second run begins", error(text + text));
  ExpectIn("broadcast_perf: expected all_reduce_perf",
           error(Replaced(text, "all_reduce_perf", "broadcast_perf")));
  ExpectIn("--ranks 16, and the log of all_reduce_perf says 8", error(text, {16, 0, {}}));
  ExpectIn("no table of nccl-tests", error("hello\n"));
  // A time in ms beside a head that says us.
  const std::string in_ms = Replaced(Replaced(text, "26848.55", "26.85"), "26848.55", "26.85");
  ExpectIn("run.log:21: algbw = 10", error(in_ms));
  const std::string without =
      text.substr(0, text.find("#  Rank")) + text.substr(text.find("#\n#   "));
  ExpectIn("expected --ranks N", error(without));
  ExpectIn("expected --nodes N", error(without, {8, 0, {}}));
  EXPECT_EQ(ReadNcclTests(without, "run.log", {8, 2, {}}).nodes, 2);
  ExpectIn("16 ranks has", error(without, {16, 2, {}}));  // of the bus bandwidth
}

constexpr const char* kJson =
    R"({"version": 2, "args": ["/opt/nccl-tests/build/all_gather_perf", "-g", "2"],
 "env": ["HOME=/root"], "nccl_version": 22807,
 "config": {"nthreads": 1, "ngpus": 2, "validation": 1, "devices": [
  {"rank": 0, "group": 0, "pid": 1, "hostname": "a", "device": 0, "device_hex": "0", "device_info": "H100"},
  {"rank": 2, "group": 0, "pid": 2, "hostname": "b", "device": 0, "device_hex": "0", "device_info": "H100"}]},
 "results": [
  {"size": 0, "count": 0, "type": "float", "redop": "none", "root": "    -1",
   "out_of_place": {"time": 4.0, "alg_bw": 0.0, "bus_bw": 0.0, "nwrong": 0.0}, "in_place": null},
  {"size": 4000000, "count": 250000, "type": "float", "redop": "none", "root": "    -1",
   "out_of_place": {"time": 400.0, "alg_bw": 10.0, "bus_bw": 7.5, "nwrong": 0.0},
   "in_place": {"time": 400.0, "alg_bw": 10.0, "bus_bw": 7.5, "nwrong": null}}],
 "out_of_bounds": {"count": 0, "okay": "true"}, "end_time": "x"})";

TEST(NcclTestsJson, CountsCardsOfEachProcess) {
  const LinkLog log = ReadNcclTests(kJson, "run.json", {});
  EXPECT_EQ(log.operation, LinkOperation::kAllGather);
  EXPECT_EQ(log.ranks, 4);
  EXPECT_EQ(log.nodes, 2);
  ASSERT_EQ(log.samples.size(), 1u);
  EXPECT_NEAR(log.BusBandwidth(log.samples[0]), 7.5e9, 1);
}

TEST(NcclTestsJson, NamesTheKey) {
  const auto error = [](const std::string& text) {
    return ErrorOf([&] { ReadNcclTests(text, "run.json", {}); });
  };
  const std::string text = kJson;
  ExpectIn("run.json: ", error(text.substr(0, text.size() / 2)));
  ExpectIn("run.json: /results/1/out_of_place/time: is missing",
           error(Replaced(text, "\"time\": 400.0, ", "")));
  ExpectIn("/results/1/out_of_place/cpu_time",
           error(Replaced(text, "\"time\": 400.0", "\"cpu_time\": 400.0")));
  ExpectIn("/results/1: algbw = 10 GB/s", error(Replaced(text, "400.0", "0.4")));
  ExpectIn("/out_of_bounds/count: the results are wrong",
           error(Replaced(text, "{\"count\": 0", "{\"count\": 5")));
  ExpectIn("/results/1: #wrong = 2",
           error(Replaced(text, "7.5, \"nwrong\": 0.0", "7.5, \"nwrong\": 2.0")));
}

TEST(Osu, GivesBackWhatWasMeasured) {
  const LinkLog latency = ReadOsu(
      "\n# OSU MPI Latency Test v5.8\n# Size          Latency (us)\n0      3.10\n8   3.20\n", "l",
      {0, 2, {}});
  EXPECT_EQ(latency.operation, LinkOperation::kLatency);
  EXPECT_EQ(latency.ranks, 2);
  EXPECT_EQ(latency.nodes, 2);
  EXPECT_NEAR(latency.samples[1].seconds, 3.2e-6, 1e-12);
  const LinkLog rate = ReadOsu(
      "# OSU MPI-CUDA Bandwidth Test v7.5\n# Datatype: MPI_CHAR.\n# Size      Bandwidth (MB/s)\n"
      "1   3.45\n4194304      23012.88\n",
      "b", {0, 1, {}});
  EXPECT_NEAR(rate.BusBandwidth(rate.samples[1]), 23012.88e6, 1);
  // Size is what each rank contributes.
  const LinkLog gather = ReadOsu(
      "# OSU MPI Allgather Latency Test v7.4\n# Size       Avg Latency(us)   Min Latency(us)   Max "
      "Latency(us)  Iterations\n1      2.81     1.89     3.73       10\n",
      "g", {16, 4, {}});
  EXPECT_EQ(gather.samples[0].bytes, 16);
  EXPECT_NEAR(gather.samples[0].seconds, 2.81e-6, 1e-12);
}

TEST(Osu, WhatIsWrongIsNamedWithItsLine) {
  const auto error = [](const std::string& text, const AskedOfLog& asked) {
    return ErrorOf([&] { ReadOsu(text, "o.txt", asked); });
  };
  const std::string reduce =
      "# OSU MPI Allreduce Latency Test v5.8\n# Size       Avg Latency(us)\n4    12.45\n8    "
      "12.41\n";
  EXPECT_EQ(ReadOsu(reduce, "o.txt", {16, 2, {}}).samples.size(), 2u);
  ExpectIn(
      "o.txt: the log of osu_allreduce does not say on how many ranks it ran: expected "
      "--ranks N",
      error(reduce, {}));
  ExpectIn("expected --nodes N", error(reduce, {16, 0, {}}));
  ExpectIn("o.txt:2: column \"Avg Latency(ms)\": expected a latency in (us)",
           error(Replaced(reduce, "(us)", "(ms)"), {16, 2, {}}));
  const std::string rate = "# OSU MPI Bandwidth Test v5.8\n# Size   Bandwidth (GB/s)\n4  1.5\n";
  ExpectIn("o.txt:2: column \"Bandwidth (GB/s)\": expected a bandwidth in (MB/s)",
           error(rate, {0, 2, {}}));
  ExpectIn("--ranks 16, and the log of osu_bw says 2", error(rate, {16, 2, {}}));
  ExpectIn("o.txt:1: \"Bi-Directional Bandwidth Test\": expected osu_latency",
           error(Replaced(rate, "Bandwidth Test", "Bi-Directional Bandwidth Test"), {0, 2, {}}));
  ExpectIn("o.txt:4: the last line does not end",
           error(reduce.substr(0, reduce.size() - 2), {16, 2, {}}));
  ExpectIn("o.txt:4: 1 columns: expected 2",
           error(reduce.substr(0, reduce.size() - 9) + "\n", {16, 2, {}}));
  ExpectIn(
      "Validation = Fail",
      error("# OSU MPI Latency Test v7.5\n# Size   Avg Latency(us)   Validation\n1  3.0  Fail\n",
            {0, 2, {}}));
  ExpectIn("no output of an OSU", error("4 5\n", {16, 2, {}}));
  ExpectIn("a second run begins", error(reduce + reduce, {16, 2, {}}));
}

}  // namespace
}  // namespace sparfuse::harness
