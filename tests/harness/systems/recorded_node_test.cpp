// Tests how trials record the nodes that they ran on, and the system that these make.
#include "harness/systems/recorded_node.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "harness/systems/detected_node.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const json kSystem = {{"cpu_model", "AMD EPYC 9654"},
                      {"cores", 4},
                      {"memory_gib", 755},
                      {"gpus", json::array({"NVIDIA H100"})},
                      {"kernel", "Linux 6.1"}};

class RecordedNode : public ::testing::Test {
 protected:
  void Write(const fs::path& file, const std::string& line) const {
    fs::create_directories((sys_ / file).parent_path());
    std::ofstream(sys_ / file) << line << "\n";
  }
  // device: "" of one that software made up.
  void AddInterface(const std::string& name, const std::string& speed, const std::string& device,
                    const std::string& type = "1") const {
    const fs::path folder = fs::path("class/net") / name;
    Write(folder / "operstate", "up");
    Write(folder / "type", type);
    Write(folder / "speed", speed);
    if (!device.empty()) PutIn(folder, device);
  }
  void PutIn(const fs::path& entry, const std::string& device) const {
    fs::create_directories(sys_ / "devices" / device);
    fs::create_directories(sys_ / entry);
    fs::create_symlink(sys_ / "devices" / device, sys_ / entry / "device");
  }
  json Interface(const std::string& name) const { return DetectInterface(name, sys_); }
  json Node(const std::string& interface) const {
    return DescribeNode(kSystem, 192, interface, sys_);
  }

  TemporaryFolder folder_;
  fs::path sys_ = folder_.path();
};

TEST_F(RecordedNode, IsHardwareWithoutNamesAndHasItsInterfacesOnce) {
  AddInterface("eth0", "100000", "pci0");
  AddInterface("eth1", "100000", "pci1");
  AddInterface("eth2", "1000", "pci2");
  const json found = Node("");
  EXPECT_EQ(found, json::parse(R"({"cpu_model": "AMD EPYC 9654", "cores": 192, "memory_gib": 755,
    "gpus": ["NVIDIA H100"], "network": [{"kind": "Ethernet", "gbps": 1.0},
                                         {"kind": "Ethernet", "gbps": 100.0}]})"));
  EXPECT_EQ(NetworkLine(found), "Ethernet 1 Gbit/s, Ethernet 100 Gbit/s");
}

TEST_F(RecordedNode, HasTheOneInterfaceThatRanksAreToldToUse) {
  AddInterface("eth0", "100000", "pci0");
  AddInterface("eth2", "1000", "pci2");
  EXPECT_EQ(Node("eth2")["network"], json::parse(R"([{"kind": "Ethernet", "gbps": 1.0}])"));
}

TEST_F(RecordedNode, AnInterfaceIsOfThePortBehindItAndABondOfItsFirstMember) {
  AddInterface("ib0", "-1", "pci0", "32");
  PutIn("class/infiniband/mlx5_0", "pci0");
  Write("class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand");
  Write("class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)");
  EXPECT_EQ(Interface("ib0"), json::parse(R"({"kind": "InfiniBand", "gbps": 200.0})"));
  AddInterface("eth0", "25000", "pci1");
  AddInterface("bond0", "50000", "");
  fs::create_directory_symlink(sys_ / "class/net/eth0", sys_ / "class/net/bond0/lower_eth0");
  EXPECT_EQ(Interface("bond0"), json::parse(R"({"kind": "Ethernet", "gbps": 50.0})"));
  AddInterface("veth1", "10000", "");  // a constant of its driver
  EXPECT_EQ(Interface("veth1"), json::parse(R"({"kind": "virtual", "gbps": "unknown"})"));
}

TEST(SystemOfNodes, IsTheSameForAnyNumberInAnyOrderAndUnlikeNodesStayApart) {
  const json a = {{"cpu_model", "a"}}, b = {{"cpu_model", "b"}};
  EXPECT_EQ(CountedNodes(std::vector{b, a, b}),
            json::parse(R"([{"cpu_model": "b", "count": 2}, {"cpu_model": "a", "count": 1}])"));
  const json both = SystemOfNodes(std::vector{a, b});
  EXPECT_EQ(both, json::parse(R"({"nodes": [{"cpu_model": "a"}, {"cpu_model": "b"}]})"));
  const json counted = CountedNodes(std::vector{b, a, b});
  EXPECT_EQ(SystemOfNodes(counted.get<std::vector<json>>()), both);
  EXPECT_NE(SystemOfNodes(std::vector{a, a}), both);
  EXPECT_EQ(SystemOfNodes(std::vector{a, a}), SystemOfNodes(std::vector{a}));
}

}  // namespace
}  // namespace sparfuse::harness
