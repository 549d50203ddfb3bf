#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/experiment/cells.hpp"
#include "harness/records/cell_keys.hpp"
#include "harness/records/private_facts.hpp"
#include "harness/report/explanation.hpp"

namespace sparfuse::harness {

namespace {

using nlohmann::json;

// A cell that may be meant by a side.
struct Candidate {
  const CellResult* result;
  std::map<std::string, json> keys;  // its configuration, tables as paths: "link.gbps"
};

struct Given {
  std::string key, text;
};

struct Side {
  std::string option;  // "--of"
  std::vector<Given> given;
  std::vector<Candidate> candidates;  // the candidates that match `given`

  bool Gives(const std::string& key) const {
    return std::ranges::any_of(given, [&](const Given& each) {
      return each.key == key || key.starts_with(each.key + ".");
    });
  }
};

void Flatten(const std::string& name, const json& value, std::map<std::string, json>& keys) {
  if (!value.is_object()) {
    keys[name] = value;
    return;
  }
  for (const auto& [key, inner] : value.items()) {
    Flatten(name.empty() ? key : name + "." + key, inner, keys);
  }
}

// The cell's value of a key or a path; null if a path leads into a value that is no table.
json Of(const Candidate& candidate, const std::string& key) {
  if (const auto found = candidate.keys.find(key); found != candidate.keys.end())
    return found->second;
  return candidate.result->cell->json.value(key, json());
}

// The value as a user types it after "key=".
std::string Typed(const Candidate& candidate, const std::string& key) {
  const json value = Of(candidate, key);
  if (value.is_null()) return "none";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

json ValueOf(const std::string& text) {
  const json parsed = json::parse(text, nullptr, false);
  return parsed.is_discarded() ? json(text) : parsed;
}

bool Has(const Candidate& candidate, const Given& given) {
  return Matches(ValueOf(given.text), Of(candidate, given.key));
}

// Splits at commas outside of brackets, because a list or a table is one value.
std::vector<Given> ReadGiven(const std::string& option, const std::string& text) {
  std::vector<Given> given;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    if (c != ',' || (depth > 0 && i < text.size())) continue;
    const std::string pair = text.substr(begin, i - begin);
    begin = i + 1;
    if (pair.empty() && text.empty()) continue;
    const std::size_t equals = pair.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == pair.size()) {
      SPARFUSE_THROW(kConfig, fmt::format("{} \"{}\": expected key=value pairs separated by "
                                          "commas, such as method=wfbp,workers=2",
                                          option, pair));
    }
    given.push_back({pair.substr(0, equals), pair.substr(equals + 1)});
  }
  return given;
}

std::vector<std::string> KnownKeys(const std::vector<Candidate>& candidates) {
  std::set<std::string> known;
  for (const auto& name : CellKeyNames()) known.insert(name);
  for (const auto& candidate : candidates) {
    for (const auto& [key, value] : candidate.keys) known.insert(key);
  }
  return {known.begin(), known.end()};
}

std::vector<std::string> ValuesOf(const std::vector<Candidate>& candidates,
                                  const std::string& key) {
  std::vector<std::string> values;
  for (const auto& candidate : candidates) {
    const std::string value = Typed(candidate, key);
    if (std::ranges::find(values, value) == values.end()) values.push_back(value);
  }
  return values;
}

// Keeps the candidates that match the given keys. Throws and names the first key that leaves none.
void Narrow(Side& side) {
  std::vector<std::string> so_far;
  for (const Given& given : side.given) {
    std::vector<Candidate> left;
    std::ranges::copy_if(side.candidates, std::back_inserter(left),
                         [&](const Candidate& candidate) { return Has(candidate, given); });
    if (left.empty()) {
      const auto values = ValuesOf(side.candidates, given.key);
      // Numbers have no nearest name.
      const std::string nearest =
          ValueOf(given.text).is_string() ? NearestName(given.text, values) : "";
      SPARFUSE_THROW(
          kConfig,
          fmt::format("{} {}={}: no cell{} has it: expected one of {}{}", side.option, given.key,
                      given.text,
                      so_far.empty() ? "" : fmt::format(" with {}", fmt::join(so_far, ",")),
                      fmt::join(values, ", "),
                      nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
    }
    side.candidates = std::move(left);
    so_far.push_back(given.key + "=" + given.text);
  }
}

Side ReadSide(const std::string& option, const std::string& text, const ExplainRequest& request,
              const std::vector<PartResult>& results) {
  Side side{option, ReadGiven(option, text), {}};
  const bool modelled = std::ranges::any_of(side.given, [](const Given& given) {
    return given.key == "mode" && given.text == "modelled";
  });
  std::set<std::string> seen;  // a cell of two parts counts once
  for (const PartResult& result : results) {
    const std::string& id = result.part->id;
    const bool twin = IsOfTwins(*result.part);
    const bool named =
        id == request.part || (twin && id == request.part + std::string(kTwinsSuffix) && modelled);
    if (request.part.empty() ? twin && !modelled : !named) continue;
    for (const CellResult& cell : result.cells) {
      if (!seen.insert(cell.cell->config_hash).second) continue;
      Candidate candidate{&cell, {}};
      Flatten("", cell.cell->json, candidate.keys);
      side.candidates.push_back(std::move(candidate));
    }
  }
  const auto known = KnownKeys(side.candidates);
  for (const Given& given : side.given) {
    if (std::ranges::find(known, given.key) != known.end()) continue;
    // A name without dots more likely means a key than a path into a table.
    const auto names = CellKeyNames();
    const bool path = given.key.find('.') != std::string::npos;
    SPARFUSE_THROW(kConfig, fmt::format("{}: unknown key \"{}\"{}", option, given.key,
                                        Suggestion(given.key, path ? known : names)));
  }
  Narrow(side);
  return side;
}

// The fewest keys, the most telling first, that tell all candidates apart.
std::vector<std::string> TellingKeys(const std::vector<Candidate>& candidates) {
  std::vector<std::string> order = {"method",     "workload",        "workers",      "mode",
                                    "link.gbps",  "link.alpha_us",   "link.host_us", "density",
                                    "sparsifier", "batch_per_worker"};
  for (const auto& key : KnownKeys(candidates)) order.push_back(key);
  std::vector<std::string> keys;
  for (;;) {
    std::map<std::vector<std::string>, std::vector<Candidate>> places;
    for (const auto& candidate : candidates) {
      std::vector<std::string> place;
      for (const auto& key : keys) place.push_back(Typed(candidate, key));
      places[place].push_back(candidate);
    }
    const auto crowded =
        std::ranges::find_if(places, [](const auto& place) { return place.second.size() > 1; });
    if (crowded == places.end()) return keys;
    const auto next = std::ranges::find_if(
        order, [&](const std::string& key) { return ValuesOf(crowded->second, key).size() > 1; });
    if (next == order.end())
      SPARFUSE_THROW(kInternal, "two cells with one configuration: " +
                                    CellName(crowded->second.front().result->cell->config));
    keys.push_back(*next);
  }
}

std::string Command(const ExplainRequest& request, const Side& of, const Side& over,
                    const std::vector<std::string>& keys, const Candidate& first,
                    const Candidate& second) {
  std::string command = "sparfuse explain " + request.experiment;
  for (const auto& [side, cell] : {std::pair(&of, &first), std::pair(&over, &second)}) {
    std::vector<std::string> pairs;
    for (const Given& given : side->given) pairs.push_back(given.key + "=" + given.text);
    for (const auto& key : keys) {
      if (!side->Gives(key)) pairs.push_back(key + "=" + Typed(*cell, key));
    }
    const std::string all = fmt::format("{}", fmt::join(pairs, ","));
    const bool quote = all.find_first_of(" []{}\"*?$&;|<>()") != std::string::npos;
    command += fmt::format(" {} {}", side->option, quote ? "'" + all + "'" : all);
  }
  return command + (request.part.empty() ? "" : " --part " + request.part);
}

// The command with its missing keys, if a cell of each side has the same values of them. Prefers a
// pair that has results. "" if the sides do not agree.
std::string Completed(const ExplainRequest& request, const Side& of, const Side& over) {
  std::vector<std::string> keys;
  for (const Side* side : {&of, &over}) {
    for (const auto& key : TellingKeys(side->candidates)) {
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
    }
  }
  std::string any;
  for (const Candidate& first : of.candidates) {
    for (const Candidate& second : over.candidates) {
      const bool agree = std::ranges::all_of(keys, [&](const std::string& key) {
        return (of.Gives(key) && over.Gives(key)) || Typed(first, key) == Typed(second, key);
      });
      if (!agree || first.result == second.result) continue;
      const std::string command = Command(request, of, over, keys, first, second);
      if (first.result->blocks() > 0 && second.result->blocks() > 0) return command;
      if (any.empty()) any = command;
    }
  }
  return any;
}

void NeedOneCellEach(const ExplainRequest& request, const Side& of, const Side& over) {
  std::string message;
  for (const Side* side : {&of, &over}) {
    if (side->candidates.size() == 1) continue;
    message += fmt::format(
        "{}{} {} {} cells; keys that tell them apart:", message.empty() ? "" : "\n", side->option,
        side->given.empty() ? "is missing, and there are" : "leaves", side->candidates.size());
    for (const auto& key : TellingKeys(side->candidates)) {
      message += fmt::format("\n  {}: {}", key, fmt::join(ValuesOf(side->candidates, key), ", "));
    }
  }
  if (message.empty()) return;
  const std::string command = Completed(request, of, over);
  if (!command.empty()) message += "\nfor example: " + command;
  SPARFUSE_THROW(kConfig, message);
}

void NeedResult(const ExplainRequest& request, const Side& side,
                const std::vector<TrialRow>& rows) {
  const CellResult& result = *side.candidates.front().result;
  if (result.OnlyDisturbed()) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("{} {} has only disturbed trials: {}; `sparfuse run {} "
                               "--retry-disturbed` runs it again, --keep-disturbed takes them",
                               side.option, CellName(result.cell->config),
                               result.trials.begin()->second->WhyDisturbed(), request.experiment));
  }
  if (!result.trials.empty()) return;
  const TrialRow* last = nullptr;
  for (const TrialRow& row : rows) {
    if (row.config_hash == result.cell->config_hash) last = &row;
  }
  std::string what;
  if (last == nullptr) {
    what = "has not run";
  } else if (result.failure == "stale") {
    what = "has run only with older revisions of its parts";
  } else if (last->status == "ok" && last->is_left_out()) {
    what = fmt::format(
        "has only trials that were called bad, or whose numbers do not follow from their series "
        "({})",
        fmt::join(last->WhyLeftOut(), "; "));
  } else {
    what = fmt::format("has no result: {}: {} ({}; its log.txt has the rest)", result.failure,
                       FailureMessageIn(request.results / last->directory), last->trial_id);
  }
  SPARFUSE_THROW(kConfig, fmt::format("{} {} {}; `sparfuse run {}` runs it{}", side.option,
                                      CellName(result.cell->config), what, request.experiment,
                                      last == nullptr ? "" : " again"));
}

}  // namespace

ExplainedCells ChooseExplained(const std::vector<Part>& parts,
                               const std::vector<PartResult>& results,
                               const std::vector<TrialRow>& rows, const ExplainRequest& request) {
  std::vector<std::string> ids;
  for (const Part& part : parts) ids.push_back(part.id);
  if (!request.part.empty() && std::ranges::find(ids, request.part) == ids.end()) {
    SPARFUSE_THROW(kConfig, fmt::format("--part: unknown part \"{}\" of {}{}", request.part,
                                        request.experiment, Suggestion(request.part, ids)));
  }
  const Side of = ReadSide("--of", request.of, request, results);
  const Side over = ReadSide("--over", request.over, request, results);
  NeedOneCellEach(request, of, over);
  const ExplainedCells chosen{of.candidates.front().result, over.candidates.front().result};
  if (chosen.of->cell->config_hash == chosen.over->cell->config_hash) {
    SPARFUSE_THROW(kConfig, "--of and --over are the same cell (" +
                                CellName(chosen.of->cell->config) + "): expected two");
  }
  NeedResult(request, of, rows);
  NeedResult(request, over, rows);
  return chosen;
}

}  // namespace sparfuse::harness
