#include "harness/report/verdicts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <utility>

#include "harness/records/record.hpp"
#include "harness/report/tables/table.hpp"

namespace sparfuse::harness {

using nlohmann::json;

template <>
const std::vector<RecordKey<JudgedSetting>>& KeysOf<JudgedSetting>() {
  using S = JudgedSetting;
  static const std::vector<RecordKey<S>> kKeys = {
      Key<&S::mark, S>({.name = "mark"}), Key<&S::look, S>({.name = "look"}),
      Key<&S::words>({.name = "words"}),  Key<&S::value>({.name = "value"}),
      Key<&S::ours>({.name = "ours"}),    Key<&S::verdict>({.name = "verdict"})};
  return kKeys;
}

template <>
const std::vector<RecordKey<JudgedSentence>>& KeysOf<JudgedSentence>() {
  using S = JudgedSentence;
  static const std::vector<RecordKey<S>> kKeys = {
      Key<&S::mark, S>({.name = "mark"}),      Key<&S::look, S>({.name = "look"}),
      Key<&S::sentence>({.name = "sentence"}), Key<&S::facts>({.name = "facts"}),
      Key<&S::settings>({.name = "settings"}), Key<&S::many>({.name = "many"}),
      Key<&S::summary>({.name = "summary"}),   Key<&S::table>({.name = "table"})};
  return kKeys;
}

template <>
const std::vector<RecordKey<JudgedGroup>>& KeysOf<JudgedGroup>() {
  using G = JudgedGroup;
  static const std::vector<RecordKey<G>> kKeys = {Key<&G::id>({.name = "id"}),
                                                  Key<&G::title>({.name = "title"}),
                                                  Key<&G::sentences>({.name = "sentences"})};
  return kKeys;
}

template <>
const std::vector<RecordKey<JudgedClaims>>& KeysOf<JudgedClaims>() {
  using C = JudgedClaims;
  static const std::vector<RecordKey<C>> kKeys = {
      Key<&C::claims>({.name = "claims"}), Key<&C::summary>({.name = "summary"}),
      Key<&C::meanings>({.name = "meanings"}), Key<&C::groups>({.name = "groups"})};
  return kKeys;
}

namespace {

constexpr std::size_t kMany = 12;  // settings of a sentence; of more, a row has the marks alone

struct Kind {
  Verdict verdict;
  const char* mark;
  const char* look;
  const char* word;
  const char* meaning;
};

// The worst first.
const std::array kKinds = {
    Kind{Verdict::kInvalid, "!", "alarm", "invalid", "a correctness check failed"},
    Kind{Verdict::kNotReproduced, "✗", "alarm", "not reproduced", "the other direction"},
    Kind{Verdict::kDoesNotHold, "✗", "alarm", "does not hold",
         "the whole interval is on the other side"},
    Kind{Verdict::kInconclusive, "?", "part", "inconclusive",
         "the interval has both answers in it"},
    Kind{Verdict::kDirectionOnly, "≈", "part", "direction only",
         "the stated direction, another size"},
    Kind{Verdict::kDisturbed, "~", "part", "not decided",
         "the trials that it needs were disturbed"},
    Kind{Verdict::kNotRun, "–", "quiet", "not run", "a cell has no trial that counts"},
    Kind{Verdict::kConsistentModelled, "✓", "good", "consistent",
         "the same of a modelled or emulated number"},
    Kind{Verdict::kReproduced, "✓", "good", "reproduced",
         "the interval is within 8 % of the stated number"},
    Kind{Verdict::kHolds, "✓", "good", "holds", "the whole interval is on the expected side"}};
static_assert(kReproducedWithin == 0.08, "the meaning of \"reproduced\" says so");

const Kind& KindOf(const ClaimResult& judged) {
  return *std::ranges::find(kKinds, judged.verdict, &Kind::verdict);
}

using Claims = std::vector<ClaimResult>;

void SortWorstFirst(Claims& claims) {
  std::ranges::stable_sort(claims, {}, [](const ClaimResult& claim) { return &KindOf(claim); });
}

// Of each kind among the claims, the worst first: how many there are.
std::vector<std::pair<const Kind*, std::size_t>> Counted(const Claims& claims) {
  std::vector<std::pair<const Kind*, std::size_t>> counted;
  for (const Kind& kind : kKinds) {
    const auto count = std::ranges::count(claims, kind.verdict, &ClaimResult::verdict);
    if (count > 0) counted.emplace_back(&kind, static_cast<std::size_t>(count));
  }
  return counted;
}

std::string Summary(const Claims& claims) {
  std::vector<std::string> words;
  for (const auto& [kind, count] : Counted(claims))
    words.push_back(fmt::format("{} {} {}", kind->mark, count, kind->word));
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string Meanings(const Claims& claims) {
  std::vector<std::string> words;
  for (const auto& [kind, count] : Counted(claims))
    words.push_back(fmt::format("{} {}: {}.", kind->mark, kind->word, kind->meaning));
  return fmt::format("{}", fmt::join(words, " "));
}

void AddOnce(std::vector<std::string>& words, std::string word) {
  if (std::ranges::find(words, word) == words.end()) words.push_back(std::move(word));
}

// The combination that for_each gives a claim, else those keys of its cells in which it differs
// from others of its sentence.
std::string SettingOf(const ClaimResult& judged, const Claims& others) {
  if (!judged.claim->setting.empty()) return judged.claim->setting;
  std::vector<std::string> words;
  for (const auto side : {&Claim::of, &Claim::over}) {
    const json& cell = judged.claim->*side;
    for (const auto& [key, value] : cell.items()) {
      const bool differs = std::ranges::any_of(others, [&, &name = key, &own = value](auto& other) {
        return (other.claim->*side).value(name, json()) != own;
      });
      if (differs)
        AddOnce(words, value.is_string() ? value.get<std::string>() : key + " " + value.dump());
    }
  }
  return words.empty() ? WordsOf(judged).expected : fmt::format("{}", fmt::join(words, ", "));
}

std::vector<std::string> FactsOf(const Claims& claims) {
  std::vector<std::string> expected, modes;
  for (const ClaimResult& claim : claims) {
    AddOnce(expected, WordsOf(claim).expected);
    AddOnce(modes, claim.mode);
  }
  const auto [least, most] = std::ranges::minmax(claims, {}, &ClaimResult::n);
  return {claims.front().claim->metric,
          "expected " + (expected.size() == 1 ? expected.front() : "by setting"),
          fmt::format("{}", fmt::join(modes, ", ")),
          least.n == most.n ? fmt::format("n = {}", least.n)
                            : fmt::format("n = {} to {}", least.n, most.n)};
}

// `claims` are of one sentence, the worst first.
JudgedSentence SentenceOf(const Claims& claims) {
  const ClaimResult& first = claims.front();
  JudgedSentence made{
      {KindOf(first).mark, KindOf(first).look}, {}, FactsOf(claims), {}, {}, {}, {}};
  made.sentence = claims.size() == 1 ? first.claim->quote : first.claim->sentence;
  made.many = claims.size() > kMany;
  made.summary = Summary(claims);
  made.table.columns = {"setting", "expected", "ours (95 %)", "n", "mode", "verdict"};
  made.table.alignment = "llrrll";
  for (const ClaimResult& claim : claims) {
    const ClaimWords words = WordsOf(claim);
    const std::string setting = SettingOf(claim, claims);
    made.settings.push_back({{KindOf(claim).mark, KindOf(claim).look},
                             setting,
                             words.ours.substr(0, words.ours.find(" [")),
                             words.ours,
                             words.verdict});
    made.table.rows.push_back(
        {setting, words.expected, words.ours, std::to_string(claim.n), claim.mode, words.verdict});
  }
  return made;
}

// Neighbours of one sentence and metric share a row.
std::vector<Claims> BySentence(const Claims& claims) {
  std::vector<Claims> sentences;
  for (const ClaimResult& claim : claims) {
    const Claim* before = sentences.empty() ? nullptr : sentences.back().front().claim;
    const bool same = before != nullptr && before->sentence == claim.claim->sentence &&
                      before->metric == claim.claim->metric;
    if (!same) sentences.emplace_back();
    sentences.back().push_back(claim);
  }
  return sentences;
}

// Of the claims of each part; the rows the worst first.
JudgedGroup GroupOf(std::string id, std::string title, const std::vector<Claims>& parts) {
  std::vector<Claims> sentences;
  for (const Claims& part : parts)
    std::ranges::move(BySentence(part), std::back_inserter(sentences));
  for (Claims& sentence : sentences) SortWorstFirst(sentence);
  std::ranges::stable_sort(sentences, {},
                           [](const Claims& claims) { return &KindOf(claims.front()); });
  JudgedGroup group{std::move(id), std::move(title), {}};
  for (const Claims& sentence : sentences) group.sentences.push_back(SentenceOf(sentence));
  return group;
}

JudgedClaims Whole(const Claims& claims, std::vector<JudgedGroup> groups) {
  return {claims.size(), Summary(claims), Meanings(claims), std::move(groups)};
}

void Add(Claims& all, const Claims& more) { all.insert(all.end(), more.begin(), more.end()); }

}  // namespace

JudgedClaims JudgedByPart(std::span<const PartResult> results) {
  Claims all;
  std::vector<JudgedGroup> groups;
  for (const PartResult& result : results) {
    const Claims claims = JudgeClaims(result);
    if (claims.empty()) continue;
    Add(all, claims);
    groups.push_back(GroupOf(result.part->id, result.part->title, {claims}));
  }
  return Whole(all, std::move(groups));
}

JudgedClaims JudgedByExperiment(std::span<const ClaimingExperiment> experiments) {
  Claims all;
  std::vector<JudgedGroup> groups;
  for (const ClaimingExperiment& experiment : experiments) {
    Claims claims;
    std::vector<Claims> parts;
    for (const PartResult& result : experiment.results) {
      parts.push_back(JudgeClaims(result));
      Add(claims, parts.back());
    }
    if (claims.empty()) continue;
    Add(all, claims);
    groups.push_back(
        GroupOf(experiment.id, fmt::format("{}: {}", experiment.title, Summary(claims)), parts));
  }
  return Whole(all, std::move(groups));
}

json ToJson(const JudgedClaims& judged) { return WriteRecord(judged); }

}  // namespace sparfuse::harness
