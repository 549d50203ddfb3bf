// Adds the verbs between systems: what compares them, shows them, and takes trials to and fro.
#include <filesystem>
#include <memory>

#include "harness/catalog/metrics.hpp"
#include "harness/cli/bundle/bundles.hpp"
#include "harness/cli/command_line/command_line.hpp"
#include "harness/cli/imports/import.hpp"
#include "harness/cli/verbs.hpp"
#include "harness/records/cell_keys.hpp"

namespace sparfuse::harness {

void AddCompare(CommandLine& line) {
  const auto request = std::make_shared<CompareVerbRequest>();
  const auto percent = std::make_shared<double>(100 * kSameWithin);
  const auto control = std::make_shared<double>(100 * kControlMoved);
  auto* verb = AddVerb(line, "compare", "what systems say of the same experiments, ratio first",
                       Speaks::kTextOrJson, [=](Program& program) {
                         request->compare.within = *percent / 100;
                         request->compare.control = *control / 100;
                         return CompareVerb(program, *request);
                       });
  verb->add_option("system", request->sides,
                   "two or more: FILE.sparfuse, of a file with several systems FILE.sparfuse:HASH; "
                   "the head of the hash of a system in the store (without any they are listed), "
                   "or here");
  verb->add_option("--experiment", request->compare.experiments,
                   "its id; may be given again (default: all that two of them have)")
      ->allow_extra_args(false);
  verb->add_option("--metric", request->compare.metric,
                   "default: throughput, of convergence trials final_metric")
      ->check(CLI::IsMember(std::vector<std::string>(MetricNames().begin(), MetricNames().end())));
  verb->add_option("--reference", request->compare.reference,
                   "the method that ratios are to (dense)");
  verb->add_option("--figures", request->figures, "a folder for figures, and the numbers in them")
      ->check(NotEmpty("a folder"));
  verb->add_option("--within", *percent, "ratios that are less percent apart agree (5)")
      ->check(CLI::Range(0.1, 100.0));
  verb->add_option("--control", *control,
                   "ratios of a block in which the reference moved by more percent are marked (10)")
      ->check(CLI::Range(0.1, 1000.0));
  verb->add_flag(
      "--transport", request->transport,
      "what the first system's ratios become on the others by the model, and what is left");
  verb->add_option(
          "--profile", request->profiles,
          "SYSTEM=NAME, the name of a profile or declared cluster that the model takes for "
          "it; may be given again (default: all that was measured of its machine)")
      ->allow_extra_args(false);
  auto* plan = verb->add_option("--with-plan", request->with_plan,
                                "force the plans that this system's planners made on the others");
  verb->add_option("--write-experiment", request->write_experiment,
                   "the file that measures them, for `sparfuse run` on the others")
      ->needs(plan);
  verb->add_option("--format", request->format, "md, latex or, numbers in base units, csv")
      ->check(CLI::IsMember({"md", "csv", "latex"}));
  AddKeepDisturbed(verb, line, kKeepInResults);
}

void AddSite(CommandLine& line) {
  const auto request = std::make_shared<SiteRequest>();
  const auto percent = std::make_shared<double>(100 * kSameWithin);
  auto* verb =
      AddVerb(line, "site", "pages over all results: a page a system, a method and a workload",
              Speaks::kTextOrJson, [=](Program& program) {
                request->compare.within = *percent / 100;
                return SiteVerb(program, *request);
              });
  verb->add_option("--out", request->out, "a folder: new, empty, or with an earlier site alone")
      ->check(NotEmpty("a folder"));
  verb->add_option("--reference", request->compare.reference,
                   "the method that ratios are to (dense)");
  verb->add_option("--within", *percent, "ratios that are less percent apart agree (5)")
      ->check(CLI::Range(0.1, 100.0));
  verb->add_flag("--dated", request->dated, "say when the pages were written");
  AddKeepDisturbed(verb, line, kKeepInResults);
}

void AddBundles(CommandLine& line) {
  const auto request = std::make_shared<ExportRequest>();
  auto* give =
      AddVerb(line, "export", "write trials into a bundle for other machines", Speaks::kTextOrJson,
              [=](Program& program) { return ExportVerb(program, *request); });
  give->add_option("experiment", request->names,
                   "an experiment or a paper that the store has trials of, or a .toml file")
      ->required();
  give->add_option("--out", request->out, "FILE.sparfuse")->check(NotEmpty("a file"));
  give->add_flag("--show", request->show,
                 "list the keys that leave this machine, and those that stay");
  const auto files = std::make_shared<std::vector<std::filesystem::path>>();
  auto* take =
      AddVerb(line, "merge", "add the trials of bundles to the store; is resumable",
              Speaks::kTextOrJson, [=](Program& program) { return MergeVerb(program, *files); });
  take->add_option("file", *files, "bundles that `sparfuse export` wrote")->required();
  const auto file = std::make_shared<std::filesystem::path>();
  auto* verify =
      AddVerb(line, "verify", "check a bundle, and make its table again from its trials",
              Speaks::kTextOrJson, [=](Program& program) { return VerifyVerb(program, *file); });
  verify->add_option("file", *file)->required();
}

void AddImport(CommandLine& line) {
  auto* verb = line.app.add_subcommand(
      "import",
      "results of others, to stand beside ours and be compared with nothing; and links that they "
      "measured, into a declared cluster");
  verb->require_subcommand(1);
  const auto add = [&](const char* name, const char* help, const char* file, ImportForm form) {
    const auto request = std::make_shared<ImportRequest>();
    request->form = form;
    auto* take = verb->add_subcommand(name, help);
    take->add_option("file", request->file, file)->required();
    take->add_option("--map", request->map.file,
                     "FILE.toml: what is in which column or line, and what is the same for all")
        ->check(NotEmpty("a file"));
    take->add_option("--set", request->map.values,
                     "KEY=VALUE, the same for all, in the place of the map's; may be given again")
        ->allow_extra_args(false);
    take->add_option("--column", request->map.columns,
                     "KEY=NAME: which column has it; may be given again")
        ->allow_extra_args(false);
    take->add_flag("--dry-run", request->dry_run, "show what would be imported; write nothing");
    take->add_flag("--keep-implausible", request->keep_implausible,
                   "import numbers that cannot be as they are said, with the doubt beside them");
    take->add_flag("--json", line.settings.json, "print JSON");
    take->callback([&line, request] {
      line.act = [request](Program& program) { return ImportVerb(program, *request); };
    });
  };
  add("table", "a table of results, one a row", "comma-separated values", ImportForm::kTable);
  add("log", "the log of a training run", "lines of text, or comma-separated steps",
      ImportForm::kLog);
  AddLinkImport(line, *verb, "nccl-tests",
                "links that nccl-tests measured, into a declared cluster", "nccl-tests");
  AddLinkImport(line, *verb, "osu",
                "links that the OSU micro-benchmarks measured, into a declared cluster", "osu");
  auto* list = verb->add_subcommand("list", "what was imported");
  list->add_flag("--json", line.settings.json, "print JSON");
  list->callback([&line] { line.act = ImportListVerb; });
}

}  // namespace sparfuse::harness
