// Tests the naming of a container's image.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "harness/machine/system.hpp"
#include "tests/support/harness_fixture.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

class Container : public ::testing::Test {
 protected:
  Container() { Clear(); }
  ~Container() override { Clear(); }
  static void Clear() {
    for (const char* name : {"SPARFUSE_IMAGE", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"})
      unsetenv(name);
  }
  void Write(const std::string& name, const std::string& text) const {
    fs::create_directories((root_.path() / name).parent_path());
    std::ofstream(root_.path() / name) << text;
  }
  const TemporaryFolder root_;
};

TEST_F(Container, IsNamedByWhoRunsIt) {
  EXPECT_EQ(ContainerImage(root_.path()), "");
  Write(".dockerenv", "");
  EXPECT_EQ(ContainerImage(root_.path()), "unknown");
  Write(".singularity.d/labels.json", "{}");
  setenv("APPTAINER_CONTAINER", "/images/sparfuse.sif", 1);
  EXPECT_EQ(ContainerImage(root_.path()), "sparfuse.sif");
  Write("run/.containerenv", "");  // written by rootless containers
  EXPECT_EQ(ContainerImage(root_.path()), "unknown");
  Write("run/.containerenv",
        "engine=\"podman-4.3\"\nimage=\"localhost/sparfuse:1\"\nimageid=\"0f3e\"\n");
  EXPECT_EQ(ContainerImage(root_.path()), "localhost/sparfuse:1@0f3e");
  setenv("SPARFUSE_IMAGE", "registry/x@sha256:12", 1);
  EXPECT_EQ(ContainerImage(root_.path()), "registry/x@sha256:12");
}

}  // namespace
}  // namespace sparfuse::harness
