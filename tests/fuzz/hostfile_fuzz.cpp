// Feeds arbitrary text to the reader of hostfiles. For an accepted file, mpirun's arguments have
// the same hosts.
#include <fstream>

#include "harness/run/live/launch/hostfile.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "tests/support/harness_fixture.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sparfuse;
  using namespace sparfuse::harness;
  static const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "hosts.txt";
  std::ofstream(file, std::ios::binary) << fuzz::Text(data, size);
  fuzz::Accepts([&] { ReadHostfile(file, HostfileForm::kAny); }, FailureKind::kConfig);
  const auto read = [&] {
    const std::vector<Host> hosts = ReadHostfile(file);
    for (const Host& host : hosts) {
      fuzz::Require(host.slots > 0, "a host without slots");
      fuzz::Require(host.name.find_first_of(" \t\r\n;$`'\"") == std::string::npos,
                    "a name that a shell or a line would cut");
      fuzz::Require(!host.name.starts_with('-'), "a name that is an option");
    }
    const std::filesystem::path given = FileForMpirun(file, folder.path() / "given");
    if (given.empty()) return;
    const std::vector<Host> again = ReadHostfile(given);
    fuzz::Require(again.size() == hosts.size(), "another number of hosts for mpirun");
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      fuzz::Require(again[i].name == hosts[i].name && again[i].slots == hosts[i].slots,
                    "another host for mpirun");
    }
    std::filesystem::remove(given);
  };
  fuzz::Accepts(read, FailureKind::kConfig);
  return 0;
}
