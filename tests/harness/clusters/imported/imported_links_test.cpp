// Tests the reading of link logs, and the resulting blocks in a cluster's file.
#include "harness/clusters/imported/imported_links.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <tuple>

#include "core/base/error.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "tests/harness/clusters/declared.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/tree/source_directory.hpp"

namespace sparfuse::harness {
namespace {

using testing::ErrorOf;
using testing::ExpectIn;
using testing::Replaced;

// Four nodes of eight cards; a node has two network cards of 100 Gbit/s each.
constexpr const char* kFourNodes = R"(title    = "Four nodes"
source   = "test"
hardware = "H100"
nodes          = 4
ranks_per_node = 8
[input] # mine
inter_node_gbps          = { value = 100, kind = "data sheet", source = "t" }
network_cards            = { value = 2, kind = "data sheet", source = "t" }
inter_node_us            = { value = 5, kind = "declared", source = "t" }
intra_node_gbps          = { value = 1000, kind = "data sheet", source = "t" }
intra_node_us            = { value = 2, kind = "declared", source = "t" }
memory_gbytes_per_s      = { value = 3350, kind = "data sheet", source = "t" }
kernel_us                = { value = 4, kind = "declared", source = "t" }
compute_tflops           = { value = 300, kind = "declared", source = "t" }
host_link_gbytes_per_s   = { value = 50, kind = "data sheet", source = "t" }
host_memory_gbytes_per_s = { value = 200, kind = "declared", source = "t" }
exchange_host_us         = { value = 20, kind = "declared", source = "t" }
)";

constexpr double kGbps = 1e9 / 8;

// The log of a link with a start-up of `start` seconds and a bus bandwidth of `gbps`.
LinkLog LogOf(LinkOperation operation, int ranks, int nodes, double start, double gbps,
              const std::string& file = "run.log") {
  LinkLog log;
  log.file = file;
  log.sha256 = "abc";
  log.program = "program";
  log.operation = operation;
  log.ranks = ranks;
  log.nodes = nodes;
  for (const double bytes : {8.0, 64.0, 65536.0, 1e9}) {
    const double share = log.BusBandwidth({bytes, 1}) / bytes;
    log.samples.push_back({bytes, start + share * bytes / (gbps * kGbps)});
  }
  return log;
}

const DeclaredInput* Find(const ImportedLinks& links, const std::string& name) {
  const auto found = std::ranges::find(links.inputs, name, &DeclaredInput::name);
  return found == links.inputs.end() ? nullptr : &*found;
}

TEST(ImportedLinks, AnAllReduceBetweenNodesIsACurveAndARateOfAllCards) {
  const DeclaredCluster cluster = Parse(kFourNodes);
  const std::vector<LinkLog> logs = {LogOf(LinkOperation::kAllReduce, 32, 4, 1e-4, 150)};
  const ImportedLinks links = LinksOf(cluster, logs);
  ASSERT_EQ(links.curves.size(), 1u);
  ASSERT_EQ(links.rates.size(), 1u);
  EXPECT_EQ(links.rates[0].nominal, 200);
  EXPECT_EQ(links.rates[0].conflict, "");
  EXPECT_NEAR(Find(links, "inter_node_efficiency")->value, 0.75, 1e-3);
  EXPECT_EQ(Find(links, "inter_node_us"), nullptr);  // a tree may have been used
  // With this block, the file's all-reduce takes the measured times.
  const DeclaredCluster now = Parse(WithBlocks(kFourNodes, "c.toml", links.curves));
  ASSERT_EQ(now.curves.size(), 1u);
  EXPECT_EQ(now.curves[0].ranks, 32);
  EXPECT_EQ(now.curves[0].kind, "imported");
  for (std::size_t i = 0; i < logs[0].samples.size(); ++i) {
    EXPECT_EQ(now.curves[0].seconds[i].first, logs[0].samples[i].bytes);
    EXPECT_NEAR(now.curves[0].seconds[i].second / logs[0].samples[i].seconds, 1, 1e-4);
  }
}

TEST(ImportedLinks, TheLinesAreInputsOfTheFile) {
  const std::vector<LinkLog> logs = {LogOf(LinkOperation::kLatency, 2, 2, 3e-6, 80, "l"),
                                     LogOf(LinkOperation::kBandwidth, 2, 2, 1e-6, 80, "b"),
                                     LogOf(LinkOperation::kAllGather, 8, 1, 7e-6, 900, "g")};
  const ImportedLinks links = LinksOf(Parse(kFourNodes), logs);
  EXPECT_TRUE(links.curves.empty());
  EXPECT_EQ(links.inputs.size(), 4u);
  std::string text = kFourNodes;
  for (const DeclaredInput& input : links.inputs) {
    const auto old = text.find("\n" + input.name + " ");
    if (old != std::string::npos) text.erase(old, text.find('\n', old + 1) - old);
    text += LineOf(input) + "\n";
  }
  const DeclaredCluster now = Parse(text);
  EXPECT_NEAR(now.Value("inter_node_us"), 3, 1e-2);
  EXPECT_NEAR(now.Value("inter_node_efficiency"), 0.8, 1e-3);  // of one card
  EXPECT_NEAR(now.Value("intra_node_us"), 1, 1e-2);            // of seven hops
  EXPECT_NEAR(now.Value("intra_node_efficiency"), 0.9, 1e-3);
  EXPECT_EQ(now.Find("inter_node_us")->kind, "imported");
  ExpectIn("g, sha256 abc", now.Find("intra_node_us")->source);
}

TEST(ImportedLinks, ARateThatContradictsItsLabelIsNamedAndNotTaken) {
  const DeclaredCluster cluster = Parse(kFourNodes);
  const auto rates = [&](const LinkLog& log) { return LinksOf(cluster, std::span(&log, 1)); };
  const LinkLog fast = LogOf(LinkOperation::kBandwidth, 2, 2, 1e-6, 180);
  ExpectIn("180 Gbit/s, and inter_node_gbps is 100: the label is too low",
           rates(fast).rates[0].conflict);
  EXPECT_EQ(Find(rates(fast), "inter_node_efficiency"), nullptr);
  // A ring through whole nodes, which have two cards, may have the same rate.
  EXPECT_EQ(rates(LogOf(LinkOperation::kAllGather, 16, 2, 1e-6, 180)).rates[0].conflict, "");
  // One rank of each node uses one card only.
  ExpectIn("the label is too low",
           rates(LogOf(LinkOperation::kAllGather, 4, 4, 1e-6, 180)).rates[0].conflict);
  const LinkLog slow = LogOf(LinkOperation::kAllReduce, 32, 4, 1e-4, 80);
  ExpectIn("less than half of the 200 that are declared", rates(slow).rates[0].conflict);
  EXPECT_NE(Find(rates(slow), "inter_node_efficiency"), nullptr);
}

TEST(ImportedLinks, LogsOfAnotherClusterOrTwiceTheSameAreRefused) {
  const DeclaredCluster cluster = Parse(kFourNodes);
  const auto error = [&](std::vector<LinkLog> logs) {
    return ErrorOf([&] { LinksOf(cluster, logs); });
  };
  ExpectIn("run.log: 5 nodes, and cluster c has 4 nodes of 8",
           error({LogOf(LinkOperation::kAllReduce, 40, 5, 1e-4, 80)}));
  ExpectIn("16 ranks on 1 node(s)", error({LogOf(LinkOperation::kAllReduce, 16, 1, 1e-4, 80)}));
  ExpectIn("b and b are both all-reduces of 32 ranks",
           error({LogOf(LinkOperation::kAllReduce, 32, 4, 1e-4, 80, "b"),
                  LogOf(LinkOperation::kAllReduce, 32, 4, 1e-4, 90, "b")}));
  ExpectIn("one rank uses no link", error({LogOf(LinkOperation::kAllReduce, 1, 1, 1e-4, 80)}));
}

TEST(ImportedLinks, AnImportReplacesItsOwnBlockAndLeavesTheRestAlone) {
  const LinkLog one = LogOf(LinkOperation::kAllReduce, 32, 4, 1e-4, 80);
  const LinkLog other = LogOf(LinkOperation::kAllReduce, 16, 2, 1e-4, 80);
  const LinkLog again = LogOf(LinkOperation::kAllReduce, 32, 4, 2e-4, 90);
  const std::vector<const LinkLog*> first = {&one, &other}, second = {&again};
  const std::string mine = std::string(kFourNodes) + "\n# after\n[selection_costs]\n";
  const std::string written = WithBlocks(mine, "c.toml", first);
  EXPECT_TRUE(written.starts_with(mine));
  EXPECT_EQ(WithBlocks(written, "c.toml", first), written);
  const std::string replaced = WithBlocks(written, "c.toml", second);
  EXPECT_TRUE(replaced.starts_with(mine));
  EXPECT_EQ(replaced, mine + "\n" + BlockOf(again) + "\n" + BlockOf(other));
  // The owner's changes within a block are not overwritten.
  std::string edited = written;
  edited.replace(edited.find("ranks     = 32"), 14, "ranks     = 31");
  ExpectIn("was edited: expected it unchanged",
           ErrorOf([&] { WithBlocks(edited, "c.toml", second); }));
  ExpectIn("c.toml:22: ", ErrorOf([&] { WithBlocks(edited, "c.toml", second); }));
  std::string cut = written.substr(0, written.find("# <<<"));
  ExpectIn("expected both marks", ErrorOf([&] { WithBlocks(cut, "c.toml", second); }));
}

// A Latin-1 byte in a log's name would change in the file, and the block would not match its hash.
TEST(ImportedLinks, NamesOfLogsAreUtf8) {
  LinkLog log = LogOf(LinkOperation::kAllReduce, 32, 4, 1e-4, 80);
  log.file = "logs/r\xe9sum\u00e9.log";
  ExpectIn("nodes: r\\xE9sum\u00e9.log, sha256", log.Source());
  const std::vector<const LinkLog*> logs = {&log};
  const std::string written = WithBlocks(std::string(kFourNodes), "c.toml", logs);
  EXPECT_EQ(WithBlocks(written, "c.toml", logs), written);
}

// Published all-reduces of 32 ranks, in their printed form, against the clusters that were declared
// from them by hand.
std::string PublishedLog(const std::string& network) {
  std::ifstream rows(kProfiles / "../published/nccl-allreduce-32gpu.csv");
  std::string text =
      "# nThread 1 nGpus 1\n# size count type redop root time algbw busbw #wrong\n# (B) (elements) "
      "(us) (GB/s) (GB/s)\n";
  for (std::string line; std::getline(rows, line);) {
    if (!line.starts_with(network + ",")) continue;
    std::istringstream columns(line.substr(network.size() + 1));
    std::string gpus, nodes, bytes, us;
    for (std::string* column : {&gpus, &nodes, &bytes, &us}) std::getline(columns, *column, ',');
    const double rate = std::stod(bytes) / std::stod(us) / 1e3;
    text += fmt::format("{} {} float sum -1 {} {:.2f} {:.2f} 0\n", bytes, std::stod(bytes) / 4, us,
                        rate, 2.0 * 31 / 32 * rate);
  }
  return text + "# Out of bounds values : 0 OK\n";
}

TEST(ImportedLinks, OfPublishedAllReducesAreWhatPeopleMadeOfThem) {
  const AskedOfLog asked{32, 8, LinkOperation::kAllReduce};
  const ProfileFolders profiles(kProfiles);
  const LinkLog ethernet = ReadNcclTests(PublishedLog("10GbE with TCP/IP"), "10g.log", asked);
  const LinkLog rdma = ReadNcclTests(PublishedLog("100GbIB with RDMA"), "100g.log", asked);
  ASSERT_EQ(ethernet.samples.size(), 28u);
  const DeclaredCluster& cluster = LoadDeclaredCluster(profiles, "hkbu-10gbe");
  const ImportedLinks links = LinksOf(cluster, std::span(&ethernet, 1));
  EXPECT_EQ(links.rates[0].conflict, "");
  EXPECT_NEAR(Find(links, "inter_node_efficiency")->value / cluster.Value("inter_node_efficiency"),
              1, 0.01);
  const std::string conflict = LinksOf(cluster, std::span(&rdma, 1)).rates[0].conflict;
  ExpectIn("inter_node_gbps is 10: the label is too low", conflict);
  const DeclaredCluster& fast = LoadDeclaredCluster(profiles, "hkbu-rdma");
  EXPECT_EQ(LinksOf(fast, std::span(&rdma, 1)).rates[0].nominal, 100);
  ExpectIn("less than half", LinksOf(fast, std::span(&ethernet, 1)).rates[0].conflict);
}

// The microseconds of a message on a link of 5 us and 10^10 bytes a second.
double Us(double bytes) { return 5 + bytes / 1e4; }

// The output of all_reduce_perf and its like, in the format of src/util.cu of nccl-tests.
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
  EXPECT_TRUE(log.verified);  // programs without an in-place form print N/A
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
    // Numbers that do not fit the program's definition of bandwidth are detected.
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
  // The devices begin at line 6, the table at 16, its rows at 18.
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
  // A time in ms below a header that says us.
  const std::string in_ms = Replaced(Replaced(text, "26848.55", "26.85"), "26848.55", "26.85");
  ExpectIn("run.log:21: algbw = 10", error(in_ms));
  const std::string without =
      text.substr(0, text.find("#  Rank")) + text.substr(text.find("#\n#   "));
  ExpectIn("expected --ranks N", error(without));
  ExpectIn("expected --nodes N", error(without, {8, 0, {}}));
  EXPECT_EQ(ReadNcclTests(without, "run.log", {8, 2, {}}).nodes, 2);
  ExpectIn("16 ranks has", error(without, {16, 2, {}}));  // by the bus bandwidth
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
  ExpectIn(
      "run.json: JSON without \"args\": expected the file that nccl-tests itself writes with -J",
      error(Replaced(text, "\"args\"", "\"arguments\"")));
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
  // The size is each rank's contribution.
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
      "o.txt: the log of osu_allreduce does not state on how many ranks it ran: expected "
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

// Logs that users have, each with its expected result: the last row of the table, or the error.
std::string CaseText(const std::string& name) {
  return ReadFile(testing::SourceDirectory() / "tests/harness/clusters/imported/cases" / name);
}

TEST(LinkCases, OfNcclTests) {
  for (const auto& [name, nodes, noted] :
       {std::tuple("nccl-03-info-host-begins-with-digit.log", 0, ""),
        {"nccl-04-srun-label.log", 0, "labels of srun (\"0: \") taken off before 35 lines"},
        {"nccl-07-openmpi4-tag-timestamp.log", 0, "[1,0]<stdout>:\") taken off before 35 lines"},
        {"nccl-18-same-hostname.log", 2, ""},
        {"nccl-33-json-behind-other-lines.json", 0, ""}}) {
    const LinkLog log = ReadNcclTests(CaseText(name), name, {0, nodes, {}});
    EXPECT_EQ(log.ranks, 16) << name;
    EXPECT_EQ(log.nodes, 2) << name;
    ASSERT_EQ(log.samples.size(), 6u) << name;
    EXPECT_EQ(log.samples.back().bytes, 268435456) << name;
    EXPECT_NEAR(log.samples.back().seconds, 25186e-6, 1e-6) << name;
    EXPECT_EQ(log.notes.size(), *noted == '\0' ? 0u : 1u) << name;
    if (*noted != '\0') ExpectIn(noted, log.notes.at(0));
  }
  const auto error = [](const char* name) {
    return ErrorOf([&] { ReadNcclTests(CaseText(name), name, {}); });
  };
  ExpectIn("without MPI; expected a build with MPI=1", error("nccl-11-no-mpi-two-processes.log"));
  ExpectIn(":28: \"NCCL INFO 65536 Bytes", error("nccl-23-row-broken-by-info.log"));
  ExpectIn("nodes have equal names: expected --nodes N", error("nccl-18-same-hostname.log"));
}

TEST(LinkCases, ATableAloneIsReadWithWhatItDoesNotSay) {
  const LinkLog log = ReadNcclTests(CaseText("nccl-12-table-only.log"), "r\xe9.log",
                                    {2, 2, LinkOperation::kAllReduce});
  EXPECT_EQ(log.ranks, 2);
  ASSERT_EQ(log.samples.size(), 6u);
  EXPECT_NEAR(log.samples.back().seconds, 5388.7e-6, 1e-9);
}

TEST(LinkCases, OfOsuAndImb) {
  for (const auto& [name, ranks, program, bytes, us] :
       {std::tuple("osu-04-nccl-allreduce.txt", 16, "osu_xccl_allreduce", 1073741824.0, 8955.18),
        {"osu-08-srun-label.txt", 2, "osu_latency", 4194304.0, 390.0},
        {"imb-01-allreduce.txt", 16, "IMB-MPI1 Allreduce", 4194304.0, 4800.0}}) {
    const LinkLog log = ReadOsu(CaseText(name), name, {ranks, 2, {}});
    EXPECT_EQ(log.program, program);
    EXPECT_EQ(log.ranks, ranks);
    EXPECT_EQ(log.samples.back().bytes, bytes);
    EXPECT_NEAR(log.samples.back().seconds, 1e-6 * us, 1e-9);
  }
}

TEST(LinkCases, LabelsOfAnyLauncherAreTakenOff) {
  const std::string plain = CaseText("osu-08-srun-label.txt");
  for (const auto& [label, noted] :
       {std::pair("0: ", "labels of srun"),
        {"[0] ", "labels of mpirun"},
        {"[1,0]<stdout>:", "tags of mpirun"},
        {"[prterun-n1-77@1,0]<stdout>: ", "tags of mpirun"},
        {"[0]<stdout>:", "tags of mpirun or horovodrun"},
        {"[default0]:", "labels of torchrun"},
        {"pod/t-worker-0 ", "names of pods"},
        {"[pod/t-worker-0/main] ", "names of pods"},
        {"2026-05-07T10:39:20.5Z ", "time stamps"},
        {"[2026-05-07 10:39:20] ", "time stamps"},
        {"2026-05-07 10:39:20,123 - INFO - ", "time stamps"},
        {"2026/05/07 10:39:20 [INFO] ", "time stamps"},
        {"I0507 10:39:20.123456 77 main.cc:8] ", "time stamps"},
        {"May  7 10:39:20 n1 osu[77]: ", "time stamps"},
        {"[n1@1,0][n1:77]<stdout>: ", "tags of mpirun"},
        {"[0@n1] ", "labels of mpirun"},
        {"[n1:0]:", "labels of torchrun"},
        {"worker-1  | ", "names of containers"},
        {"worker-1: ", "names of hosts"},
        {"10.0.0.4: ", "names of hosts"},
        {"INFO:osu.bench:", "levels and loggers"},
        {"(Train pid=77, ip=10.0.0.4) ", "labels of Ray"},
        {"Thu May  7 10:39:20 2026 ", "time stamps"},
        {"Thu May  7 10:39:20 2026[1,0]<stdout>:", "tags of mpirun"}}) {
    std::string text, crlf;
    for (std::size_t at = 0; at < plain.size();) {
      const std::size_t end = plain.find('\n', at);
      text += label + plain.substr(at + 3, end + 1 - (at + 3));  // behind "0: "
      at = end + 1;
    }
    for (const char c : text) crlf += c == '\n' ? std::string("\r\n") : std::string(1, c);
    for (const std::string& each : {text, crlf, "\xef\xbb\xbf" + text, "\x1b[1;32m" + text}) {
      const LinkLog log = ReadOsu(each, "o.txt", {0, 2, {}});
      EXPECT_EQ(log.samples.size(), 7u) << label;
      ASSERT_EQ(log.notes.size(), 1u) << label;
      ExpectIn(noted, log.notes[0]);
    }
  }
}

// 8 bytes to 256 MiB in 20 us and at 10 GB/s, by each version of the files that rccl-tests writes.
TEST(LinkCases, OfRcclTests) {
  for (const auto& [name, ranks, nodes] : {std::tuple("rccl/two-nodes-old.csv", 16, 2),
                                           {"rccl/two-nodes-cycles.csv", 16, 2},
                                           {"rccl/two-nodes.csv", 16, 2},
                                           {"rccl/two-nodes-old.json", 16, 2},
                                           {"rccl/two-nodes.json", 16, 2},
                                           {"rccl/one-node.json", 8, 1},
                                           {"rccl/one-node-old.csv", 8, 1}}) {
    const LinkLog log = ReadNcclTests(CaseText(name), name, {0, nodes, {}});
    EXPECT_EQ(log.program, "all_reduce_perf") << name;
    EXPECT_EQ(log.operation, LinkOperation::kAllReduce) << name;
    EXPECT_EQ(log.ranks, ranks) << name;
    EXPECT_EQ(log.nodes, nodes) << name;
    EXPECT_TRUE(log.verified) << name;
    ASSERT_EQ(log.samples.size(), 6u) << name;
    EXPECT_EQ(log.samples.back().bytes, 268435456) << name;
    EXPECT_NEAR(log.samples.back().seconds, 26863.5456e-6, 1e-9) << name;
  }
  const auto error = [](std::string text, const std::string& old, const std::string& now,
                        AskedOfLog asked = {0, 2, {}}) {
    for (std::size_t at = 0; (at = text.find(old, at)) != std::string::npos; at += now.size())
      text.replace(at, old.size(), now);
    return ErrorOf([&] { ReadNcclTests(text, "r.csv", asked); });
  };
  const std::string csv = CaseText("rccl/two-nodes.csv"), objects = CaseText("rccl/two-nodes.json");
  ExpectIn("expected --nodes N", error(csv, "x", "x", {}));
  ExpectIn("r.csv:2: #wrong = 5", error(csv, "\"0\"", "\"5\""));
  ExpectIn("\"AllToAll\": expected AllReduce, AllGather or SendRecv",
           error(objects, "AllReduce", "AllToAll"));
  ExpectIn("busbw = ", error(objects, "\"ranks\":16", "\"ranks\":4"));
  ExpectIn("r.csv:2: no time: expected one in each row", error(objects, "\"time\"", "\"tome\""));
  ExpectIn("a second run begins", error(csv + csv, "x", "x"));
  ExpectIn("no row of more than 0 bytes is out of place",
           error(objects, "\"inPlace\":0", "\"inPlace\":1"));
  ExpectIn("was the file cut off?", error(csv.substr(0, csv.size() - 20), "x", "x"));
  ExpectIn("was the file cut off?", error(objects.substr(0, objects.size() - 20), "x", "x"));
}

}  // namespace
}  // namespace sparfuse::harness
