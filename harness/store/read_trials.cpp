#include "harness/store/read_trials.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "core/base/cpu.hpp"
#include "core/base/error.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/records/trial_checks.hpp"
#include "harness/store/evidence/recomputed.hpp"
#include "harness/store/patience.hpp"

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kBatch = 256;  // files whose content is in memory at once, for two batches

// "" or how trial.json contradicts the trial's original configuration.
std::string WhatItsConfigContradicts(const fs::path& directory, const json& trial) {
  const fs::path file = directory / "config.json";
  if (!SomethingIsAt(file)) return "";
  try {
    return WhatConfigContradicts(ReadJsonFile(file), trial, file.native());
  } catch (const Error& error) {
    return error.what();
  }
}

ReadTrial Read(const fs::path& trials, const TrialFile& file) {
  ReadTrial read;
  const fs::path directory = trials / file.place;
  const auto leave_out = [&](const std::string& where, const std::string& why) {
    read.problem = fmt::format("{}: {}; left out", where, why);
  };
  try {
    const std::string name = (directory / "trial.json").string();
    const json stored = ReadJsonFile(name, "layout");  // the layout is a third of it, and in no row
    if (IsOlderTrial(stored)) {
      read.older = true;
      return read;
    }
    const Trial trial = TrialOf(stored, name);
    if (trial.trial_id != file.place) {
      leave_out(name, fmt::format("trial_id: expected \"{}\", its place", file.place));
    } else if (const std::string wrong = WhatItsConfigContradicts(directory, stored);
               !wrong.empty()) {
      leave_out(directory.string(), wrong);
    } else {
      read.row = RowOf(trial);
      read.row.contradiction = RecomputeMetrics(trial, directory).differs;
      read.row.stamp = file.stamp;
      // The index needs these texts. They are made here, where several threads run.
      for (const StoredJson* text : {&read.row.config, &read.row.system, &read.row.provenance,
                                     &read.row.revisions, &read.row.quiet})
        text->Text();
    }
  } catch (const Error& error) {
    read.problem = fmt::format("{}; left out", error.what());
  } catch (const std::exception& error) {  // such an error does not name the file
    leave_out((directory / "trial.json").string(), error.what());
  }
  return read;
}

std::vector<ReadTrial> ReadAtOnce(const fs::path& trials, std::span<const TrialFile> files) {
  std::vector<ReadTrial> read(files.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i; (i = next.fetch_add(1)) < files.size();) read[i] = Read(trials, files[i]);
  };
  const auto most = static_cast<std::size_t>(Processors());
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < std::min(most, files.size() / 8 + 1); ++i) others.emplace_back(work);
  work();
  others.clear();  // joins
  return read;
}

}  // namespace

void ReadTrialFiles(const fs::path& trials, std::span<const TrialFile> files,
                    const std::function<void(const TrialFile&, ReadTrial)>& use) {
  Patience patience;
  const auto batch = [&](std::size_t begin) {
    return files.subspan(begin, std::min(kBatch, files.size() - begin));
  };
  // Reads the next batch while the caller uses one.
  std::vector<ReadTrial> read = ReadAtOnce(trials, batch(0));
  for (std::size_t begin = 0; begin < files.size(); begin += kBatch) {
    std::future<std::vector<ReadTrial>> next;
    if (begin + kBatch < files.size()) {
      next = std::async(std::launch::async,
                        [&, begin] { return ReadAtOnce(trials, batch(begin + kBatch)); });
    }
    for (std::size_t i = 0; i < read.size(); ++i) use(files[begin + i], std::move(read[i]));
    patience.Note(begin + read.size(), "trials read", files.size());
    if (next.valid()) read = next.get();
  }
}

}  // namespace sparfuse::harness
