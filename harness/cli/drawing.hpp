// Draws figures and reports: writes experiments as JSON and runs the package sparfuse_report of
// harness/figures on them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "harness/cli/program.hpp"

namespace sparfuse::harness {

// The report of the experiment or paper `id` in the results; its folder is made.
std::filesystem::path ReportFile(const Program& program, const std::string& id);

// The folder of the experiment's figures in the results.
std::filesystem::path FiguresFolder(const Program& program, const std::string& id);

// Calls sparfuse_report with arguments that name all that it reads; what it prints is left out if
// `quiet`. Throws Error{kInternal} where it fails.
void RenderFile(const Program& program, const std::vector<std::string>& arguments, bool quiet);

// Calls sparfuse_report with `verb` ("figure", "report", "parts", "explain") for one experiment.
// Throws Error{kConfig} where nothing has run yet, Error{kInternal} where the package fails.
void DrawExperiment(const Program& program, const std::string& verb, const LoadedExperiment& loaded,
                    const std::filesystem::path& out, const std::vector<std::string>& more = {});

// Draws the page of a paper, with the report of each of its experiments beneath. Throws as above.
void DrawPaper(const Program& program, const std::string& paper,
               const std::vector<std::unique_ptr<LoadedExperiment>>& loaded,
               const std::filesystem::path& out);

}  // namespace sparfuse::harness
