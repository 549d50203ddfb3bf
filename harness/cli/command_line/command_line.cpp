#include "harness/cli/command_line/command_line.hpp"

namespace sparfuse::harness {

CLI::Validator NotEmpty(const std::string& what) {
  return CLI::Validator(
      [what](const std::string& given) {
        return given.empty() ? "\"\": expected " + what : std::string();
      },
      "");
}

std::vector<std::string> NamesIn(const std::string& list) {
  std::vector<std::string> names = CLI::detail::split(list, ',');
  for (std::string& name : names) CLI::detail::trim(name);
  return names;
}

CLI::App* AddVerbBelow(CommandLine& line, CLI::App& to, const std::string& name,
                       const std::string& help, Act act) {
  CLI::App* verb = to.add_subcommand(name, help);
  verb->callback([&line, act = std::move(act)] { line.act = act; });
  return verb;
}

CLI::App* AddVerb(CommandLine& line, const char* name, const char* help, Speaks speaks, Act act) {
  CLI::App* verb = AddVerbBelow(line, line.app, name, help, std::move(act));
  if (speaks == Speaks::kTextOrJson) verb->add_flag("--json", line.settings.json, "print JSON");
  return verb;
}

void AddWithMethod(CLI::App* verb, std::vector<std::string>& methods) {
  verb->add_option("--with-method", methods,
                   "NAME or FILE.toml: joins every method axis; may be given again")
      ->allow_extra_args(false);
}

void AddKeepDisturbed(CLI::App* verb, CommandLine& line, const char* help) {
  verb->add_flag_callback(
      "--keep-disturbed", [&line] { line.settings.disturbed = DisturbedTrials::kCount; }, help);
}

void AddSystemOption(CLI::App* verb, CommandLine& line) {
  verb->add_option("--system", line.system,
                   "first digits of a system's hash, of `sparfuse status`: its trials alone "
                   "(default: this machine's system, or the system of the newest trial)")
      ->check(NotEmpty("hexadecimal digits"));
}

void AddLaunch(CLI::App* verb, LaunchOptions& launch) {
  verb->add_option("--launch", launch.launch,
                   "how ranks of live trials are started: local, mpirun, srun or a template's "
                   "FILE.toml (default: local, with a hostfile mpirun)")
      ->check(NotEmpty("local, mpirun, srun or FILE.toml"));
  verb->add_option(
          "--hostfile", launch.hostfile,
          "a hostfile of mpirun (lines \"NAME slots=N\"): the hosts that ranks are started on, "
          "which share the results folder and the program, or get both by --ship")
      ->check(NotEmpty("a file"));
  verb->add_flag(
      "--ship", launch.ship,
      "for hosts that share no folder with this one: send them the worker, its libraries "
      "and data, and take back the files of the ranks");
  verb->add_option("--interface", launch.interface,
                   "the network interface of the ranks, on all hosts")
      ->check(NotEmpty("an interface"));
  verb->add_flag("--oversubscribe", launch.oversubscribe,
                 "on several hosts, allow more threads of ranks on a host than it has cores");
}

void AddTraceOptions(CLI::App* verb, TraceOptions& options) {
  verb->add_option_function<std::string>(
          "--steps",
          [&options](const std::string& by) { options.optimizer_steps = by == "optimizer"; },
          "profiler: ProfilerStep#N (default); optimizer: from one Optimizer.step# to the next")
      ->check(CLI::IsMember({"profiler", "optimizer"}));
  verb->add_option("--group", options.group,
                   "the process group of backward's all-reduces, if there are several");
}

void AddTraceImport(CLI::App* verb, TraceImport& trace) {
  AddTraceOptions(verb, trace.options);
  verb->add_option("--step-ms", trace.step_ms,
                   "time of the same step without the profiler, in milliseconds, to subtract the "
                   "profiler's own cost")
      ->check(CLI::Range(1e-6, 1e9));
  verb->add_option(
      "--alone", trace.alone,
      "a trace of the same step on one rank: shows how much exchanges slow computation");
  verb->add_option("--torch", trace.torch, "the version of PyTorch, which no trace states");
  verb->add_flag("--accept-spread", trace.accept_spread,
                 "accept steps even if one takes more than three times as long as another");
}

}  // namespace sparfuse::harness
