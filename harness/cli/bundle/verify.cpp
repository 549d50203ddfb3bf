// Checks a bundle and prints the table that its trials make: `sparfuse verify`.
#include "harness/bundle/verify.hpp"

#include <fmt/format.h>

#include "harness/cli/bundle/bundles.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

std::string ValueText(const json& metric) {
  std::string text = fmt::format("{:.4g}", metric["value"].get<double>());
  if (metric["low"] != metric["high"] && metric["low"].is_number() && metric["high"].is_number()) {
    text +=
        fmt::format(" [{:.4g}, {:.4g}]", metric["low"].get<double>(), metric["high"].get<double>());
  }
  return fmt::format("{} {}, {} block(s)", text, metric["unit"].get<std::string>(),
                     metric["n"].dump());
}

void PrintTable(const json& table) {
  std::string part;
  for (const json& row : table) {
    const auto text = [&](const char* key) { return row[key].get<std::string>(); };
    const std::string of = fmt::format(
        "{}/{} on {} (system {})", text("experiment"), text("part"),
        text("hardware").empty() ? "hardware that is not known" : text("hardware"), text("system"));
    if (of != part) fmt::print("{}\n", part = of);
    const json& metrics = row["metrics"];
    std::string value = row["trials"].empty()
                            ? "no trial counts"
                            : fmt::format("{} trial(s), all disturbed: their times do not count",
                                          row["trials"].size());
    for (const char* name : {"step_seconds", "throughput"}) {
      if (metrics.contains(name) && metrics[name]["value"].is_number())
        value = fmt::format("{} {}", name, ValueText(metrics[name]));
    }
    fmt::print("  {} {} w{} {}: {}\n", text("method"), text("workload"), row["workers"].dump(),
               text("config"), value);
    for (const auto& [id, why] : row["set_aside"].items())
      fmt::print("    set aside: {} ({})\n", id, why.get<std::string>());
  }
}

}  // namespace

int VerifyVerb(Program& program, const std::filesystem::path& file) {
  const Bundle bundle(file);
  const Verification verification = Verify(bundle);
  for (const std::string& problem : verification.problems)
    fmt::print(stderr, "error: {}\n", problem);
  const bool good = verification.problems.empty();
  if (program.json()) {
    PrintJson({{"file", file.string()},
               {"written_by", ToJson(bundle.written_by())},
               {"problems", verification.problems},
               {"trials", verification.trials},
               {"table", verification.table}});
  } else {
    PrintTable(verification.table);
    fmt::print(
        "{}: {} trial(s), {}\n", file.string(), bundle.content().trials.size(),
        good ? "every byte is as it was exported, metrics are those of the steps, and the table is "
               "that of the trials"
             : fmt::format("{} problem(s)", verification.problems.size()));
  }
  return good ? kDone : kTrialFailed;
}

}  // namespace sparfuse::harness
