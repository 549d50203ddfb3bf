#include "harness/machine/doctor.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "core/base/error.hpp"
#include "harness/machine/doctor_gpu.hpp"
#include "harness/machine/system.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using Level = Finding::Level;

std::string FirstLine(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

Finding Governor() {
  const std::string governor = FirstLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  if (governor.empty()) return {Level::kNote, "CPU governor", "not visible (a virtual machine?)"};
  if (governor == "performance") return {Level::kGood, "CPU governor", governor};
  return {Level::kWarning, "CPU governor",
          governor + ": clocks may change while a trial runs; expected performance"};
}

Finding Load(int cores) {
  double load = 0;
  if (getloadavg(&load, 1) != 1) return {Level::kNote, "load", "unknown"};
  const std::string text = fmt::format("{:.2f} over the last minute, {} cores", load, cores);
  if (load < 0.3) return {Level::kGood, "load", text};
  return {Level::kWarning, "load", text + ": other work disturbs measurements"};
}

Finding Mpi() {
  bool ok = false;
  const std::string version = CommandOutput("mpirun --version 2>/dev/null | head -n 1", ok);
  if (version.empty())
    return {Level::kWarning, "MPI",
            "no mpirun: live trials over mpi cannot run; install openmpi-bin"};
  if (version.find("Open MPI") == std::string::npos) {
    return {Level::kWarning, "MPI",
            version + ": expected Open MPI, whose report names a lost rank"};
  }
  return {Level::kGood, "MPI", version};
}

// Which LibTorch the worker is linked with, as the dynamic loader sees it.
Finding Torch(const fs::path& worker) {
  if (access(worker.c_str(), X_OK) != 0) {
    return {Level::kWarning, "worker",
            worker.string() + " is missing: live trials cannot run; build with LibTorch and MPI"};
  }
  bool ok = false;
  const std::string libraries =
      CommandOutput("ldd " + ShellQuoted(worker.string()) + " 2>/dev/null", ok);
  if (const auto missing = libraries.find(" => not found"); missing != std::string::npos) {
    const std::string line = libraries.substr(0, missing);
    return {Level::kWarning, "worker",
            fmt::format("{} needs {}, which is not found here: live trials cannot run",
                        worker.string(), line.substr(line.find_last_of("\t\n ") + 1))};
  }
  if (libraries.find("libtorch_cuda") != std::string::npos)
    return {Level::kGood, "LibTorch", "linked with CUDA"};
  if (libraries.find("libtorch_cpu") != std::string::npos) {
    return {Level::kNote, "LibTorch", "linked CPU-only: workloads train on the processor"};
  }
  return {Level::kWarning, "LibTorch", worker.string() + " is not linked with it"};
}

std::vector<Finding> Data() {
  std::vector<Finding> findings;
  for (const auto& workload : workloads::Workloads()) {
    if (workload.synthetic()) continue;
    try {
      workloads::CheckData(workload, {});
      findings.push_back({Level::kGood, "data of " + workload.name, "there"});
    } catch (const Error& error) {
      findings.push_back({Level::kWarning, "data of " + workload.name, error.what()});
    }
  }
  return findings;
}

Finding Disk(const fs::path& results) {
  fs::path existing = fs::absolute(results);
  while (!fs::exists(existing)) existing = existing.parent_path();
  std::error_code error;
  const auto space = fs::space(existing, error);
  if (error) return {Level::kWarning, "disk", existing.string() + ": " + error.message()};
  const double gigabytes = static_cast<double>(space.available) / 1e9;
  const std::string text = fmt::format("{:.1f} GB free at {}", gigabytes, existing.string());
  return {gigabytes < 1 ? Level::kWarning : Level::kGood, "disk", text};
}

Finding Python(const fs::path& python) {
  bool ok = false;
  const std::string version =
      CommandOutput(ShellQuoted(python.string()) +
                        " -c 'import jinja2, matplotlib; print(matplotlib.__version__)' 2>&1",
                    ok);
  if (ok) return {Level::kGood, "matplotlib", version + " in " + python.string()};
  return {
      Level::kWarning, "matplotlib",
      python.string() + " cannot import it or Jinja2: figures and reports need ./scripts/setup"};
}

}  // namespace

std::vector<Finding> Examine(const DoctorPaths& paths) {
  const Node machine = DescribeMachine();
  const auto cores = static_cast<int>(*machine.cores);
  std::vector<Finding> findings = {
      {Level::kGood, "processor",
       fmt::format("{}, {} cores, {} GiB", machine.processor, cores, *machine.memory_gib)},
      {cores < 2 ? Level::kWarning : Level::kGood, "cores",
       cores < 2
           ? "1: two ranks share it, every live trial is oversubscribed"
           : fmt::format("trials of up to {} ranks with one thread each are not oversubscribed",
                         cores)},
      Governor(),
      Load(cores),
      Mpi(),
      Torch(paths.worker)};
  for (auto& finding : GpuFindings(ReadGpus(), DescribeCudaBuild(paths.root)))
    findings.push_back(std::move(finding));
  for (auto& finding : Data()) findings.push_back(std::move(finding));
  findings.push_back(Disk(paths.results));
  findings.push_back(Python(paths.python));
  return findings;
}

}  // namespace sparfuse::harness
