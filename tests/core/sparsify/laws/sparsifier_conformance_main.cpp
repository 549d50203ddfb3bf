// Tests the laws of sparsifiers on named ones, either registered or classes of Python files, on the
// host or on a device.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <optional>

#include "core/base/error.hpp"
#ifdef SPARFUSE_PYTHON_NAMES
#include "harness/catalog/outside_part.hpp"
#endif
#include "tests/support/devices/device_selection.hpp"

namespace sparfuse {
namespace {

constexpr const char* kUsage =
    "usage: sparsifier-conformance [--device host|emulated|cuda] [NAME...] [--gtest_...]\n"
    "\n"
    "Tests the laws of sparsifiers: what a selection must look like, that it is deterministic, "
    "that\n"
    "mass is conserved, that the contraction holds which its descriptor promises; and on a device\n"
    "that it selects there what it selects on the host, in the order of its stream.\n"
    "\n"
    "  NAME      of \"sparfuse list sparsifiers\", or python:FILE.py:ClassName, a class with\n"
    "            select(g, k) that is constructed with its defaults. None with --device: every\n"
    "            registered one.\n"
    "  --device  host: the laws of the host (the default). cuda: those of a device, on the first\n"
    "            CUDA device. emulated: the same on the device that tests have without a card.\n"
    "  --gtest_  as every test program of googletest: --gtest_filter=*Graph*, --gtest_list_tests.\n"
    "\n"
    "Exit status: 0 all laws hold, 1 one does not, 2 it could not be tried.\n";

struct Arguments {
  std::optional<std::string> device;
  std::vector<std::string> names;
  bool help = false;
};

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      arguments.help = true;
    } else if (argument == "--device") {
      SPARFUSE_REQUIRE(++i < argc, "--device: expected host, emulated or cuda after it");
      arguments.device = argv[i];
    } else if (argument.starts_with("--device=")) {
      arguments.device = argument.substr(9);
    } else if (argument.starts_with("--gtest_")) {
      continue;
    } else {
      SPARFUSE_REQUIRE(!argument.starts_with("-"),
                       "unknown option \"" + argument + "\"; known: --device, --help, --gtest_...");
      arguments.names.push_back(argument);
    }
  }
  return arguments;
}

void TestOn(const std::string& device) {
  testing::Subjects& subjects = testing::UnderTest();
  subjects.chosen = true;
  subjects.on_host = device == "host";
  subjects.devices.clear();
  if (device == "host") return;
  SPARFUSE_REQUIRE(device == "emulated" || device == "cuda",
                   "--device \"" + device + "\"; expected host, emulated or cuda");
  const DeviceKind chosen = device == "cuda" ? DeviceKind::kCuda : DeviceKind::kEmulated;
  const std::string why = testing::WhyNotOn(chosen);
  if (!why.empty()) SPARFUSE_THROW(kUnsupported, "--device cuda: " + why);
  subjects.devices = {chosen};
}

#ifdef SPARFUSE_PYTHON_NAMES
// Makes the given sparsifiers the subjects, each under its given name. With the hash of its file's
// content in the name, it would be another test after every edit. Making one of each first reports
// Python's refusals once, not in every law.
void TestThese(const std::vector<std::string>& given) {
  std::map<std::string, std::string> resolved;
  bool outside = false;
  for (const std::string& name : given) {
    const bool from_outside = IsOutsidePart(name);
    outside |= from_outside;
    resolved[name] =
        from_outside ? harness::OutsidePartName("sparsifier", name, std::filesystem::current_path())
                     : name;
    const SparsifierDescriptor& descriptor = harness::ResolveSparsifier(resolved[name]);
    descriptor.make(ResolveOptions(name, descriptor.options, {}), 0);
  }
  testing::Subjects& subjects = testing::UnderTest();
  subjects.names.clear();
  for (const auto& [name, full] : resolved) subjects.names.push_back(name);
  subjects.find = [resolved](const std::string& name) -> const SparsifierDescriptor& {
    const auto found = resolved.find(name);
    return harness::ResolveSparsifier(found == resolved.end() ? name : found->second);
  };
  // A plugin chooses its own kernels: this program cannot set their instruction set.
  if (outside) subjects.isas = {ActiveIsa()};
}
#else
void TestThese(const std::vector<std::string>& given) {
  testing::UnderTest().names.clear();
  for (const std::string& name : given) {
    testing::UnderTest().names.emplace_back(FindSparsifier(name).name);
  }
}
#endif

}  // namespace
}  // namespace sparfuse

int main(int argc, char** argv) {
  try {
    const sparfuse::Arguments arguments = sparfuse::Parse(argc, argv);
    if (arguments.help) {
      std::fputs(sparfuse::kUsage, stdout);
      return 0;
    }
    if (arguments.names.empty() && !arguments.device) {
      std::fputs(sparfuse::kUsage, stderr);
      return 2;
    }
    sparfuse::TestOn(arguments.device.value_or("host"));
    if (!arguments.names.empty()) sparfuse::TestThese(arguments.names);
  } catch (const sparfuse::Error& error) {
    std::fprintf(stderr, "sparsifier-conformance: %s\n", error.what());
    return 2;
  }
  ::testing::InitGoogleTest(&argc, argv);
  // googletest has removed its own options; for unknown ones it would print its help and succeed.
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]).starts_with("--gtest_")) {
      std::fprintf(stderr, "sparsifier-conformance: googletest does not know %s\n", argv[i]);
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}
