// Tests the detected and recorded facts of a node, from a made-up sysfs and made-up cards.
#include "harness/systems/detected_node.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

Node Machine(const std::vector<std::string>& gpus = {}) {
  Node machine;
  machine.processor = "AMD EPYC 9654";
  machine.cores = 96;
  machine.memory_gib = 755;
  machine.cards = CardsOfModels(gpus);
  machine.kernel = "Linux 6.1";
  return machine;
}

class DetectedNode : public testing::Test {
 protected:
  void Write(const fs::path& file, const std::string& line) {
    fs::create_directories((sys_ / file).parent_path());
    std::ofstream(sys_ / file) << line << "\n";
  }
  void PutIn(const fs::path& entry, const std::string& device) {
    fs::create_directories(sys_ / "devices" / device);
    fs::create_directories(sys_ / entry);
    fs::create_symlink(sys_ / "devices" / device, sys_ / entry / "device");
  }
  // speed: the content of the file; "" if there is no file.
  void AddInterface(const std::string& name, const std::string& speed, const std::string& device,
                    const std::string& state = "up", const std::string& type = "1") {
    const fs::path folder = fs::path("class/net") / name;
    Write(folder / "operstate", state);
    Write(folder / "type", type);
    if (!speed.empty()) Write(folder / "speed", speed);
    if (!device.empty()) PutIn(folder, device);
  }
  void AddPort(const std::string& adapter, const std::string& layer, const std::string& state,
               const std::string& rate, const std::string& device) {
    const fs::path port = fs::path("class/infiniband") / adapter / "ports/1";
    Write(port / "link_layer", layer);
    Write(port / "state", state);
    Write(port / "rate", rate);
    PutIn(fs::path("class/infiniband") / adapter, device);
  }
  json Parts(const Node& machine, const GpuReport& gpus = {}) const {
    return ToJson(PartsOf(DetectNode(machine, gpus, sys_)));
  }
  json Interfaces() const { return Parts(Machine()).at("interface"); }
  Node Recorded(const std::string& interface) const {
    return DescribeNode(Machine({"NVIDIA H100"}), 192, interface, sys_);
  }
  NodeInterface OnlyInterface(const std::string& name) const { return DetectInterface(name, sys_); }

  const TemporaryFolder folder_;
  const fs::path& sys_ = folder_.path();
};

json Interface(const std::string& name, const std::string& kind, const json& gbps) {
  return {{"name", name}, {"kind", kind}, {"gbps", gbps}};
}

TEST_F(DetectedNode, HasSpeedsAsNegotiatedAndNoDefaultInTheirPlace) {
  AddInterface("fast", "100000", "a");
  AddInterface("slow", "2500", "b");
  AddInterface("virtio", "-1", "c");
  AddInterface("silent", "", "d");
  AddInterface("words", "fast enough", "e");
  EXPECT_EQ(Interfaces(),
            json({Interface("fast", "Ethernet", 100), Interface("silent", "Ethernet", "unknown"),
                  Interface("slow", "Ethernet", 2.5), Interface("virtio", "Ethernet", "unknown"),
                  Interface("words", "Ethernet", "unknown")}));
}

TEST_F(DetectedNode, LeavesOutWhatIsDownLoopedBackOrMadeUpBesideRealOnes) {
  AddInterface("eth0", "10000", "a");
  AddInterface("eth1", "10000", "b", "down");
  AddInterface("lo", "", "", "unknown", "772");
  AddInterface("docker0", "10000", "");
  EXPECT_EQ(Interfaces(), json::array({Interface("eth0", "Ethernet", 10)}));
}

TEST_F(DetectedNode, BelievesNoSpeedOfAnInterfaceThatSoftwareMadeUp) {
  AddInterface("lo", "", "", "unknown", "772");
  AddInterface("eth0", "10000", "");  // veth has this constant on any network
  EXPECT_EQ(Interfaces(), json::array({Interface("eth0", "virtual", "unknown")}));
}

TEST_F(DetectedNode, NamesPortsOfInfiniBandAndNotTheirInterfacesBesides) {
  AddPort("mlx5_0", "InfiniBand", "4: ACTIVE", "400 Gb/sec (4X NDR)", "a");
  AddPort("mlx5_1", "InfiniBand", "1: DOWN", "10 Gb/sec (4X SDR)", "b");
  AddPort("mlx5_2", "Ethernet", "4: ACTIVE", "100 Gb/sec (4X EDR)", "c");
  AddInterface("ib0", "400000", "a", "up", "32");
  AddInterface("ens3", "100000", "c");
  EXPECT_EQ(Interfaces(),
            json({Interface("ens3", "RoCE", 100), Interface("mlx5_0/1", "InfiniBand", 400)}));
}

GpuCard Card(const std::string& name, std::optional<std::uint64_t> bytes) {
  GpuCard card;
  card.name = name;
  card.total_bytes = bytes;
  return card;
}

TEST_F(DetectedNode, CountsCardsByModelAndPairsByTheirLink) {
  GpuReport gpus;
  gpus.cards = {Card("H200", 150'000'000'000), Card("L4", {}), Card("H200", 150'000'000'000)};
  gpus.links = {{0, 1, "SYS"}, {0, 2, "NV18"}, {1, 2, ""}};
  const json node = Parts(Machine(), gpus);
  EXPECT_EQ(node.at("card"), json({{{"model", "H200"}, {"memory_gib", 140}, {"count", 2}},
                                   {{"model", "L4"}, {"memory_gib", "unknown"}, {"count", 1}}}));
  EXPECT_EQ(node.at("card_link"), json({{{"kind", "NV18"}, {"pairs", 1}},
                                        {{"kind", "SYS"}, {"pairs", 1}},
                                        {{"kind", "unknown"}, {"pairs", 1}}}));
}

TEST_F(DetectedNode, HasTheModelsOfCardsWhoseLibraryIsMissing) {
  Node machine = Machine({"V100", "V100", "V100"});
  machine.processor = "";
  const json node = Parts(machine);
  EXPECT_EQ(node.at("processor"), "unknown");
  EXPECT_EQ(node.at("card"),
            json::array({{{"model", "V100"}, {"memory_gib", "unknown"}, {"count", 3}}}));
  EXPECT_EQ(node.at("card_link"), json::array({{{"kind", "unknown"}, {"pairs", 3}}}));
}

TEST_F(DetectedNode, IsRecordedAsHardwareWithoutNamesAndHasItsInterfacesOnce) {
  AddInterface("eth0", "100000", "pci0");
  AddInterface("eth1", "100000", "pci1");
  AddInterface("eth2", "1000", "pci2");
  const Node found = Recorded("");
  EXPECT_EQ(ToJson(found),
            json::parse(R"({"cpu_model": "AMD EPYC 9654", "cores": 192, "memory_gib": 755,
    "gpus": ["NVIDIA H100"], "network": [{"kind": "Ethernet", "gbps": 1.0},
                                         {"kind": "Ethernet", "gbps": 100.0}]})"));
  EXPECT_EQ(NetworkLine(found), "Ethernet 1 Gbit/s, Ethernet 100 Gbit/s");
}

TEST_F(DetectedNode, IsRecordedWithTheOneInterfaceThatRanksAreToldToUse) {
  AddInterface("eth0", "100000", "pci0");
  AddInterface("eth2", "1000", "pci2");
  EXPECT_EQ(Recorded("eth2").interfaces, (std::vector<NodeInterface>{{"", "Ethernet", 1}}));
}

TEST_F(DetectedNode, AnInterfaceIsOfThePortBehindItAndABondOfItsFirstMember) {
  AddInterface("ib0", "-1", "pci0", "up", "32");
  AddPort("mlx5_0", "InfiniBand", "4: ACTIVE", "200 Gb/sec (4X HDR)", "pci0");
  EXPECT_EQ(OnlyInterface("ib0"), (NodeInterface{"", "InfiniBand", 200}));
  AddInterface("eth0", "25000", "pci1");
  AddInterface("bond0", "50000", "");
  fs::create_directory_symlink(sys_ / "class/net/eth0", sys_ / "class/net/bond0/lower_eth0");
  EXPECT_EQ(OnlyInterface("bond0"), (NodeInterface{"", "Ethernet", 50}));
  AddInterface("veth1", "10000", "");  // a constant of its driver
  EXPECT_EQ(OnlyInterface("veth1"), (NodeInterface{"", "virtual", {}}));
}

Node NodeOf(const std::string& card, std::optional<double> gbps) {
  Node node;
  node.processor = "A";
  node.cores = 8;
  node.memory_gib = 64;
  node.cards = {{card, 80, 8}};
  node.card_links = {{"NV12", 28}};
  node.interfaces = {{{"eth0", "Ethernet", gbps}}};
  return node;
}

TEST(DifferencesOfNodes, NameAReplacedCardThenASlowLinkThenTheRest) {
  const Node first = NodeOf("A100", 100);
  Node second = NodeOf("H100", 50);
  second.cores = 16;
  EXPECT_EQ(DifferencesOfNodes(first, first), std::vector<NodeDifference>{});
  const std::vector<NodeDifference> expected = {
      {"/card/0/model", "A100", "H100"}, {"/interface/0/gbps", 100, 50}, {"/cores", 8, 16}};
  EXPECT_EQ(DifferencesOfNodes(first, second), expected);
}

TEST(DifferencesOfNodes, LeaveAloneWhatTheSecondDoesNotKnow) {
  EXPECT_TRUE(DifferencesOfNodes(NodeOf("A100", 100), NodeOf("A100", {})).empty());
  EXPECT_EQ(DifferencesOfNodes(NodeOf("A100", {}), NodeOf("A100", 100)).size(), 1U);
}

TEST(DifferencesOfNodes, NameWhatIsMissingOnEitherSideAsAWhole) {
  const Node first = NodeOf("A100", 100);
  Node second = first;
  second.cards.clear();
  const json card = {{"model", "A100"}, {"memory_gib", 80}, {"count", 8}};
  const std::vector<NodeDifference> gone = {{"/card/0", card, nullptr}};
  EXPECT_EQ(DifferencesOfNodes(first, second), gone);
  const std::vector<NodeDifference> added = {{"/card", nullptr, card}};
  EXPECT_EQ(DifferencesOfNodes(second, first), added);
}

}  // namespace
}  // namespace sparfuse::harness
