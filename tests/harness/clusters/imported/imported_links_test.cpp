// Tests what imported logs become in a declared cluster's file, and what happens to the file.
#include "harness/clusters/imported/imported_links.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/support/errors.hpp"
#include "tests/support/source_directory.hpp"

namespace sparfuse::harness {
namespace {

using testing::ErrorOf;
using testing::ExpectIn;
const std::filesystem::path kProfiles = testing::SourceDirectory() / "results/profiles";

// Four nodes of eight cards; 100 Gbit/s a network card, of which a node has two.
constexpr const char* kFile = R"(title    = "Four nodes"
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

DeclaredCluster Parse(const std::string& text) {
  return ParseDeclaredCluster(TomlFile::Parse(text, "c.toml"), kProfiles);
}

constexpr double kGbps = 1e9 / 8;

// Of a link that starts up in `start` seconds and whose bus bandwidth is `gbps`.
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
  const DeclaredCluster cluster = Parse(kFile);
  const std::vector<LinkLog> logs = {LogOf(LinkOperation::kAllReduce, 32, 4, 1e-4, 150)};
  const ImportedLinks links = LinksOf(cluster, logs);
  ASSERT_EQ(links.curves.size(), 1u);
  ASSERT_EQ(links.rates.size(), 1u);
  EXPECT_EQ(links.rates[0].nominal, 200);
  EXPECT_EQ(links.rates[0].conflict, "");
  EXPECT_NEAR(Find(links, "inter_node_efficiency")->value, 0.75, 1e-3);
  EXPECT_EQ(Find(links, "inter_node_us"), nullptr);  // it may have gone by a tree
  // What the file with it says of the all-reduce is what was measured.
  const DeclaredCluster now = Parse(WithBlocks(kFile, "c.toml", links.curves));
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
  const ImportedLinks links = LinksOf(Parse(kFile), logs);
  EXPECT_TRUE(links.curves.empty());
  EXPECT_EQ(links.inputs.size(), 4u);
  std::string text = kFile;
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
  const DeclaredCluster cluster = Parse(kFile);
  const auto rates = [&](const LinkLog& log) { return LinksOf(cluster, std::span(&log, 1)); };
  const LinkLog fast = LogOf(LinkOperation::kBandwidth, 2, 2, 1e-6, 180);
  ExpectIn("180 Gbit/s, and inter_node_gbps is 100: the label is too low",
           rates(fast).rates[0].conflict);
  EXPECT_EQ(Find(rates(fast), "inter_node_efficiency"), nullptr);
  // The same rate of a ring through whole nodes, which have two cards, is none.
  EXPECT_EQ(rates(LogOf(LinkOperation::kAllGather, 16, 2, 1e-6, 180)).rates[0].conflict, "");
  // A rank of each node has a share in one of them.
  ExpectIn("the label is too low",
           rates(LogOf(LinkOperation::kAllGather, 4, 4, 1e-6, 180)).rates[0].conflict);
  const LinkLog slow = LogOf(LinkOperation::kAllReduce, 32, 4, 1e-4, 80);
  ExpectIn("less than half of the 200 that are declared", rates(slow).rates[0].conflict);
  EXPECT_NE(Find(rates(slow), "inter_node_efficiency"), nullptr);
}

TEST(ImportedLinks, LogsOfAnotherClusterOrTwiceTheSameAreRefused) {
  const DeclaredCluster cluster = Parse(kFile);
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
  const std::string mine = std::string(kFile) + "\n# after\n[selection_costs]\n";
  const std::string written = WithBlocks(mine, "c.toml", first);
  EXPECT_TRUE(written.starts_with(mine));
  EXPECT_EQ(WithBlocks(written, "c.toml", first), written);
  const std::string replaced = WithBlocks(written, "c.toml", second);
  EXPECT_TRUE(replaced.starts_with(mine));
  EXPECT_EQ(replaced, mine + "\n" + BlockOf(again) + "\n" + BlockOf(other));
  // What the owner changed within a block is not overwritten.
  std::string edited = written;
  edited.replace(edited.find("ranks     = 32"), 14, "ranks     = 31");
  ExpectIn("was edited since", ErrorOf([&] { WithBlocks(edited, "c.toml", second); }));
  ExpectIn("c.toml:22: ", ErrorOf([&] { WithBlocks(edited, "c.toml", second); }));
  std::string cut = written.substr(0, written.find("# <<<"));
  ExpectIn("expected both marks", ErrorOf([&] { WithBlocks(cut, "c.toml", second); }));
}

// Published all-reduces of 32 ranks, in the form that they were printed in, against the clusters
// that were declared by hand with them.
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

}  // namespace
}  // namespace sparfuse::harness
