// Tests the command lines of launchers against golden ones, the refusals before any start, and the
// counters of network interfaces.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "core/base/error.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/network.hpp"
#include "harness/machine/system.hpp"
#include "harness/run/live/launch/launch_command.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"
#include "tests/support/tree/source_directory.hpp"

namespace sparfuse::harness {
namespace {

using testing::ErrorOf;
namespace fs = std::filesystem;
const fs::path kSource = testing::SourceDirectory();

void ExpectSays(const std::string& said, const std::string& part) { testing::ExpectIn(part, said); }

class Launchers : public ::testing::Test {
 protected:
  Launchers() {
    unsetenv("LD_LIBRARY_PATH");
    for (const char* name : DescribedVariables()) unsetenv(name);
    config_.workers = 16;
    config_.ranks_per_node = 8;
    Write("hosts", "n1 slots=8\nn2 slots=8\n");
  }

  fs::path Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_.path() / name) << text;
    return folder_.path() / name;
  }

  std::string LineOf(const LaunchMethod& method) const {
    const std::vector<fs::path> trials = {"/r/trials/a", "/r/trials/b"};
    const fs::path worker = "/opt/sparfuse-worker";
    const LaunchedWork work{config_, worker, trials, 90.5, "NONCE"};
    const Environment environment = LaunchEnvironment(work, method);
    return ShellLine(environment, LaunchCommand(work, method, environment));
  }

  // Compares with the file's line; SPARFUSE_WRITE_GOLDEN=1 writes it.
  void ExpectGolden(const std::string& name, std::string line) const {
    const auto replace = [&](const std::string& what, const std::string& by) {
      if (const auto at = line.find(what); at != std::string::npos)
        line.replace(at, what.size(), by);
    };
    replace((folder_.path() / "hosts").string(), "/r/hosts");
    // The tester may be root, which adds an option; a template has a fixed line.
    if (::geteuid() == 0 && line.find("mpirun --allow-run-as-root --mca plm") == std::string::npos)
      replace("--allow-run-as-root ", "");
    const fs::path file = kSource / "tests/harness/run/live/launch_commands" / (name + ".txt");
    if (std::getenv("SPARFUSE_WRITE_GOLDEN") != nullptr) std::ofstream(file) << line << "\n";
    EXPECT_EQ(line + "\n", ReadFile(file)) << file;
  }

  CellConfig config_;
  const TemporaryFolder folder_;
};

TEST_F(Launchers, LinesAreTheGoldenOnes) {
  ExpectGolden("local", LineOf({}));
  ExpectGolden("mpirun-allocation", LineOf({.kind = LaunchMethod::Kind::kMpirun}));
  ExpectGolden("mpirun-hostfile",
               LineOf({.kind = LaunchMethod::Kind::kMpirun, .hostfile = folder_.path() / "hosts"}));
  ExpectGolden("srun", LineOf({.kind = LaunchMethod::Kind::kSrun, .pmi = "pmix_v4"}));
  for (const char* name : {"pbs", "lsf", "flux", "mpi-operator"}) {
    LaunchMethod method{.kind = LaunchMethod::Kind::kTemplate};
    method.form =
        LaunchTemplate::Read(kSource / "scripts" / "launchers" / (std::string(name) + ".toml"));
    if (method.form.Uses("hostfile")) method.hostfile = folder_.path() / "hosts";
    ExpectGolden(name, LineOf(method));
  }
}

TEST_F(Launchers, TheInterfaceIsNamedToAllLibraries) {
  ExpectGolden("mpirun-interface",
               LineOf({.kind = LaunchMethod::Kind::kMpirun, .interface = "interface-of-no-host"}));
  ExpectGolden("srun-interface", LineOf({.kind = LaunchMethod::Kind::kSrun,
                                         .interface = "interface-of-no-host",
                                         .pmi = "pmix"}));
}

// The environment that a trial's record states also reaches ranks on other hosts.
TEST_F(Launchers, OtherHostsGetWhatTheUserSet) {
  for (const char* name : {"NCCL_ALGO", "SPARFUSE_DATA", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"})
    setenv(name, "7", 1);
  const fs::path hosts = folder_.path() / "hosts";
  const std::string mpirun = LineOf({.kind = LaunchMethod::Kind::kMpirun, .hostfile = hosts});
  LaunchMethod method{.kind = LaunchMethod::Kind::kTemplate};
  method.form = LaunchTemplate::Read(kSource / "scripts/launchers/flux.toml");
  const std::string flux = LineOf(method);
  for (const char* name : {"NCCL_ALGO", "SPARFUSE_DATA"}) {
    ExpectSays(mpirun, std::string("-x ") + name + " ");
    ExpectSays(flux, std::string(" ") + name + "=7 ");
    unsetenv(name);
  }
  for (const std::string& line : {mpirun, flux}) {
    EXPECT_EQ(line.find("CUDA_VISIBLE_DEVICES"), std::string::npos);
    EXPECT_EQ(line.find("OMP_NUM_THREADS=7"), std::string::npos);  // the cell sets it
  }
  unsetenv("CUDA_VISIBLE_DEVICES");
  unsetenv("OMP_NUM_THREADS");
}

TEST_F(Launchers, RanksThatAreThreadsStartHereWhateverTheMethod) {
  config_.transport = Transport::kThreads;
  EXPECT_EQ(LineOf({.kind = LaunchMethod::Kind::kSrun, .pmi = "pmix"}).find("srun"),
            std::string::npos);
}

TEST_F(Launchers, HostsNeedRoomForTheRanksOfANode) {
  config_.workers = 24;
  ExpectSays(ErrorOf([&] {
               CheckMayLaunch(config_, {.kind = LaunchMethod::Kind::kMpirun,
                                        .hostfile = folder_.path() / "hosts"});
             }),
             "hosts: 2 host(s) have slots=8 or more, and 24 ranks, 8 on a node, need 3");
}

TEST_F(Launchers, EmulatedLinksAreOfOneHost) {
  CheckMayLaunch(config_, {.kind = LaunchMethod::Kind::kSrun});
  config_.link = LinkShape{1, 100};
  CheckMayLaunch(config_, {});
  ExpectSays(ErrorOf([&] { CheckMayLaunch(config_, {.kind = LaunchMethod::Kind::kSrun}); }),
             "delays messages between ranks of one host");
}

TEST_F(Launchers, ATemplatesMistakesAreNamed) {
  const std::string rest = R"("env", "{environment}", "{worker}", "{arguments}"])";
  for (const auto& [text, said] : std::initializer_list<std::pair<std::string, std::string>>{
           {"command = [\"run\", \"-n\", \"{rank}\", " + rest,
            "t.toml:1: command = \"{rank}\": expected in braces one of {ranks}"},
           {"command = [\"run\", \"-n\", \"{ranks\", " + rest, "command = \"{ranks\""},
           {"command = [\"run\", \"-n{ranks}\", \"--args={arguments}\", " + rest,
            "command = \"--args={arguments}\": expected {arguments} as a word of its own"},
           {"command = [\"run\", " + rest, "expected {ranks} among the words"},
           {"command = [\"run\", \"{ranks}\", \"{worker}\", \"{arguments}\"]",
            "expected {environment} among the words"},
           {"command = \"run {ranks}\"", "expected a list of words"},
           {"comand = []", "comand"},
           {"command = [\"run\", \"{ranks}\", " + rest + "\nend = [\"kill\", \"{ranks}\"]",
            "t.toml:2: end = \"{ranks}\": expected in braces {nonce} alone"},
           {"command = [\"run\", \"{ranks}\", " + rest + "\nend = \"kill\"",
            "expected a list of words"},
           {"", "no command"}}) {
    const fs::path file = Write("t.toml", text);
    ExpectSays(ErrorOf([&] { LaunchTemplate::Read(file); }), said);
  }
}

TEST_F(Launchers, ATemplateMaySayHowALaunchIsEnded) {
  LaunchMethod method{.kind = LaunchMethod::Kind::kTemplate};
  const std::string command =
      R"(command = ["run", "{ranks}", "{nonce}", "env", "{environment}", "{worker}", "{arguments}"])";
  method.form = LaunchTemplate::Read(Write("t.toml", command));
  EXPECT_TRUE(LaunchEnder(method, "n7").empty());
  ExpectSays(LineOf(method), "run 16 NONCE env");
  method.form =
      LaunchTemplate::Read(Write("t.toml", command + "\nend = [\"kill\", \"job-{nonce}\"]"));
  EXPECT_EQ(LaunchEnder(method, "n7"), (std::vector<std::string>{"kill", "job-n7"}));
}

TEST_F(Launchers, OptionsThatDoNotGoTogetherAreRefused) {
  const fs::path hosts = folder_.path() / "hosts";
  const std::string flux = (kSource / "scripts/launchers/flux.toml").string();
  const std::string pbs = (kSource / "scripts/launchers/pbs.toml").string();
  for (const auto& [options, said] : std::initializer_list<std::pair<LaunchOptions, std::string>>{
           {{"slurm", {}, {}}, "--launch slurm: expected local, mpirun, srun"},
           {{"local", hosts, {}}, "with --launch local: expected --launch mpirun"},
           {{"mpirun", "/nonexistent/hosts", {}}, "no such file; expected a file with a line"},
           {{flux, hosts, {}}, "expected {hostfile} in its command"},
           {{pbs, {}, {}}, "command has {hostfile}: expected --hostfile"},
           {{"local", {}, "interface-of-no-host"}, "this host has no such network interface"}}) {
    ExpectSays(ErrorOf([&, o = options] { ReadLaunchMethod(o); }), said);
  }
  EXPECT_EQ(ReadLaunchMethod({}).kind, LaunchMethod::Kind::kLocal);
  EXPECT_EQ(ReadLaunchMethod({"", hosts, ""}).kind, LaunchMethod::Kind::kMpirun);
  EXPECT_EQ(ReadLaunchMethod({flux, {}, ""}).kind, LaunchMethod::Kind::kTemplate);
}

TEST(Pmi, IsTheOneThatOpenMpiSpeaks) {
  EXPECT_EQ(PickPmi("MPI plugin types are...\n\tnone\n\tpmi2\n\tcray_shasta\n\tpmix\nspecific pmix "
                    "plugin versions available: pmix_v4\n"),
            "pmix");
  EXPECT_EQ(PickPmi("srun: MPI types are...\nsrun: pmix_v2\nsrun: pmix_v10\nsrun: pmix_v3\n"),
            "pmix_v10");
  EXPECT_EQ(PickPmi("specific pmix plugin versions available: pmix_v3,pmix_v4\n"), "pmix_v4");
  EXPECT_EQ(PickPmi("MPI plugin types are...\n\tnone\n\tpmi2\n"), "");
}

class Interfaces : public ::testing::Test {
 protected:
  void Carries(const std::string& name, std::uint64_t received, std::uint64_t sent) {
    const fs::path statistics = net_ / name / "statistics";
    fs::create_directories(statistics);
    std::ofstream(statistics / "rx_bytes") << received << "\n";
    std::ofstream(statistics / "tx_bytes") << sent << "\n";
  }
  HostTraffic Traffic(const std::string& interface, bool across_hosts) {
    return DescribeTraffic(before_, ReadInterfaces(net_), interface, across_hosts, net_);
  }
  const TemporaryFolder folder_;
  const fs::path net_ = folder_.path() / "net";
  std::map<std::string, InterfaceBytes> before_;
};

constexpr std::uint64_t kMega = 1'000'000;

TEST_F(Interfaces, ASecondOneWithTrafficIsNamed) {
  for (const char* name : {"eth0", "eth1", "docker0", "lo"}) Carries(name, 5, 7);
  before_ = ReadInterfaces(net_);
  Carries("eth0", 5 + 100 * kMega, 7 + 50 * kMega);
  Carries("eth1", 5, 7 + 10 * kMega);
  Carries("docker0", 5 + kMega, 7);  // less than 1 MiB
  Carries("lo", 900 * kMega, 900 * kMega);
  const HostTraffic traffic = Traffic("", true);
  EXPECT_EQ(traffic.others, (std::vector<std::string>{"eth1"}));
  EXPECT_EQ(traffic.interface, "");
  EXPECT_EQ(traffic.bytes.at("eth0"), (InterfaceBytes{100 * kMega, 50 * kMega}));
  EXPECT_EQ(Traffic("eth1", true).others, (std::vector<std::string>{"eth0"}));
  EXPECT_EQ(Traffic("eth0", false).others, std::vector<std::string>());
  Carries("eth1", 5, 7 + 7 * kMega);  // less than 5 % of 150 MB
  EXPECT_EQ(Traffic("eth0", true).others, std::vector<std::string>());
}

TEST_F(Interfaces, WhatCountsTheSameBytesIsNoSecondOne) {
  for (const char* name : {"bond0", "eth0", "eth1"}) Carries(name, 0, 0);
  before_ = ReadInterfaces(net_);
  Carries("bond0", 80 * kMega, 0);
  Carries("eth0", 40 * kMega, 0);
  Carries("eth1", 40 * kMega, 0);
  EXPECT_EQ(Traffic("bond0", true).others, (std::vector<std::string>{"eth0", "eth1"}));
  for (const char* member : {"eth0", "eth1"})
    fs::create_directory(net_ / "bond0" / ("lower_" + std::string(member)));
  EXPECT_EQ(Traffic("bond0", true).others, std::vector<std::string>());
}

// RDMA traffic bypasses the kernel, and so the interface's own counters.
TEST_F(Interfaces, RdmaCountsAsItsInterfacesTraffic) {
  const auto ports = [&](std::uint64_t words) {
    const fs::path counters = net_ / "ib0/device/infiniband/mlx5_0/ports/1/counters";
    fs::create_directories(counters);
    std::ofstream(counters / "port_rcv_data") << words << "\n";
    std::ofstream(counters / "port_xmit_data") << 2 * words << "\n";
  };
  for (const char* name : {"eth0", "ib0"}) Carries(name, 0, 0);
  ports(10);
  before_ = ReadInterfaces(net_);
  Carries("ib0", 8, 8);
  Carries("eth0", 2 * kMega, 0);
  ports(10 + kMega);
  const HostTraffic traffic = Traffic("eth0", true);
  EXPECT_EQ(traffic.bytes.at("ib0"), (InterfaceBytes{4 * kMega + 8, 8 * kMega + 8}));
  EXPECT_EQ(traffic.others, (std::vector<std::string>{"ib0"}));
  std::ofstream(net_ / "ib0" / "type") << "32\n";
  EXPECT_EQ(ReadInterfaces(net_).at("ib0").sent, 8 * kMega + 80);
}

TEST_F(Interfaces, RdmaPortsBehindOneAreNamedToo) {
  Carries("ib0", 0, 0);
  fs::create_directories(net_ / "ib0" / "device" / "infiniband" / "mlx5_0");
  std::ofstream(net_ / "ib0" / "dev_port") << "1\n";
  const auto environment = InterfaceEnvironment("ib0", net_);
  const std::map<std::string, std::string> values(environment.begin(), environment.end());
  EXPECT_EQ(values.at("UCX_NET_DEVICES"), "mlx5_0:2,ib0");
  EXPECT_EQ(values.at("NCCL_IB_HCA"), "=mlx5_0:2");
  EXPECT_EQ(values.at("NCCL_SOCKET_IFNAME"), "=ib0");
  EXPECT_TRUE(InterfaceEnvironment("", net_).empty());
}

}  // namespace
}  // namespace sparfuse::harness
