// Tests the shipment of files to hosts without a shared folder.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <utility>

#include "core/base/error.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/machine/system.hpp"
#include "harness/run/live/ship/node_channel.hpp"
#include "harness/run/live/ship/shipping.hpp"
#include "tests/support/errors.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

TEST(Shipment, HasLibrariesButForThoseOfTheHost) {
  const auto libraries = ShippedLibraries(
      "\tlinux-vdso.so.1 (0x7f)\n\tlibfmt.so.9 => /lib/libfmt.so.9 (0x7f)\n"
      "\tlibtorch_cpu.so => /opt/my torch/libtorch_cpu.so (0x7f)\n"
      "\tlibmpi.so.40 => /lib/libmpi.so.40 (0x7f)\n\tlibc.so.6 => /lib/libc.so.6 (0x7f)\n"
      "\tlibcuda.so.1 => /lib/libcuda.so.1 (0x7f)\n\t/lib64/ld-linux-x86-64.so.2 (0x7f)\n");
  EXPECT_EQ(libraries,
            (std::vector<fs::path>{"/lib/libfmt.so.9", "/opt/my torch/libtorch_cpu.so"}));
  testing::ExpectIn("libmine.so => not found",
                    testing::ErrorOf([] { ShippedLibraries("\tlibmine.so => not found\n"); },
                                     FailureKind::kData));
}

TEST(Shipment, IsNamedByItsContent) {
  const TemporaryFolder folder;
  fs::create_directories(folder.path() / "data/a b");
  std::ofstream(folder.path() / "worker") << "#!/bin/sh\n";
  std::ofstream(folder.path() / "data/a b/x.bin") << "one";
  std::ofstream(folder.path() / "data/secret") << "of nobody";
  const auto collect = [&] {
    return Collect(folder.path() / "worker", folder.path() / "data", {"a b/x.bin", "lacking.bin"});
  };
  const Shipment first = collect();
  ASSERT_EQ(first.files.size(), 2u);  // a script has no libraries
  EXPECT_EQ(first.files[0].name, kShippedWorker);
  EXPECT_EQ(first.files[1].name, "data/a b/x.bin");
  EXPECT_EQ(first.files[1].hash, Sha256Hex("one"));
  EXPECT_EQ(collect().Id(), first.Id());
  std::ofstream(folder.path() / "data/a b/x.bin") << "two";
  EXPECT_NE(collect().Id(), first.Id());
}

TEST(Shipment, NoLinkLeadsOutOfTheData) {
  const TemporaryFolder folder;
  fs::create_directories(folder.path() / "data");
  std::ofstream(folder.path() / "worker") << "#!/bin/sh\n";
  std::ofstream(folder.path() / "key") << "secret";
  std::ofstream(folder.path() / "data/own.bin") << "one";
  fs::create_symlink("own.bin", folder.path() / "data/link.bin");
  fs::create_symlink("../key", folder.path() / "data/x.bin");
  const auto collect = [&](const char* name) {
    return Collect(folder.path() / "worker", folder.path() / "data", {name}).files.size();
  };
  EXPECT_EQ(collect("link.bin"), 2u);
  testing::ExpectIn("data/x.bin: a link leads out of",
                    testing::ErrorOf([&] { collect("x.bin"); }, FailureKind::kData));
}

// The worker of an archive of scripts/bundle looks for libraries in ../../lib first.
TEST(Shipment, NothingOutsideOfTheShipmentIsLoaded) {
  const fs::path library = (fs::path("/tmp/store/id") / kShippedWorker).parent_path() / "../../lib";
  EXPECT_EQ(library.lexically_normal(), "/tmp/store/id/lib");
}

TEST(Shipment, AnArchivesOpenMpiGoesAlong) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "worker") << "#!/bin/sh\n";
  for (const char* name : {"archive.json", "lib/libmpi.so.40", "lib/openmpi/mca_btl_tcp.so",
                           "share/openmpi/help-x.txt", "experiments/x.toml"}) {
    fs::create_directories((folder.path() / name).parent_path());
    std::ofstream(folder.path() / name) << name;
  }
  ::setenv("OPAL_PREFIX", folder.path().c_str(), 1);
  const Shipment shipment = Collect(folder.path() / "worker", {}, {});
  fs::remove(folder.path() / "archive.json");  // now an ordinary prefix
  const Shipment without = Collect(folder.path() / "worker", {}, {});
  ::unsetenv("OPAL_PREFIX");
  EXPECT_TRUE(shipment.has_open_mpi);
  std::vector<std::string> names;
  for (const ShippedFile& file : shipment.files) names.push_back(file.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{kShippedWorker, "lib/libmpi.so.40",
                                      "lib/openmpi/mca_btl_tcp.so", "share/openmpi/help-x.txt"}));
  EXPECT_FALSE(without.has_open_mpi);
  EXPECT_EQ(without.files.size(), 1u);
}

TEST(Shell, EndsWithTheRun) {
  std::atomic<bool> interrupted{false};
  const ShellResult well = RunShell("printf 'a\\nb\\n'", 10, interrupted);
  EXPECT_TRUE(well.ok);
  EXPECT_EQ(well.output, "a\nb");
  EXPECT_FALSE(RunShell("exit 3", 10, interrupted).ok);
  const ShellResult late = RunShell("echo a; sleep 60 | cat", 2, interrupted);
  EXPECT_EQ(late.ended, "it took longer than 2 s");
  EXPECT_EQ(late.output, "a");
  interrupted = true;
  EXPECT_EQ(RunShell("sleep 60 | cat", 30, interrupted).ended, "interrupted");
}

class Results : public ::testing::Test {
 protected:
  Results() {
    Write("place/0/config.json", "{}");
    Write("place/0/steps.npy", std::string(100'000, '\1'));
    Write("place/1/outcome.json", "{}");
    for (const char* name : {"a", "b"}) fs::create_directories(folder_.path() / name);
    trials_ = {folder_.path() / "a", folder_.path() / "b"};
  }
  void Write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_.path() / name).parent_path());
    std::ofstream(folder_.path() / name) << text;
  }
  // Takes a node's printed results. edit: a command that changes its lines.
  std::string Take(const std::string& edit = "cat") {
    const std::string printed = (folder_.path() / "printed").string();
    bool ok = false;
    CommandOutput(
        fmt::format("({}) | {} >{} 2>&1", SendingResults(folder_.path() / "place"), edit, printed),
        ok);
    EXPECT_TRUE(ok);
    fs::remove_all(folder_.path() / "between");
    return TakeResults(printed, folder_.path() / "between", trials_);
  }
  const TemporaryFolder folder_;
  std::vector<fs::path> trials_;
};

TEST_F(Results, ComeWhole) {
  // A prolog's line in the middle of a file.
  EXPECT_EQ(Take("sed -e '1s/^/motd: hello\\n/' -e '20s/$/\\nAAAA/'"), "");
  EXPECT_EQ(ReadFile(trials_[0] / "steps.npy"), std::string(100'000, '\1'));
  EXPECT_EQ(ReadFile(trials_[1] / "outcome.json"), "{}");
  EXPECT_FALSE(fs::exists(trials_[0] / "config.json"));
}

TEST_F(Results, DamageIsFound) {
  for (const char* edit : {"sed '200s/AQEB/AQEC/'", "sed 200d"}) {
    fs::remove(trials_[0] / "steps.npy");
    testing::ExpectIn("0/steps.npy", Take(edit));
    EXPECT_FALSE(fs::exists(trials_[0] / "steps.npy"));
  }
  testing::ExpectIn("it stopped in between", Take("sed '$d'"));
  testing::ExpectIn("srun: node is gone", Take("sed '1,$d'; echo 'srun: node is gone'"));
  fs::remove_all(trials_[1]);  // makes writing fail
  testing::ExpectIn("cannot write", testing::ErrorOf([&] { Take(); }, FailureKind::kData));
}

TEST(Shipping, PassesTheLaunchersChannel) {
  LaunchMethod srun{.kind = LaunchMethod::Kind::kSrun};
  const auto words = OnNode(srun, "n2", {"tar", "-x"});
  EXPECT_EQ(words.front(), "srun");
  EXPECT_NE(std::ranges::find(words, "--nodelist=n2"), words.end());
  EXPECT_EQ(words.back(), "-x");
  EXPECT_NE(std::ranges::find(words, "--overlap"), words.end());
  const LaunchMethod mpirun{.kind = LaunchMethod::Kind::kMpirun, .interface = "ib0"};
  const auto over = OnNode(mpirun, "n2", {"true"});
  EXPECT_EQ(std::ranges::count(over, "ib0"), 2);
}

const std::atomic<bool> kInterrupted{true};

// This machine plays the node: srun starts its command here and keeps the input of tar.
constexpr const char* kFakeSrun = R"sh(#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
case "$*" in *"tar -x"*) tee -a "$FAKE/sent" | "$@" ;; *) "$@" ;; esac
)sh";

class ShippedOnce : public ::testing::Test {
 protected:
  ShippedOnce() {
    Program("srun", kFakeSrun);
    Program("scontrol", "#!/bin/sh\necho n1\n");
    Write("site/torch/__init__.py", "");
    Set("FAKE", folder_.path().string());
    Set("PATH", (folder_.path() / "bin").string() + ":" + std::getenv("PATH"));
    Set("PYTHONPATH", (folder_.path() / "site").string());
    Set("TMPDIR", (folder_.path() / "node").string());
    fs::create_directories(folder_.path() / "node");
  }
  ~ShippedOnce() override {
    for (const auto& [name, value] : before_) {
      if (value) {
        ::setenv(name.c_str(), value->c_str(), 1);
      } else {
        ::unsetenv(name.c_str());
      }
    }
  }

  fs::path Write(const std::string& name, const std::string& text) const {
    const fs::path file = folder_.path() / name;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
    return file;
  }
  ShippedFile File(const std::string& name, const std::string& text) const {
    const fs::path file = Write("here/" + name, text);
    if (name == kShippedWorker) fs::permissions(file, fs::perms::owner_all);
    return {file, name, Sha256Hex(text)};
  }
  // The bytes that came through the channel so far.
  std::string Sent() const {
    const fs::path sent = folder_.path() / "sent";
    return fs::exists(sent) ? ReadFile(sent) : "";
  }

  const TemporaryFolder folder_;
  const std::atomic<bool> never_{false};
  const LaunchMethod srun_{.kind = LaunchMethod::Kind::kSrun};

 private:
  void Program(const std::string& name, const std::string& text) const {
    fs::permissions(Write("bin/" + name, text), fs::perms::owner_all);
  }
  void Set(const char* name, const std::string& value) {
    const char* before = std::getenv(name);
    before_.emplace_back(name, before ? std::optional<std::string>(before) : std::nullopt);
    ::setenv(name, value.c_str(), 1);
  }
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

TEST_F(ShippedOnce, WhatTheNodesOwnLibTorchHasIsNotSent) {
  Write("site/torch/lib/libtorch_cpu.so", "the same library");
  Write("site/torch/lib/libc10.so", "another version's");
  const Shipment shipment{{File(kShippedWorker, "the worker"),
                           File("lib/libtorch_cpu.so", "the same library"),
                           File("lib/libc10.so", "this version's")}};
  const Shipping shipping(srun_, shipment, never_);
  EXPECT_EQ(ReadFile(shipping.worker()), "the worker");
  const fs::path libraries = shipping.worker().parent_path() / "../../lib";
  EXPECT_EQ(ReadFile(libraries / "libtorch_cpu.so"), "the same library");
  EXPECT_EQ(ReadFile(libraries / "libc10.so"), "this version's");
  testing::ExpectIn("this version's", Sent());
  EXPECT_EQ(Sent().find("the same library"), std::string::npos);
}

TEST_F(ShippedOnce, NothingIsSentTwice) {
  Shipment shipment{{File(kShippedWorker, "the worker"), File("data/a", "one")}};
  const fs::path first = Shipping(srun_, shipment, never_).worker();
  const std::size_t sent = Sent().size();
  EXPECT_GT(sent, 0U);
  EXPECT_EQ(Shipping(srun_, shipment, never_).worker(), first);
  EXPECT_EQ(Sent().size(), sent);
  shipment.files[0] = File(kShippedWorker, "a newer one");
  EXPECT_EQ(ReadFile(Shipping(srun_, shipment, never_).worker()), "a newer one");
  testing::ExpectIn("a newer one", Sent().substr(sent));
  EXPECT_EQ(Sent().find(Sha256Hex("one"), sent), std::string::npos);
}

TEST_F(ShippedOnce, WhatIsDamagedThereIsSentAgain) {
  Shipment shipment{{File(kShippedWorker, "the worker"), File("data/a", "one")}};
  const fs::path store = Shipping(srun_, shipment, never_).worker().parent_path() / "../../..";
  EXPECT_EQ(fs::status(store).permissions(), fs::perms::owner_all);
  std::ofstream(store / "files" / Sha256Hex("one")) << "another";
  shipment.files[0] = File(kShippedWorker, "a newer one");
  const fs::path worker = Shipping(srun_, shipment, never_).worker();
  EXPECT_EQ(ReadFile(worker.parent_path() / "../../data/a"), "one");
}

TEST_F(ShippedOnce, AWorkerThatMayNotBeRunThereIsNamed) {
  const Shipment shipment{{File(kShippedWorker, "the worker")}};
  fs::permissions(shipment.files[0].source, fs::perms::owner_read);
  testing::ExpectIn("node n1: \"", testing::ErrorOf([&] { Shipping(srun_, shipment, never_); },
                                                    FailureKind::kData));
}

TEST_F(ShippedOnce, WhatArrivesDamagedIsRefused) {
  const Shipment shipment{{File(kShippedWorker, "the worker")}};
  std::ofstream(shipment.files[0].source) << "changed meanwhile";
  testing::ExpectIn(
      "did not arrive as it was sent",
      testing::ErrorOf([&] { Shipping(srun_, shipment, never_); }, FailureKind::kData));
}

TEST_F(ShippedOnce, AFolderThatIsNotOnesOwnIsRefused) {
  const fs::path store = folder_.path() / "node" / ("sparfuse-" + std::to_string(::geteuid()));
  fs::create_directories(folder_.path() / "elsewhere");
  fs::create_symlink(folder_.path() / "elsewhere", store);
  const Shipment shipment{{File(kShippedWorker, "the worker")}};
  testing::ExpectIn(
      "is not a folder of this user's own",
      testing::ErrorOf([&] { Shipping(srun_, shipment, never_); }, FailureKind::kData));
  EXPECT_TRUE(fs::is_empty(folder_.path() / "elsewhere"));
}

TEST_F(ShippedOnce, AnInterruptionLeavesNothing) {
  const Shipment shipment{{File(kShippedWorker, "the worker")}};
  testing::ExpectIn(
      "interrupted",
      testing::ErrorOf([&] { Shipping(srun_, shipment, kInterrupted); }, FailureKind::kData));
  for (const auto& entry : fs::directory_iterator(folder_.path() / "node"))
    EXPECT_FALSE(entry.path().filename().string().starts_with("sparfuse-ship-")) << entry.path();
}

TEST_F(ShippedOnce, AnArchiveNeedsItsOpenMpiWhereMpirunStarts) {
  Shipment shipment{{File(kShippedWorker, "the worker")}};
  shipment.has_open_mpi = true;
  const fs::path hosts = Write("hosts", "n1 slots=1\n");
  const LaunchMethod mpirun{.kind = LaunchMethod::Kind::kMpirun, .hostfile = hosts};
  testing::ExpectIn("--ship with the mpirun of an archive",
                    testing::ErrorOf([&] { Shipping(mpirun, shipment, never_); }));
  const Shipping shipping(srun_, shipment, never_);
  const fs::path folder = shipping.worker().parent_path().parent_path().parent_path();
  std::map<std::string, std::string> there;
  for (const auto& [name, value] : shipping.environment()) there[name] = value;
  EXPECT_EQ(there["OPAL_PREFIX"], folder);
  EXPECT_EQ(there["PMIX_PKGLIBDIR"], folder / "lib/pmix");
}

TEST_F(ShippedOnce, WhatALaunchLeftThereGoesWithTheNext) {
  const Shipment shipment{{File(kShippedWorker, "the worker")}};
  const fs::path trial = Write("trial/config.json", "{}").parent_path();
  fs::path first, second;
  {
    const Shipping shipping(srun_, shipment, never_);
    first = shipping.Send({trial}, "a1").front();
    std::ofstream(first / "outcome.json") << "{}";
    EXPECT_TRUE(shipping.Fetch({trial}, "a1").empty());
    EXPECT_EQ(ReadFile(trial / "outcome.json"), "{}");
    second = shipping.Send({trial}, "a2").front();
    EXPECT_FALSE(fs::exists(first.parent_path()));
    shipping.Forget("a2");
    EXPECT_TRUE(fs::exists(second));
  }
  EXPECT_FALSE(fs::exists(second.parent_path()));
}

}  // namespace
}  // namespace sparfuse::harness
