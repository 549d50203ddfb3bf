// Adds the verbs that look at the machines which run trials.
#include <memory>

#include "harness/cli/command_line/command_line.hpp"
#include "harness/cli/system/system.hpp"
#include "harness/cli/verbs.hpp"

namespace sparfuse::harness {
namespace {

void AddSystemFingerprint(CommandLine& line, CLI::App* system) {
  const auto asked = std::make_shared<SystemFingerprint>();
  auto* verb = system->add_subcommand(
      "fingerprint",
      "measure links, collectives, memory, a product and a selection, about ten seconds, and keep "
      "them as results/systems/NAME.fingerprint.json");
  verb->add_option("name", asked->name, "of the file, and for cluster = \"NAME\"")
      ->capture_default_str();
  verb->add_option("--ranks", asked->ranks, "measured at once (default: two a host)")
      ->check(CLI::Range(1, 65'536));
  verb->add_option("--ranks-per-node", asked->ranks_per_node,
                   "default: all of one host; over several hosts, spread over all")
      ->check(CLI::Range(1, 1024));
  verb->add_option("--threads", asked->threads, "threads of a rank")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  verb->add_option("--device", asked->device, "where single operations run: cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  verb->add_option("--transport", asked->transport, "what moves messages: mpi or nccl")
      ->check(CLI::IsMember({"mpi", "nccl"}))
      ->capture_default_str();
  verb->add_option("--link", asked->link,
                   "GBPS:ALPHA_US, a shaped link in the place of the machine's own; with another "
                   ":GBPS:ALPHA_US those within nodes of --ranks-per-node");
  AddLaunch(verb, asked->launch);
  verb->add_flag("--json", line.settings.json, "print JSON");
  verb->callback([&line, asked] {
    line.act = [asked](Program& program) { return SystemFingerprintVerb(program, *asked); };
  });
}

}  // namespace

void AddSystem(CommandLine& line) {
  auto* verb = line.app.add_subcommand(
      "system",
      "systems: describe the nodes that run jobs together, check what is described, measure them");
  verb->require_subcommand(1);
  const auto wanted = std::make_shared<SystemInit>();
  auto* init = verb->add_subcommand(
      "init", "write what is detected of this node to results/systems/NAME.toml, or add it there");
  init->add_option("name", wanted->name, "of results/systems/NAME.toml")->capture_default_str();
  init->add_flag("--print", wanted->print, "print this node's part and write nothing");
  init->callback([&line, wanted] {
    line.act = [wanted](Program& program) { return SystemInitVerb(program, *wanted); };
  });
  const auto name = std::make_shared<std::string>(wanted->name);
  auto* check = verb->add_subcommand(
      "check", "whether all is written, and one of the nodes described is as this one");
  check->add_option("name", *name, "of results/systems/NAME.toml")->capture_default_str();
  check->add_flag("--json", line.settings.json, "print JSON");
  check->callback([&line, name] {
    line.act = [name](Program& program) { return SystemCheckVerb(program, *name); };
  });
  AddSystemFingerprint(line, verb);
}

void AddDoctor(CommandLine& line) {
  const auto request = std::make_shared<DoctorRequest>();
  auto* verb = AddVerb(line, "doctor",
                       "what this machine can run, and what would disturb a measurement; with "
                       "--launch what trials would meet on its hosts",
                       Speaks::kTextOrJson, [=](Program& program) {
                         request->hosts =
                             !request->launch.launch.empty() || !request->launch.hostfile.empty();
                         return DoctorVerb(program, *request);
                       });
  AddLaunch(verb, request->launch);
  verb->add_option("--ranks", request->ranks, "of --launch (default: one a host)")
      ->check(CLI::Range(1, 65'536));
}

}  // namespace sparfuse::harness
