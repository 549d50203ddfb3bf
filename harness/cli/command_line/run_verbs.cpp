// Adds the verbs that run trials and keep the store of them.
#include <memory>

#include "harness/cli/command_line/command_line.hpp"
#include "harness/cli/submit.hpp"
#include "harness/cli/verbs.hpp"

namespace sparfuse::harness {
namespace {

void AddRetryDisturbed(CLI::App* verb, bool& retry) {
  verb->add_flag("--retry-disturbed", retry, "run again what only disturbed trials stand for");
}

void AddSubmit(CLI::App* verb, SubmitRequest& submit, const char* help) {
  auto* flag = verb->add_flag("--submit", submit.submit, help);
  verb->add_option("--sbatch-options", submit.sbatch_options,
                   "of the job, as sbatch takes them: \"--time=2:00:00 --partition=gpu\"")
      ->needs(flag)
      ->check(NotEmpty("options of sbatch"));
  flag->excludes(verb->get_option("--with-method"));
}

}  // namespace

void AddPlan(CommandLine& line) {
  const auto request = std::make_shared<PlanRequest>();
  auto* verb = AddVerb(line, "plan", "what would run, why, and how long it will take",
                       Speaks::kTextOrJson, [=](Program& program) {
                         request->submit.launch = request->launch;
                         return PlanVerb(program, *request);
                       });
  verb->add_option("experiment", request->name, kNames)->required();
  AddWithMethod(verb, request->with_methods);
  auto* why = verb->add_flag("--why", request->why, "say for each trial what the store lacks");
  auto* commands = verb->add_flag("--commands", request->commands,
                                  "print the line that starts each launch, and nothing else");
  commands->excludes(why);
  AddLaunch(verb, request->launch);
  AddSubmit(verb, request->submit,
            "with --commands: print the script of the Slurm job that runs all of it");
  verb->get_option("--submit")->needs(commands);
}

void AddRun(CommandLine& line) {
  const auto request = std::make_shared<RunRequest>();
  auto* verb = AddVerb(line, "run", "run what is missing; ^C is resumable", Speaks::kText,
                       [=](Program& program) {
                         request->submit.launch = request->launch;
                         return RunVerb(program, *request);
                       });
  verb->add_option("experiment", request->names, kNames)->required();
  AddWithMethod(verb, request->with_methods);
  verb->add_flag("--fresh", request->fresh, "run everything again");
  verb->add_flag("--fingerprint,!--no-fingerprint", request->fingerprint,
                 "measure the system itself before and after live trials (default: of long runs "
                 "over several hosts)");
  AddKeepDisturbed(verb, line, kKeepInRuns);
  AddRetryDisturbed(verb, request->retry_disturbed);
  AddLaunch(verb, request->launch);
  verb->add_option("--block", request->block, "its trials alone")->check(CLI::Range(0, 1'000'000));
  AddSubmit(verb, request->submit,
            "give blocks that are not finished, queued or running to Slurm, a job array");
  for (const char* other : {"--fresh", "--retry-disturbed", "--block"})
    verb->get_option("--submit")->excludes(verb->get_option(other));
}

void AddReproduce(CommandLine& line) {
  const auto request = std::make_shared<ReproduceRequest>();
  auto* verb = AddVerb(line, "reproduce", "run, verify, report", Speaks::kText,
                       [=](Program& program) { return ReproduceVerb(program, *request); });
  verb->add_option("experiment", request->name, kNames)->required();
  AddWithMethod(verb, request->with_methods);
  verb->add_flag("--fresh", request->fresh, "run everything again");
  verb->add_flag("--strict", request->strict,
                 "exit 3 where a claim is not reproduced or does not hold");
  verb->add_flag("--modelled", request->modelled,
                 "modelled trials only, with the profiles that they need");
  AddKeepDisturbed(verb, line, "a disturbed trial does not run again at once, and its times count");
  AddRetryDisturbed(verb, request->retry_disturbed);
  AddLaunch(verb, request->launch);
}

void AddIndex(CommandLine& line) {
  const auto request = std::make_shared<IndexRequest>();
  auto* verb =
      AddVerb(line, "index", "the SQLite index over the trials, and the trash", Speaks::kText,
              [=](Program& program) { return IndexVerb(program, *request); });
  auto* what = verb->add_option_group("what");
  what->add_flag("--rebuild", request->rebuild, "make it again from the trial directories");
  what->add_flag("--empty-trash", request->empty_trash,
                 "delete for good the unfinished trials that runs moved to results/trash");
  what->require_option(1, 2);
}

void AddAnnotate(CommandLine& line) {
  struct Request {
    std::string trial, reason;
  };
  const auto request = std::make_shared<Request>();
  auto* verb = AddVerb(
      line, "annotate", "call a trial bad: it stays, and readers leave it out", Speaks::kTextOrJson,
      [=](Program& program) { return AnnotateVerb(program, request->trial, request->reason); });
  verb->add_option("trial", request->trial, "its id, as `sparfuse status --json` prints it")
      ->required();
  verb->add_option("--reason", request->reason)->required();
}

}  // namespace sparfuse::harness
