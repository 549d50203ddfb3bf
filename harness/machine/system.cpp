#include "harness/machine/system.hpp"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "core/device/card.hpp"

namespace sparfuse::harness {
namespace {

// The value of the first line `key : value` of a /proc file; "" if there is none.
std::string ProcValue(const char* file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

std::vector<std::string> GpuModels() {
  std::vector<std::string> models;
  for (const std::filesystem::path& gpu : EntriesOf("/proc/driver/nvidia/gpus"))
    models.push_back(ProcValue((gpu / "information").c_str(), "Model"));
  if (models.empty()) {  // a container may hide that folder
    for (const GpuCard& card : ReadGpus().cards) models.push_back(card.name);
  }
  std::sort(models.begin(), models.end());
  return models;
}

// Reads lines NAME="VALUE".
std::map<std::string, std::string> Assignments(const std::filesystem::path& file) {
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

std::string FirstLine(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::vector<std::filesystem::path> EntriesOf(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> entries;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none))
    entries.push_back(entry.path());
  std::ranges::sort(entries);
  return entries;
}

std::vector<int> UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

double CpuSeconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

std::string CommandOutput(const std::string& command, bool& ok) {
  std::string text;
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), nullptr);
  ok = false;
  if (!pipe) return text;
  std::array<char, 4096> buffer;
  while (const std::size_t n = fread(buffer.data(), 1, buffer.size(), pipe.get())) {
    text.append(buffer.data(), n);
  }
  ok = pclose(pipe.release()) == 0;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::string ShellQuoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

double AvailableMemoryBytes() {
  const double available = 1024 * std::atof(ProcValue("/proc/meminfo", "MemAvailable").c_str());
  const std::string group = "/sys/fs/cgroup/memory.";
  double most = 0, used = 0;  // "max" is no number and gives 0
  std::ifstream(group + "max") >> most;
  std::ifstream(group + "current") >> used;
  if (most <= 0) return available;
  std::ifstream stat(group + "stat");
  std::string key;
  for (double bytes = 0; stat >> key >> bytes;) {
    if (key == "inactive_file") used -= bytes;  // cached files, which are dropped on demand
  }
  return std::clamp(most - used, 0.0, available);
}

Node DescribeMachine() {
  Node node;
  node.processor = ProcValue("/proc/cpuinfo", "model name");
  node.cores = std::max<int>(1, static_cast<int>(UsableCores().size()));
  const double kib = std::atof(ProcValue("/proc/meminfo", "MemTotal").c_str());
  node.memory_gib = std::llround(kib / (1024.0 * 1024.0));
  node.cards = CardsOfModels(GpuModels());
  utsname name{};
  if (uname(&name) == 0) node.kernel = std::string(name.sysname) + " " + name.release;
  return node;
}

System DescribeSystem() {
  System system;
  system.machine = DescribeMachine();
  return system;
}

std::optional<CardStates> DescribeGpus(const GpuReport& report) {
  if (report.cards.empty()) return std::nullopt;
  CardStates states;
  states.driver = report.driver_version;
  if (report.cuda_version) states.cuda = DottedVersion(*report.cuda_version);
  for (const GpuCard& card : report.cards) {
    std::optional<std::vector<std::string>> held_down_by;
    if (card.throttle_reasons) held_down_by = ThrottleWords(*card.throttle_reasons);
    states.cards.push_back({card.index, card.name, card.uuid, card.bus_id, card.sm, card.memory,
                            held_down_by, card.ecc, card.power_limit_watts, card.mig});
  }
  for (const GpuLink& link : report.links) states.topology.push_back({{link.a, link.b}, link.kind});
  return states;
}

SourceState DescribeSource(const std::string& root) {
  if (std::ifstream archive(std::filesystem::path(root) / "archive.json"); archive) {
    const auto made_of = nlohmann::json::parse(archive, nullptr, false);
    if (made_of.is_object() && made_of.contains("source"))
      return SourceIn(made_of["source"], "archive.json");
  }
  bool ok = false;
  const std::string git = "git -C " + ShellQuoted(root) + " ";
  const std::string commit = CommandOutput(git + "rev-parse HEAD 2>/dev/null", ok);
  if (!ok) return {};
  // A trial is built from these files. Others, such as a user's own files, change no result.
  const std::string changes = CommandOutput(
      git +
          "status --porcelain -- CMakeLists.txt CMakePresets.json core baselines workloads "
          "harness 2>/dev/null",
      ok);
  return {commit, !changes.empty()};
}

const std::vector<const char*>& DescribedVariables() {
  static const std::vector<const char*> names = {
      "OMP_NUM_THREADS",
      "MKL_NUM_THREADS",
      "OPENBLAS_NUM_THREADS",
      "CUDA_VISIBLE_DEVICES",
      "NCCL_DEBUG",
      "NCCL_SOCKET_IFNAME",
      "NCCL_ALGO",
      "NCCL_PROTO",
      "NCCL_NTHREADS",
      "NCCL_MIN_NCHANNELS",
      "NCCL_MAX_NCHANNELS",
      "NCCL_BUFFSIZE",
      "NCCL_P2P_DISABLE",
      "NCCL_P2P_LEVEL",
      "NCCL_SHM_DISABLE",
      "NCCL_IB_DISABLE",
      "NCCL_NET_GDR_LEVEL",
      "OMPI_MCA_btl",
      "OMPI_MCA_pml",
      "SPARFUSE_DATA",
  };
  return names;
}

std::map<std::string, std::string> DescribeEnvironment() {
  std::map<std::string, std::string> environment;
  for (const char* name : DescribedVariables()) {
    if (const char* value = std::getenv(name)) environment[name] = value;
  }
  return environment;
}

std::string ContainerImage(const std::filesystem::path& root) {
  if (std::string given = Variable("SPARFUSE_IMAGE"); !given.empty()) return given;
  std::error_code none;
  if (const std::filesystem::path podman = root / "run/.containerenv";
      std::filesystem::exists(podman, none)) {
    auto said = Assignments(podman);
    if (said["image"].empty() && said["imageid"].empty()) return "unknown";
    return said["imageid"].empty() ? said["image"] : said["image"] + "@" + said["imageid"];
  }
  if (std::filesystem::exists(root / ".singularity.d", none)) {
    for (const char* name : {"APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"}) {
      if (const std::string file = Variable(name); !file.empty())
        return std::filesystem::path(file).filename().string();
    }
    return "unknown";
  }
  return std::filesystem::exists(root / ".dockerenv", none) ? "unknown" : "";
}

}  // namespace sparfuse::harness
