#include "harness/machine/doctor.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "core/base/error.hpp"
#include "core/device/card.hpp"
#include "core/device/device.hpp"
#include "harness/machine/nvml_api.hpp"
#include "harness/machine/system.hpp"
#include "workloads/catalog/catalog.hpp"

namespace sparfuse::harness {

namespace {

namespace fs = std::filesystem;
using Level = Finding::Level;

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
            version + ": expected Open MPI, which names a lost rank in its report"};
  }
  return {Level::kGood, "MPI", version};
}

// The LibTorch that the dynamic loader finds for the worker.
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

constexpr int kOldestCapability = 75;
constexpr unsigned kBusyPercent = 10;

// The facts of one subject, and its troubles for measurements.
struct Subject {
  std::vector<std::string> facts, troubles;

  // What is a trouble where it is on, if that is known.
  void Say(const std::optional<bool>& on, const char* trouble, const char* fact) {
    if (on) (*on ? troubles : facts).emplace_back(*on ? trouble : fact);
  }

  Finding Found(std::string what) const {
    std::string text = fmt::format("{}", fmt::join(facts, ", "));
    if (troubles.empty()) {
      if (facts.empty()) return {Level::kNote, std::move(what), "not reported by this card"};
      return {Level::kGood, std::move(what), text};
    }
    if (!text.empty()) text += ": ";
    return {Level::kWarning, std::move(what), text + fmt::format("{}", fmt::join(troubles, "; "))};
  }
};

std::string Gibibytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

std::string OnOff(bool on) { return on ? "on" : "off"; }

Finding Driver(const GpuReport& report, const CudaBuild& build) {
  if (!report.driver_found)
    return {build.linked ? Level::kWarning : Level::kNote, "driver", report.problem};
  if (!report.problem.empty()) return {Level::kWarning, "driver", report.problem};
  std::string text = report.driver_version.empty() ? "version unknown" : report.driver_version;
  if (!report.cuda_version) return {Level::kNote, "driver", text};
  text += ", for CUDA up to " + DottedVersion(*report.cuda_version);
  if (*report.cuda_version >= build.runtime) return {Level::kGood, "driver", text};
  const bool same_major = *report.cuda_version / 1000 == build.runtime / 1000;
  return {Level::kWarning, "driver",
          fmt::format("{}: older than the toolkit of this build ({}){}; expected a newer driver",
                      text, DottedVersion(build.runtime),
                      same_major ? ", so code compiled on the card (PTX) cannot run"
                                 : ", so it cannot run this build's programs")};
}

Finding Cuda(const GpuReport& report, const CudaBuild& build) {
  if (!build.linked)
    return {Level::kNote, "CUDA", "not built in: no toolkit was found at configuration"};
  if (build.devices > 0)
    return {Level::kGood, "CUDA", fmt::format("{}; {} device(s)", build.info, build.devices)};
  if (report.cards.empty())
    return {Level::kNote, "CUDA", build.info + "; built in, and no device is visible"};
  return {Level::kWarning, "CUDA",
          fmt::format("{}; built in, and sees none of the {} card(s): check the driver's version "
                      "and CUDA_VISIBLE_DEVICES",
                      build.info, report.cards.size())};
}

// Converts a version like "13.0.96" to 13000.
int VersionNumber(const std::string& text) {
  int major = 0, minor = 0;
  return std::sscanf(text.c_str(), "%d.%d", &major, &minor) == 2 ? 1000 * major + 10 * minor : 0;
}

void AddToolkit(const CudaBuild& build, std::vector<Finding>& findings) {
  if (build.runtime == 0 || build.wheel.empty()) return;
  std::string text = fmt::format("CUDA {}, but LibTorch's libraries are for {}",
                                 DottedVersion(build.runtime), build.wheel);
  const bool older = build.runtime < VersionNumber(build.wheel);
  if (older) text += ": expected a toolkit that is not older than they are";
  findings.push_back({older ? Level::kWarning : Level::kGood, "toolkit", text});
}

Finding StateOfCard(const GpuCard& card, const std::string& what) {
  Subject subject;
  subject.facts.push_back(card.name.empty() ? "a card without a name" : card.name);
  if (card.compute_capability) {
    const int capability = *card.compute_capability;
    subject.facts.push_back(
        fmt::format("compute capability {}.{}", capability / 10, capability % 10));
    if (capability < kOldestCapability) {
      subject.troubles.push_back(
          "kernels are built for 7.5 and newer; only profiles of this card can be used");
    }
  }
  if (card.total_bytes && card.free_bytes) {
    subject.facts.push_back(
        fmt::format("{} of {} free", Gibibytes(*card.free_bytes), Gibibytes(*card.total_bytes)));
  }
  if (!card.bus_id.empty()) subject.facts.push_back("PCI " + card.bus_id);
  if (!card.uuid.empty()) subject.facts.push_back(card.uuid);
  return subject.Found(what);
}

bool Below(const CardClock& clock) {
  return clock.now_mhz && clock.max_mhz && *clock.now_mhz < *clock.max_mhz;
}

void AddClock(const char* name, const CardClock& clock, Subject& subject) {
  if (clock.now_mhz && clock.max_mhz) {
    subject.facts.push_back(fmt::format("{} {} of {} MHz", name, *clock.now_mhz, *clock.max_mhz));
  } else if (clock.now_mhz) {
    subject.facts.push_back(fmt::format("{} {} MHz", name, *clock.now_mhz));
  }
  if (!clock.application_mhz) return;
  const std::string set = fmt::format("{} application clock {} MHz", name, *clock.application_mhz);
  const bool below = clock.max_mhz && *clock.application_mhz < *clock.max_mhz;
  (below ? subject.troubles : subject.facts).push_back(below ? set + ", below maximum" : set);
}

Finding Clocks(const GpuCard& card, const std::string& what) {
  Subject subject;
  AddClock("SM", card.sm, subject);
  AddClock("memory", card.memory, subject);
  // Clocks are low while nothing runs. Only then is a low clock no trouble.
  const bool idle = card.throttle_reasons ? (*card.throttle_reasons & nvml::kIdle) != 0
                                          : card.busy_percent.value_or(1) == 0;
  if (idle) subject.facts.emplace_back("idle");
  const auto words = ThrottleWords(card.throttle_reasons.value_or(0) & ~nvml::kIdle);
  if (!words.empty()) {
    subject.troubles.push_back(fmt::format("held down by {}", fmt::join(words, ", ")));
  } else if (!idle && (Below(card.sm) || Below(card.memory))) {
    subject.troubles.emplace_back("below maximum while it is not idle");
  }
  return subject.Found(what);
}

Finding Power(const GpuCard& card, const std::string& what) {
  Subject subject;
  if (card.power_watts) subject.facts.push_back(fmt::format("{:.0f} W", *card.power_watts));
  if (card.power_limit_watts)
    subject.facts.push_back(fmt::format("limit {:.0f} W", *card.power_limit_watts));
  if (card.temperature_celsius)
    subject.facts.push_back(fmt::format("{} degrees Celsius", *card.temperature_celsius));
  if (card.power_limit_watts && card.power_default_watts &&
      *card.power_limit_watts < *card.power_default_watts) {
    subject.troubles.push_back(
        fmt::format("the limit is below the default of {:.0f} W", *card.power_default_watts));
  }
  return subject.Found(what);
}

Finding Modes(const GpuCard& card, const std::string& what) {
  Subject subject;
  if (card.persistence) subject.facts.push_back("persistence " + OnOff(*card.persistence));
  if (card.compute_mode == nvml::kShared) subject.facts.emplace_back("open to several processes");
  if (card.compute_mode == nvml::kExclusiveProcess) {
    subject.troubles.emplace_back(
        "exclusive to one process: a second rank on it fails (nvidia-smi -c DEFAULT)");
  }
  if (card.compute_mode == nvml::kProhibited)
    subject.troubles.emplace_back("computing is prohibited (nvidia-smi -c DEFAULT)");
  subject.Say(card.mig, "MIG is on: a trial gets a slice of the card", "MIG off");
  subject.Say(card.display, "a display is attached: its drawing takes turns with trials",
              "no display");
  return subject.Found(what);
}

Finding Errors(const GpuCard& card, const std::string& what) {
  Subject subject;
  if (card.ecc) subject.facts.push_back("ECC " + OnOff(*card.ecc));
  const std::uint64_t now = card.ecc_errors.value_or(0);
  const std::uint64_t ever = card.ecc_errors_lifetime.value_or(0);
  if (now > 0) {
    subject.troubles.push_back(
        fmt::format("{} uncorrected error(s) since the driver was loaded", now));
  } else if (card.ecc_errors) {
    subject.facts.emplace_back("no uncorrected error since the driver was loaded");
  }
  if (ever > now) subject.facts.push_back(fmt::format("{} in the card's life", ever));
  return subject.Found(what);
}

std::string Words(const GpuProcess& process) {
  return fmt::format("{}{} ({})", process.pid, process.name.empty() ? "" : " " + process.name,
                     process.bytes ? Gibibytes(*process.bytes) : "memory unknown");
}

Finding Use(const GpuCard& card, const std::string& what) {
  Subject subject;
  if (card.busy_percent && card.memory_busy_percent) {
    subject.facts.push_back(fmt::format("busy {} %, its memory {} % of the time",
                                        *card.busy_percent, *card.memory_busy_percent));
  }
  if (card.used_bytes) subject.facts.push_back(Gibibytes(*card.used_bytes) + " in use");
  if (!card.processes.empty()) {
    std::vector<std::string> list;
    for (const GpuProcess& process : card.processes) list.push_back(Words(process));
    subject.troubles.push_back(fmt::format("other processes: {}", fmt::join(list, ", ")));
    return subject.Found(what);
  }
  // Within a container, the driver does not name processes outside.
  if (card.busy_percent.value_or(0) >= kBusyPercent)
    subject.troubles.emplace_back("a process that is not visible here keeps it busy");
  if (card.used_bytes && card.total_bytes && *card.used_bytes > *card.total_bytes / 100)
    subject.troubles.emplace_back("a process that is not visible here holds memory");
  return subject.Found(what);
}

Finding PlaceOfCard(const GpuCard& card, const std::string& what) {
  Subject subject;
  if (!card.numa_nodes.empty()) subject.facts.push_back("NUMA node " + card.numa_nodes);
  if (!card.cpus.empty()) subject.facts.push_back("nearest cores " + card.cpus);
  return subject.Found(what);
}

Finding Link(const GpuLink& link) {
  const std::string what = fmt::format("GPU {} to GPU {}", link.a, link.b);
  const std::string& kind = link.kind;
  if (kind.starts_with("NV"))
    return {Level::kGood, what, fmt::format("{}: {} NVLink link(s)", kind, kind.substr(2))};
  constexpr std::pair<const char*, const char*> kMeaning[] = {
      {"board", "on one board"},
      {"PIX", "through one PCIe switch"},
      {"PXB", "through several PCIe switches"},
      {"PHB", "through a PCIe host bridge"},
      {"NODE", "through several host bridges of one NUMA node"},
      {"SYS", "from one NUMA node to another"}};
  for (const auto& [name, meaning] : kMeaning) {
    if (kind == name) return {Level::kGood, what, fmt::format("{}: {}", name, meaning)};
  }
  return {Level::kNote, what, "how they are connected is not reported"};
}

// The version of an installed Python distribution in the environment of `root`; "" if missing.
std::string DistributionVersion(const fs::path& root, const std::string& name) {
  for (const fs::path& python : EntriesOf(root / ".venv" / "lib")) {
    for (const fs::path& entry : EntriesOf(python / "site-packages")) {
      const std::string file = entry.filename().string();
      if (file.starts_with(name + "-") && file.ends_with(".dist-info"))
        return file.substr(name.size() + 1, file.rfind(".dist-info") - name.size() - 1);
    }
  }
  return "";
}

}  // namespace

CudaBuild DescribeCudaBuild(const fs::path& root) {
  CudaBuild build;
  build.info = CudaBuildInfo();
  build.linked = !build.info.empty();
  build.runtime = CudaVersions().runtime;
  build.devices = CudaDeviceCount();
  build.wheel = DistributionVersion(root, "nvidia_cuda_runtime");
  return build;
}

std::vector<Finding> GpuFindings(const GpuReport& report, const CudaBuild& build) {
  std::vector<Finding> findings = {Driver(report, build), Cuda(report, build)};
  if (build.linked) {
    const auto at = build.info.find("NCCL ");
    findings.push_back(
        {Level::kGood, "NCCL", at == std::string::npos ? "linked" : build.info.substr(at + 5)});
  } else {
    findings.push_back({Level::kNote, "NCCL", "not built in"});
  }
  AddToolkit(build, findings);
  for (const GpuCard& card : report.cards) {
    const std::string name = fmt::format("GPU {}", card.index);
    findings.push_back(StateOfCard(card, name));
    findings.push_back(Clocks(card, name + " clocks"));
    findings.push_back(Power(card, name + " power"));
    findings.push_back(Modes(card, name + " modes"));
    findings.push_back(Errors(card, name + " memory errors"));
    findings.push_back(Use(card, name + " use"));
    findings.push_back(PlaceOfCard(card, name + " place"));
  }
  for (const GpuLink& link : report.links) findings.push_back(Link(link));
  return findings;
}

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
