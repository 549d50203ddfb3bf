// Adds the verbs about trials. They run trials and keep their store, show results, and take results
// from one system to another.
#include "harness/catalog/metrics.hpp"
#include "harness/cli/command_line/command_line.hpp"
#include "harness/cli/verbs.hpp"

namespace sparfuse::harness {

namespace {

void AddRetryDisturbed(CLI::App* verb, bool& retry) {
  verb->add_flag("--retry-disturbed", retry,
                 "run disturbed trials again if no undisturbed one replaces them");
}

void AddSubmit(CLI::App* verb, SubmitRequest& submit, const char* help) {
  auto* flag = verb->add_flag("--submit", submit.submit, help);
  verb->add_option("--sbatch-options", submit.sbatch_options,
                   "options of the job, as sbatch takes them: \"--time=2:00:00 --partition=gpu\"")
      ->needs(flag)
      ->check(NotEmpty("options of sbatch"));
  flag->excludes(verb->get_option("--with-method"));
}

constexpr const char* kWithin = "ratios agree if they are less than this many percent apart (5)";

// An option in percent, from 0.1 to `most`, of a fraction.
void AddPercent(CLI::App* verb, const char* option, double& fraction, double most,
                const char* help) {
  verb->add_option_function<double>(
          option, [&fraction](double percent) { fraction = percent / 100; }, help)
      ->check(CLI::Range(0.1, most));
}

}  // namespace

void AddPlan(CommandLine& line) {
  const auto [verb, request] = AddVerb<PlanRequest>(
      line, "plan", "list the trials that would run, with reasons and the expected time",
      Speaks::kTextOrJson, PlanVerb);
  verb->add_option("experiment", request->name, kNames)->required();
  AddWithMethod(verb, request->with_methods);
  verb->add_flag("--fresh", request->fresh, "plan as if the store were empty");
  verb->add_flag("--modelled", request->modelled,
                 "modelled trials only, with the profiles that they need");
  auto* why = verb->add_flag("--why", request->why, "give the reason for each trial");
  auto* commands = verb->add_flag("--commands", request->commands,
                                  "print the line that starts each launch, and nothing else");
  commands->excludes(why);
  AddLaunch(verb, request->launch);
  AddSubmit(verb, request->submit,
            "with --commands: print the script of the Slurm job that runs all trials");
  verb->get_option("--submit")->needs(commands);
}

void AddRun(CommandLine& line) {
  const auto [verb, request] = AddVerb<RunRequest>(
      line, "run", "run the missing trials; after Ctrl-C the same command goes on", Speaks::kText,
      RunVerb);
  verb->add_option("experiment", request->names, kNames)->required();
  AddWithMethod(verb, request->with_methods);
  verb->add_flag("--fresh", request->fresh, "run everything again");
  verb->add_flag("--fingerprint,!--no-fingerprint", request->fingerprint,
                 "measure the system itself before and after live trials (default: for long runs "
                 "over several hosts)");
  AddKeepDisturbed(verb, line, kKeepInRuns);
  AddRetryDisturbed(verb, request->retry_disturbed);
  AddLaunch(verb, request->launch);
  verb->add_option_function<std::string>(
          "--trace-format",
          [to = request](const std::string& format) { to->kineto = format == "kineto"; },
          "of each trial's traced step: chrome (default) is trace.json; kineto also writes files "
          "for tools of torch.profiler, as `sparfuse trace TRIAL --kineto FOLDER` does")
      ->check(CLI::IsMember({"chrome", "kineto"}));
  verb->add_option("--block", request->block, "run the trials of this block alone")
      ->check(CLI::Range(0, 1'000'000));
  AddSubmit(verb, request->submit,
            "submit blocks that are not finished, queued or running to Slurm, as a job array");
  for (const char* other : {"--fresh", "--retry-disturbed", "--block", "--trace-format"})
    verb->get_option("--submit")->excludes(verb->get_option(other));
}

void AddReproduce(CommandLine& line) {
  const auto [verb, request] = AddVerb<ReproduceRequest>(line, "reproduce", "run, verify, report",
                                                         Speaks::kText, ReproduceVerb);
  verb->add_option("experiment", request->name, kNames)->required();
  AddWithMethod(verb, request->with_methods);
  verb->add_flag("--fresh", request->fresh, "run everything again");
  verb->add_flag("--strict", request->strict,
                 "exit with 3 if a claim is not reproduced or does not hold");
  verb->add_flag("--modelled", request->modelled,
                 "modelled trials only, with the profiles that they need");
  AddKeepDisturbed(verb, line, "do not repeat a disturbed trial at once, and count its times");
  AddRetryDisturbed(verb, request->retry_disturbed);
  AddLaunch(verb, request->launch);
}

void AddIndex(CommandLine& line) {
  const auto [verb, request] = AddVerb<IndexRequest>(
      line, "index", "the SQLite index over the trials, and the trash", Speaks::kText, IndexVerb);
  auto* what = verb->add_option_group("what");
  what->add_flag("--rebuild", request->rebuild, "rebuild the index from the trial directories");
  what->add_flag("--empty-trash", request->empty_trash,
                 "delete for good the unfinished trials that runs moved to results/trash");
  what->require_option(1, 2);
}

void AddAnnotate(CommandLine& line) {
  const auto [verb, request] = AddVerb<AnnotateRequest>(
      line, "annotate", "mark a trial as bad: it stays in the store, and all results leave it out",
      Speaks::kTextOrJson, AnnotateVerb);
  verb->add_option("trial", request->trial, "its id, as `sparfuse status --json` prints it")
      ->required();
  verb->add_option("--reason", request->reason, "the reason, in a sentence")->required();
}

void AddStatus(CommandLine& line) {
  const auto [verb, name] = AddVerb<std::string>(
      line, "status",
      "list complete, missing and failed trials of an experiment, or of the whole store",
      Speaks::kTextOrJson, StatusVerb);
  verb->add_option("experiment", *name, kStored)->check(NotEmpty("an experiment"));
  AddSystemOption(verb, line);
}

void AddTable(CommandLine& line) {
  const auto [verb, request] = AddVerb<TableRequest>(
      line, "table", "print results as text or numbers", Speaks::kTextOrJson, TableVerb);
  verb->add_option("experiment", request->experiment, kStored)->required();
  verb->add_option("--format", request->format,
                   "md, text, latex (with booktabs) or csv (numbers in base units)")
      ->check(CLI::IsMember({"md", "text", "csv", "latex"}));
  auto* pivot = verb->add_option_function<std::vector<std::string>>(
                        "--pivot",
                        [to = request](const std::vector<std::string>& sides) {
                          to->pivot.rows = NamesIn(sides.front());
                          to->pivot.columns = NamesIn(sides.back());
                        },
                        "ROWS COLUMNS: axes of the experiment, such as workload,workers method")
                    ->expected(2)
                    ->check(NotEmpty("axes of the experiment"));
  verb->add_option_function<std::string>(
          "--columns",
          [to = request](const std::string& values) {
            if (!values.empty()) to->pivot.values = NamesIn(values);
          },
          "columns of the table that each cell of the pivot shows, or other metrics: "
          "throughput,vs,n,compute_utilisation (default: the first)")
      ->needs(pivot);
  AddKeepDisturbed(verb, line, kKeepInResults);
  AddSystemOption(verb, line);
}

void AddFigure(CommandLine& line) {
  const auto [verb, request] = AddVerb<DrawRequest>(
      line, "figure", "draw figures as PNG, PDF and SVG", Speaks::kText, FigureVerb);
  verb->add_option("experiment", request->name, kNames)->required();
  verb->add_option("--out", request->out, "folder (default: reports/ID/figures in the results)");
  AddKeepDisturbed(verb, line, kKeepInResults);
}

void AddReport(CommandLine& line) {
  const auto [verb, request] = AddVerb<DrawRequest>(
      line, "report", "write one self-contained HTML file", Speaks::kText, ReportVerb);
  verb->add_option("experiment", request->name, kNames)->required();
  verb->add_option("--out", request->out, "file (default: reports/ID/report.html in the results)");
  AddKeepDisturbed(verb, line, kKeepInResults);
}

void AddSkill(CommandLine& line) {
  const auto [verb, request] = AddVerb<SkillVerbRequest>(
      line, "skill", "compare predictions of published numbers with formulas, in one table",
      Speaks::kText, SkillVerb);
  verb->add_option("experiment", request->names,
                   "experiments or papers (default: validation safusion)");
  verb->add_option("--by", request->by,
                   "also rows for each cluster, workload, number of workers or method");
  verb->add_option("--without", request->without,
                   "KEY=VALUE of numbers to leave out, as in method=ps; may be given again");
  AddKeepDisturbed(verb, line, kKeepInResults);
}

void AddExplain(CommandLine& line) {
  const auto [verb, request] = AddVerb<ExplainVerbRequest>(
      line, "explain", "explain the difference in step time between two cells", Speaks::kTextOrJson,
      ExplainVerb);
  verb->add_option("experiment", request->cells.experiment, kNames)->required();
  verb->add_option("--of", request->cells.of,
                   "the cell: key=value,... (link.gbps=1 for a key of a table)");
  verb->add_option("--over", request->cells.over,
                   "the other cell of the comparison, in the same form");
  verb->add_option("--part", request->cells.part, "the part that has both cells (default: any)");
  verb->add_option("--out", request->out, "folder (default: reports/ID/figures in the results)");
  AddKeepDisturbed(verb, line, kKeepInResults);
}

void AddAdvise(CommandLine& line) {
  const auto [verb, asked] =
      AddVerb<AdviseOptions>(line, "advise",
                             "rank methods by training speed on a cluster, and name the inputs "
                             "that decide",
                             Speaks::kTextOrJson, AdviseVerb);
  auto* workload = verb->add_option("--workload", asked->workload,
                                    "a name of `sparfuse list workloads`, or table:FILE.json; with "
                                    "--trace the table of the traced model");
  auto* trace = verb->add_option(
      "--trace", asked->trace.files,
      "instead of a workload, a file of torch.profiler from your training: its times on the "
      "device and the host replace the cluster's (needs --batch); may be given for each rank");
  trace->allow_extra_args(false);
  AddTraceImport(verb, asked->trace);
  verb->add_option("--cluster", asked->cluster, "a name of `sparfuse list clusters`")->required();
  verb->add_option("--workers", asked->workers,
                   "8,16,64 (default: a quarter, half and all of the cluster's devices)");
  verb->add_option("--density", asked->densities, "0.01,0.001 (default: 0.01)");
  verb->add_option("--methods", asked->methods, "a,b,... (default: all)")->delimiter(',');
  verb->add_option("--sparsifier", asked->sparsifier,
                   "a sparsifier instead of the methods' own, for methods that allow another");
  auto* batch = verb->add_option("--batch", asked->batch,
                                 "samples of a worker's step (default: the workload's)");
  trace->needs(batch);
  verb->callback([&line, workload, trace, given = asked] {
    if (workload->count() + trace->count() == 0) throw CLI::RequiredError("--workload, or --trace");
    line.act = [given](Program& program) { return AdviseVerb(program, *given); };
  });
  verb->add_option("--link", asked->link,
                   "GBPS:ALPHA_US, a link between nodes instead of the cluster's");
  auto* toml = verb->add_flag("--toml", asked->toml, "print an experiment file of the same cells");
  toml->excludes(verb->get_option("--json"));
  verb->add_flag("--phase", asked->phase,
                 "also draw the fastest method over bandwidth and workers: PNG, PDF and SVG");
  verb->add_flag("--utilisation", asked->utilisation,
                 "also list the rates of network cards at which methods compute for 50 to 99 % of "
                 "a step; drawn with --out");
  verb->add_option("--out", asked->out,
                   "folder of the drawings (default: the working directory, with --phase)");
}

void AddTrace(CommandLine& line) {
  const auto [verb, request] = AddVerb<TraceRequest>(
      line, "trace", "print facts of a training step from files of torch.profiler",
      Speaks::kTextOrJson, TraceVerb);
  verb->add_option("files", request->files,
                   "files of export_chrome_trace, .json or .json.gz; for a training with several "
                   "ranks, one file for each")
      ->required();
  AddTraceOptions(verb, request->options);
  verb->add_option(
      "--kineto", request->kineto,
      "FOLDER: write the traced step of a trial of sparfuse (its id or folder, instead of files) "
      "as torch.profiler would, one file a rank, for HolisticTraceAnalysis and Perfetto");
}

void AddCompare(CommandLine& line) {
  const auto [verb, request] = AddVerb<CompareVerbRequest>(
      line, "compare", "compare systems in the same experiments, ratios first", Speaks::kTextOrJson,
      CompareVerb);
  verb->add_option(
      "system", request->sides,
      "two or more of: FILE.sparfuse, or FILE.sparfuse:HASH if the file has several systems; the "
      "first digits of the hash of a system in the store (without any they are listed); here");
  verb->add_option("--experiment", request->compare.experiments,
                   "an experiment's id; may be given again (default: all that two systems share)")
      ->allow_extra_args(false);
  verb->add_option("--metric", request->compare.metric,
                   "the metric (default: throughput, for convergence trials final_metric)")
      ->check(CLI::IsMember(std::vector<std::string>(MetricNames().begin(), MetricNames().end())));
  verb->add_option("--reference", request->compare.reference,
                   "the method that ratios are relative to (dense)");
  verb->add_option("--figures", request->figures, "a folder for figures, and the numbers in them")
      ->check(NotEmpty("a folder"));
  AddPercent(verb, "--within", request->compare.within, 100, kWithin);
  AddPercent(verb, "--control", request->compare.control, 1000,
             "mark ratios of a block if its reference changed by more than this many percent (10)");
  verb->add_flag(
      "--transport", request->transport,
      "carry the first system's ratios over to the others by the model, and show the residual");
  verb->add_option(
          "--profile", request->profiles,
          "SYSTEM=NAME, the profile or declared cluster that the model takes for a system; may be "
          "given again (default: all profiles that were measured on that system)")
      ->allow_extra_args(false);
  auto* plan = verb->add_option("--with-plan", request->with_plan,
                                "force the plans of this system's planners onto the other systems");
  verb->add_option(
          "--write-experiment", request->write_experiment,
          "write the experiment that measures these plans, for `sparfuse run` on the other systems")
      ->needs(plan);
  verb->add_option("--format", request->format, "md, latex or csv (numbers in base units)")
      ->check(CLI::IsMember({"md", "csv", "latex"}));
  AddKeepDisturbed(verb, line, kKeepInResults);
}

void AddSite(CommandLine& line) {
  const auto [verb, request] = AddVerb<SiteRequest>(
      line, "site", "write pages on all results: one for each system, method and workload",
      Speaks::kTextOrJson, SiteVerb);
  verb->add_option("--out", request->out, "a folder: new, empty, or with only an earlier site")
      ->check(NotEmpty("a folder"));
  verb->add_option("--reference", request->reference,
                   "the method that ratios are relative to (dense; if the store has none, the "
                   "reference of its experiments)");
  AddPercent(verb, "--within", request->compare.within, 100, kWithin);
  verb->add_flag("--dated", request->dated, "print the date on the pages");
  AddKeepDisturbed(verb, line, kKeepInResults);
}

void AddBundles(CommandLine& line) {
  const auto [give, request] =
      AddVerb<ExportRequest>(line, "export", "write trials into a bundle for other machines",
                             Speaks::kTextOrJson, ExportVerb);
  give->add_option("experiment", request->names,
                   "an experiment or a paper with trials in the store, or a .toml file")
      ->required();
  give->add_option("--out", request->out, "FILE.sparfuse")->check(NotEmpty("a file"));
  give->add_flag("--show", request->show,
                 "list the keys that leave this machine, and the keys that stay");
  const auto [take, taken] = AddVerb<MergeVerbRequest>(
      line, "merge",
      "add the trials of bundles to the store; after a kill the same command goes on",
      Speaks::kTextOrJson, MergeVerb);
  take->add_option("file", taken->files, "bundles that `sparfuse export` wrote")->required();
  take->add_flag("--take-annotations", taken->take_annotations,
                 "also leave out trials that ran here if others mark them as bad");
  const auto [verify, file] = AddVerb<std::filesystem::path>(
      line, "verify", "check a bundle, and compute its table again from its trials",
      Speaks::kTextOrJson, VerifyVerb);
  verify->add_option("file", *file, "a bundle that `sparfuse export` wrote")->required();
}

void AddImport(CommandLine& line) {
  auto* verb =
      line.app.add_subcommand("import",
                              "import results of others, which tables list and no ratio "
                              "uses; or links that they measured, into a declared cluster");
  verb->require_subcommand(1);
  const auto add = [&](const char* name, const char* help, const char* file, ImportForm form) {
    const auto [take, request] = AddVerbBelow<ImportRequest>(line, *verb, name, help, ImportVerb);
    request->form = form;
    take->add_option("file", request->file, file)->required();
    take->add_option(
            "--map", request->map.file,
            "FILE.toml: the keys that columns or lines hold, and the values that all results share")
        ->check(NotEmpty("a file"));
    take->add_option("--encoding", request->map.encoding,
                     "utf-8 (UTF-16 is known by its mark) or latin-1, instead of the map's")
        ->check(CLI::IsMember({"utf-8", "latin-1"}));
    take->add_option(
            "--set", request->map.values,
            "KEY=VALUE, the same for all results, instead of the map's; may be given again")
        ->allow_extra_args(false);
    take->add_option("--column", request->map.columns,
                     "KEY=NAME: the column that holds the key; may be given again")
        ->allow_extra_args(false);
    take->add_flag("--dry-run", request->dry_run,
                   "show the results of the import, and write nothing");
    take->add_flag("--keep-implausible", request->keep_implausible,
                   "also import implausible numbers, each with its doubt");
    take->add_flag("--json", line.settings.json, "print JSON");
  };
  add("table", "a table with one result in each row", "comma-separated values", ImportForm::kTable);
  add("log", "the log of a training run", "lines of text, or comma-separated steps",
      ImportForm::kLog);
  AddLinkImport(line, *verb, "nccl-tests",
                "links that nccl-tests measured, into a declared cluster", "nccl-tests");
  AddLinkImport(line, *verb, "osu",
                "links that the OSU micro-benchmarks measured, into a declared cluster", "osu");
  const auto [take, kineto] = AddVerbBelow<KinetoImport>(
      line, *verb, "kineto", "a training step that torch.profiler traced, into a declared cluster",
      ImportKinetoVerb);
  take->add_option("cluster", kineto->cluster,
                   "the cluster, the NAME of results/profiles/NAME.toml")
      ->required();
  take->add_option("files", kineto->trace.files,
                   "files of export_chrome_trace, .json or .json.gz; for several ranks a file each")
      ->required();
  take->add_option("--batch", kineto->trace.batch, "samples of a rank's step")
      ->required()
      ->check(CLI::Range(1, 1'000'000));
  take->add_option("--workload", kineto->trace.workload,
                   "table:FILE.json, which gives names and multiply-accumulates of the tensors");
  take->add_option(
      "--name", kineto->trace.name,
      "name of the model table that is written (default: --workload's, or the file's)");
  AddTraceImport(take, kineto->trace);
  take->add_option("--reference", kineto->trace.reference,
                   "the method of the traced step, such as ddp: the step of several ranks becomes "
                   "a [[reference]], which calibrates");
  take->add_flag("--print", kineto->print, "write nothing: print the cluster's file");
  AddVerbBelow(line, *verb, "list", "list imported results", ImportListVerb)
      ->add_flag("--json", line.settings.json, "print JSON");
}

}  // namespace sparfuse::harness
