// Draws, judges and reports experiments: `sparfuse figure`, `report`, `reproduce`. Writes them as
// JSON and runs the package sparfuse_report of harness/figures on that.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "harness/cli/program.hpp"
#include "harness/experiment/experiment.hpp"
#include "harness/report/results.hpp"

namespace sparfuse::harness {

// The report of the experiment or paper `id` in the results; its folder is made.
std::filesystem::path ReportFile(const Program& program, const std::string& id);

// The folder of the experiment's figures in the results.
std::filesystem::path FiguresFolder(const Program& program, const std::string& id);

// Calls sparfuse_report with arguments that name all files it reads. If `quiet`, its output is not
// shown. Throws Error{kInternal} if it fails.
void RenderFile(const Program& program, std::vector<std::string> arguments, bool quiet);

// Calls sparfuse_report with `verb` ("figure", "report", "parts", "explain") for one experiment.
// Throws Error{kConfig} if nothing has run yet, Error{kInternal} if the package fails.
void DrawExperiment(Program& program, const std::string& verb, const LoadedExperiment& loaded,
                    const std::filesystem::path& out, const std::vector<std::string>& more = {});

// Draws the page of a paper, with the report of each of its experiments beneath. Throws as above.
void DrawPaper(Program& program, const std::string& paper,
               const std::vector<std::unique_ptr<LoadedExperiment>>& loaded,
               const std::filesystem::path& out);

// The list of a report's section "not run": first the entries of the experiment's file, then, part
// by part and mode by mode, the cells without a trial.
std::vector<NotRun> NotRunOf(const Experiment& experiment, const std::vector<PartResult>& results);

// Whether --strict fails. With `modelled_only`, claims about other cells do not count.
bool AnyClaimFails(const std::vector<PartResult>& results, bool modelled_only);

// "64 claims: 4 consistent with the paper, 48 holds"
std::string VerdictCounts(const std::vector<PartResult>& results);

}  // namespace sparfuse::harness
