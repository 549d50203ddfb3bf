#include "harness/machine/container.hpp"

#include <cstdlib>
#include <fstream>
#include <map>

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

// Of lines NAME="VALUE".
std::map<std::string, std::string> Assignments(const fs::path& file) {
  std::map<std::string, std::string> values;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    std::string value = line.substr(equals + 1);
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"')
      value = value.substr(1, value.size() - 2);
    values[line.substr(0, equals)] = value;
  }
  return values;
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string ContainerImage(const fs::path& root) {
  if (std::string given = Variable("SPARFUSE_IMAGE"); !given.empty()) return given;
  std::error_code none;
  if (const fs::path podman = root / "run/.containerenv"; fs::exists(podman, none)) {
    auto said = Assignments(podman);
    if (said["image"].empty() && said["imageid"].empty()) return "unknown";
    return said["imageid"].empty() ? said["image"] : said["image"] + "@" + said["imageid"];
  }
  if (fs::exists(root / ".singularity.d", none)) {
    for (const char* name : {"APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"}) {
      if (const std::string file = Variable(name); !file.empty())
        return fs::path(file).filename().string();
    }
    return "unknown";
  }
  return fs::exists(root / ".dockerenv", none) ? "unknown" : "";
}

}  // namespace sparfuse::harness
