#include "harness/imports/import_map.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ranges>
#include <span>

#include "core/base/error.hpp"
#include "core/base/options.hpp"
#include "harness/files/durable_file.hpp"
#include "harness/files/log_text.hpp"
#include "harness/files/toml_file.hpp"
#include "harness/imports/imports.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

constexpr ImportKey kResultKeys[] = {
    {"source", "the paper and table, or the address, that the numbers are from"},
    {"system", "a name for the system that measured them: small letters, digits, - _ ."},
    {"workload", "one of `sparfuse list workloads`, or table:FILE.json"},
    {"method", "one of `sparfuse list methods`"},
    {"sparsifier", "one of `sparfuse list sparsifiers`"},
    {"density", "fraction of elements sent, in (0, 1]"},
    {"workers", "number of workers that trained together"},
    {"ranks_per_node", "workers of a node; goes with network_gbps"},
    {"network_gbps", "the bandwidth of a node as the source states it, 10^9 bit/s"},
    {"batch_per_worker", "samples of a worker's step"},
    {"units_per_sample",
     "tokens of a sample, if rates are samples/s and the workload counts tokens"},
    {"per", "whether a rate belongs to one worker or to all: worker or system"},
    {"metric", "throughput, step_seconds, final_metric or seconds_to_target"},
    {"value", "a number, perhaps with its deviation: 925.0 +- 4.4"},
    {"unit", "images/s, samples/s, tokens/s; ms, s, steps/s; %, 1; min, h"},
    {"run", "number of the repetition: 0, 1, ..."}};
constexpr ImportKey kLogKeys[] = {
    {"warmup",
     "number of first steps that are left out; for lines without a step, number of "
     "lines"},
    {"steps_per_epoch", "steps of an epoch, if lines count epochs"},
    {"metric_unit", "unit of the evaluated metric: 1, % or perplexity"},
    {"target",
     "target of the evaluated metric: the time at which it was reached becomes a metric"}};
constexpr ImportKey kLineKeys[] = {
    {"step", "steps done; within the epoch, if there is an epoch"},
    {"epoch", "epochs done"},
    {"seconds", "seconds of a step"},
    {"milliseconds", "milliseconds of a step"},
    {"rate", "a rate in `unit`, of a worker or of all as `per` says"},
    {"system_rate", "the rate of all workers, to check `per`"},
    {"elapsed", "seconds since training began"},
    {"clock_ms", "time of day in milliseconds: training began at the first one"},
    {"clock_s", "time of day in seconds, as TensorBoard's Wall time"},
    {"loss", "training loss"},
    {"metric", "the evaluated metric"}};

bool Has(std::span<const ImportKey> keys, std::string_view name) {
  return std::ranges::find(keys, name, &ImportKey::name) != keys.end();
}

std::vector<std::string> NamesOfKeys(std::span<const ImportKey> keys) {
  std::vector<std::string> names;
  for (const ImportKey& key : keys) names.emplace_back(key.name);
  return names;
}

// Whether the map may give this key of a result. In a log, metric and value follow from the lines,
// and the unit is that of the rate.
bool IsValueKey(std::string_view name, ImportForm form) {
  const bool follows = name == "metric" || name == "value";
  return Has(kResultKeys, name) ? form == ImportForm::kTable || !follows
                                : form == ImportForm::kLog && Has(kLogKeys, name);
}

std::vector<std::string> ValueKeys(ImportForm form) {
  std::vector<std::string> names;
  for (const auto keys : {ResultKeys(), LogKeys()}) {
    for (const std::string& name : NamesOfKeys(keys)) {
      if (IsValueKey(name, form)) names.push_back(name);
    }
  }
  return names;
}

std::vector<std::string> ColumnKeys(ImportForm form) {
  return NamesOfKeys(form == ImportForm::kTable ? ResultKeys() : LineKeys());
}

std::string TextOf(const TomlFile& file, const std::string& pointer) {
  const json& value = *file.Find(pointer);
  if (value.is_string()) return WithPlainSpaces(value.get<std::string>());
  if (value.is_number()) return value.dump();
  file.FailValue(pointer, "a string or a number");
}

void ReadStrings(const TomlFile& file, const std::string& table,
                 std::map<std::string, std::string>& into) {
  const json* names = file.Find("/" + table);
  if (names == nullptr) return;
  if (!names->is_object()) file.FailValue("/" + table, "{ \"their name\" = \"ours\", ... }");
  for (const auto& [theirs, ours] : names->items()) {
    if (!ours.is_string())
      file.Fail("/" + table, fmt::format("{}: {} = {}: expected one of our names, in quotes", table,
                                         theirs, Shown(ours)));
    into[WithPlainSpaces(theirs)] = ours;
  }
}

void ReadExpressions(const TomlFile& file, const std::string& key, std::vector<GivenText>& into) {
  const json* list = file.Find("/" + key);
  if (list == nullptr) return;
  if (!list->is_array() || list->empty())
    file.FailValue("/" + key, "a list of regular expressions");
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string at = fmt::format("/{}/{}", key, i);
    if (!(*list)[i].is_string()) file.FailValue(at, "a regular expression");
    into.push_back({(*list)[i], fmt::format("{}: {}[{}]", file.Where(at), key, i)});
  }
}

std::vector<std::string> StringsAt(const TomlFile& file, const std::string& pointer) {
  std::vector<std::string> strings;
  const json& list = *file.Find(pointer);
  const auto is_string = [](const json& each) { return each.is_string(); };
  if (!list.is_array() || !std::ranges::all_of(list, is_string))
    file.FailValue(pointer, "a list of cells, in quotes");
  for (const json& each : list) strings.push_back(WithPlainSpaces(each.get<std::string>()));
  return strings;
}

// How cells and numbers are written, and which of several columns or lines count: one text a key.
struct FormKey {
  const char* name;
  std::vector<std::string_view> allowed;
  void (*set)(ImportMap& map, const std::string& given);
};

const std::vector<FormKey>& FormKeys() {
  static const std::vector<FormKey> keys = {
      {"encoding",
       {"utf-8", "latin-1"},
       [](ImportMap& map, const std::string& given) { map.encoding = given; }},
      {"delimiter",
       {",", ";", "\t", "|", "tab"},
       [](ImportMap& map, const std::string& given) {
         map.delimiter = given == "tab" ? '\t' : given.front();
       }},
      {"thousands",
       {",", ".", "'", " ", "_"},
       [](ImportMap& map, const std::string& given) { map.thousands = given; }},
      {"decimal",
       {".", ","},
       [](ImportMap& map, const std::string& given) { map.decimal = given; }},
      {"steps_again",
       {"last", "all"},
       [](ImportMap& map, const std::string& given) { map.steps_again = given; }},
      {"columns_are",
       {"method", "workload", "workers"},
       [](ImportMap& map, const std::string& given) { map.columns_are = given; }}};
  return keys;
}

bool IsFormOf(const FormKey& key, ImportForm form) {
  const std::string_view name = key.name;
  return name == "steps_again"   ? form == ImportForm::kLog
         : name == "columns_are" ? form == ImportForm::kTable
                                 : true;
}

std::string Expected(const FormKey& key) {
  return fmt::format("one of \"{}\"", fmt::join(key.allowed, "\", \""));
}

// Reads the forms of cells, numbers and lines, and the values to leave out.
void ReadForms(const TomlFile& file, ImportForm form, ImportMap& map) {
  for (const FormKey& key : FormKeys()) {
    const std::string pointer = fmt::format("/{}", key.name);
    const json* value = file.Find(pointer);
    if (value == nullptr || !IsFormOf(key, form)) continue;
    if (!value->is_string() ||
        std::ranges::find(key.allowed, value->get<std::string>()) == key.allowed.end())
      file.FailValue(pointer, Expected(key));
    key.set(map, *value);
  }
  if (map.thousands == map.decimal)
    file.FailValue("/thousands", "another character than `decimal`, the sign before the fraction");
  if (file.Find("/columns_are") != nullptr && map.value_columns.empty())
    file.FailValue("/columns_are", "it with a list of columns: [columns] value = [\"A\", \"B\"]");
  if (file.Find("/leave_out") != nullptr) map.leave_out = StringsAt(file, "/leave_out");
  const json* rows = file.Find("/leave_out_rows");
  if (rows == nullptr) return;
  if (!rows->is_object())
    file.FailValue("/leave_out_rows", "{ \"their column\" = [\"cell\"], ... }");
  for (const auto& [column, cells] : rows->items()) {
    const auto is_string = [](const json& each) { return each.is_string(); };
    if (!cells.is_array() || !std::ranges::all_of(cells, is_string)) {
      file.Fail("/leave_out_rows",
                fmt::format("leave_out_rows: {} = {}: expected a list of cells, in "
                            "quotes",
                            column, Shown(cells)));
    }
    for (const json& cell : cells)
      map.leave_out_rows[WithPlainSpaces(column)].push_back(
          WithPlainSpaces(cell.get<std::string>()));
  }
}

ImportMap MapOf(const TomlFile& file, ImportForm form) {
  ImportMap map;
  std::vector<std::string> known = ValueKeys(form);
  for (const char* table :
       {"columns", "workloads", "methods", "leave_out", "leave_out_rows", "leave_out_lines"})
    known.emplace_back(table);
  for (const FormKey& key : FormKeys()) {
    if (IsFormOf(key, form)) known.emplace_back(key.name);
  }
  if (form == ImportForm::kLog) known.emplace_back("patterns");
  file.CheckKeys("", "a map", known);
  const auto where = [&](const std::string& pointer, const std::string& key) {
    return fmt::format("{}: {}", file.Where(pointer), key);
  };
  for (const std::string& key : ValueKeys(form)) {
    if (const std::string at = "/" + key; file.Find(at) != nullptr)
      map.values[key] = {TextOf(file, at), where(at, key)};
  }
  if (file.Find("/columns") != nullptr) {
    file.CheckKeys("/columns", "columns", ColumnKeys(form));
    for (const std::string& key : ColumnKeys(form)) {
      const std::string at = "/columns/" + key;
      const json* name = file.Find(at);
      if (name == nullptr) continue;
      if (form == ImportForm::kTable && key == "value" && name->is_array()) {
        for (const std::string& each : StringsAt(file, at))
          map.value_columns.push_back({each, where(at, "columns: value")});
      } else {
        map.columns[key] = {TextOf(file, at), where(at, "columns: " + key)};
      }
    }
  }
  ReadStrings(file, "workloads", map.workloads);
  ReadStrings(file, "methods", map.methods);
  ReadExpressions(file, "patterns", map.patterns);
  ReadExpressions(file, "leave_out_lines", map.leave_out_lines);
  ReadForms(file, form, map);
  return map;
}

// Splits an option's "KEY=TEXT".
std::pair<std::string, GivenText> Pair(const char* option, const std::string& given,
                                       const std::vector<std::string>& known) {
  if (AsUtf8(given) != given)
    SPARFUSE_THROW(kConfig, fmt::format("{} {}: expected UTF-8", option, AsUtf8(given)));
  const std::size_t equals = given.find('=');
  const std::string key = given.substr(0, equals);
  if (equals == std::string::npos || equals + 1 == given.size()) {
    SPARFUSE_THROW(kConfig, fmt::format("{} {}: expected KEY={}", option, given,
                                        option == std::string_view("--set") ? "VALUE" : "COLUMN"));
  }
  if (std::ranges::find(known, key) == known.end()) {
    SPARFUSE_THROW(kConfig, fmt::format("{} {}: unknown key \"{}\"{}", option, given, key,
                                        Suggestion(key, known)));
  }
  return {key, {given.substr(equals + 1), fmt::format("{} {}", option, key)}};
}

// Spreadsheets may write "sep=;" as the first line, which is no row. 0: no such line.
char SeparatorOf(std::string_view text) {
  constexpr std::string_view kLine = "sep=";
  if (!text.starts_with(kLine) || text.size() < kLine.size() + 2) return 0;
  return text[kLine.size() + 1] == '\n' ? text[kLine.size()] : '\0';
}

bool IsRule(const std::vector<std::string>& fields) {
  return std::ranges::all_of(fields, [](const std::string& field) {
    return field.find('-') != std::string::npos &&
           field.find_first_not_of(" :-") == std::string::npos;
  });
}

struct Unnamed {
  std::string pattern;
  std::vector<std::pair<std::size_t, std::string>> names;
};

// Removes the names from the groups and counts the groups. RE2 has another syntax for names, and
// accepts each name only once.
Unnamed WithoutNames(std::string_view pattern) {
  Unnamed made;
  std::size_t groups = 0;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    made.pattern += c;
    if (c == '\\' && i + 1 < pattern.size()) {
      made.pattern += pattern[++i];
    } else if (in_class || c == '[') {
      in_class = c != ']';
    } else if (c == '(') {
      const std::string_view rest = pattern.substr(i + 1);
      const std::size_t open = rest.starts_with("?P<") ? 3 : rest.starts_with("?<") ? 2 : 0;
      if (open == 0) {
        groups += !rest.starts_with('?');
        continue;
      }
      ++groups;
      const std::size_t close = rest.find('>');
      if (close == std::string_view::npos) continue;  // the library reports the error
      made.names.emplace_back(groups, rest.substr(open, close - open));
      i += close + 1;
    }
  }
  return made;
}

}  // namespace

std::span<const ImportKey> ResultKeys() { return kResultKeys; }
std::span<const ImportKey> LogKeys() { return kLogKeys; }
std::span<const ImportKey> LineKeys() { return kLineKeys; }

ImportMap ParseImportMap(std::string_view text, const std::string& name, ImportForm form) {
  return MapOf(TomlFile::Parse(text, name), form);
}

ImportMap ReadImportMap(const ImportMapRequest& request, ImportForm form) {
  ImportMap map;
  if (!request.file.empty()) {
    map = MapOf(TomlFile::Read(request.file), form);
    map.folder = request.file.parent_path();
  }
  if (!request.encoding.empty()) map.encoding = request.encoding;
  for (const std::string& given : request.columns) {
    auto [key, value] = Pair("--column", given, ColumnKeys(form));
    if (key == "value") map.value_columns.clear();
    map.columns[key] = std::move(value);
  }
  std::vector<std::string> known = ValueKeys(form);
  for (const FormKey& key : FormKeys()) {
    if (IsFormOf(key, form)) known.emplace_back(key.name);
  }
  known.emplace_back("leave_out");
  for (const std::string& given : request.values) {
    auto [key, value] = Pair("--set", given, known);
    if (key == "leave_out") {
      map.leave_out.push_back(value.text);
      continue;
    }
    const auto form_key = std::ranges::find(FormKeys(), key, &FormKey::name);
    if (form_key != FormKeys().end()) {
      if (std::ranges::find(form_key->allowed, value.text) == form_key->allowed.end()) {
        SPARFUSE_THROW(kConfig, fmt::format("--set {}: expected {}", given, Expected(*form_key)));
      }
      form_key->set(map, value.text);
      continue;
    }
    map.columns.erase(key);
    map.values[key] = std::move(value);
  }
  if (map.thousands == map.decimal) {
    SPARFUSE_THROW(kConfig, fmt::format("thousands = \"{}\": expected another character than "
                                        "`decimal`, the sign before the fraction",
                                        map.thousands));
  }
  return map;
}

std::string PlainNumber(std::string_view text, const ImportMap& map) {
  constexpr std::string_view kApostrophe = "\u2019";  // as typesetters write it
  if (map.thousands.empty() && map.decimal == ".") return std::string(text);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (map.thousands == "'" && text.find(kApostrophe) != std::string_view::npos) {
    std::string typed(text);
    for (std::size_t at = 0; (at = typed.find(kApostrophe, at)) != std::string::npos;)
      typed.replace(at, kApostrophe.size(), "'");
    return PlainNumber(typed, map);
  }
  std::string plain;
  bool in_fraction = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == map.decimal.front()) {
      plain += '.';
      in_fraction = true;
      continue;
    }
    const auto digit = [&](std::size_t at) { return at < text.size() && is_digit(text[at]); };
    const bool groups = !map.thousands.empty() && c == map.thousands.front() && !in_fraction &&
                        i > 0 && is_digit(text[i - 1]) && digit(i + 1) && digit(i + 2) &&
                        digit(i + 3) && !digit(i + 4);
    if (groups) continue;
    if (c == '.') return std::string(text);  // the point divides neither groups nor a fraction
    in_fraction = in_fraction && is_digit(c);
    plain += c;
  }
  return plain;
}

std::string ImportedText(std::string_view bytes, const std::string& name, const ImportMap& map,
                         std::vector<std::string>* notes) {
  std::size_t spaces = 0;
  const std::string decoded = WithPlainSpaces(DecodedLog(bytes, name, map.encoding), &spaces);
  if (spaces > 0 && notes != nullptr) {
    notes->push_back(
        fmt::format("{} spaces of typesetters (as U+00A0) are read as spaces", spaces));
  }
  if (map.leave_out_lines.empty()) return decoded;
  std::vector<LinePattern> patterns;
  for (const GivenText& pattern : map.leave_out_lines) patterns.emplace_back(pattern);
  std::string kept;
  std::size_t left_out = 0;
  for (std::string_view rest = decoded; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    const bool matched = std::ranges::any_of(
        patterns, [&](const LinePattern& pattern) { return pattern.Matches(Trimmed(line)); });
    left_out += matched;
    if (!matched) kept += line;
    if (end < rest.size()) kept += '\n';
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (notes != nullptr)
    notes->push_back(fmt::format("leave_out_lines: {} lines left out", left_out));
  return kept;
}

GivenRows::GivenRows(std::string_view text, const std::string& name, char delimiter)
    : name_(name), reader_(text, name, SeparatorOf(text) != 0 ? SeparatorOf(text) : delimiter) {
  if (SeparatorOf(text) != 0) reader_.Record();
  do header_ = reader_.Record();
  while (header_.size() == 1 && Trimmed(header_[0]).empty() && !reader_.AtEnd());
  for (std::string& column : header_) {
    column = std::string(Trimmed(column));
    std::ranges::replace(column, '\n', ' ');  // a cell of a spreadsheet may have two lines
  }
  is_markdown_ =
      delimiter == '|' && header_.size() > 2 && header_.front().empty() && header_.back().empty();
  if (is_markdown_) WithoutMarkup(header_);
}

void GivenRows::WithoutMarkup(std::vector<std::string>& fields) const {
  fields.erase(fields.begin());
  if (!fields.empty() && Trimmed(fields.back()).empty()) fields.pop_back();
  for (std::string& field : fields) {
    for (const std::string_view mark : {"**", "__", "`", "*", "_"}) {
      const std::string_view cell = Trimmed(field);
      if (cell.size() > 2 * mark.size() && cell.starts_with(mark) && cell.ends_with(mark))
        field = std::string(cell.substr(mark.size(), cell.size() - 2 * mark.size()));
    }
  }
}

std::optional<GivenRow> GivenRows::Next(Problems& problems) {
  while (!reader_.AtEnd()) {
    GivenRow row;
    row.fields = reader_.Record();
    row.where = fmt::format("{}:{}", name_, reader_.line());
    if (std::ranges::all_of(row.fields, [](const auto& field) { return Trimmed(field).empty(); }))
      continue;
    if (is_markdown_ && row.fields.size() > 1) WithoutMarkup(row.fields);
    if (is_markdown_ && IsRule(row.fields)) continue;
    if (row.fields.size() == header_.size()) return row;
    problems.push_back(
        fmt::format("{}: {} fields: expected {}", row.where, row.fields.size(), header_.size()));
  }
  return std::nullopt;
}

void ThrowProblems(const Problems& problems) {
  constexpr std::size_t kShown = 20;
  if (problems.empty()) return;
  const auto shown = std::span(problems).first(std::min(problems.size(), kShown));
  const std::size_t more = problems.size() - shown.size();
  SPARFUSE_THROW(kConfig, fmt::format("{}{}\nnothing was imported", fmt::join(shown, "\n"),
                                      more > 0 ? fmt::format("\nand {} more", more) : ""));
}

const GivenText* GivenValues::Find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() || found->second.text.empty() ? nullptr : &found->second;
}

std::string GivenValues::Text(const std::string& key) const {
  const GivenText* given = Find(key);
  return given == nullptr ? "" : given->text;
}

std::string GivenValues::NeedText(const std::string& key, std::string_view expected) const {
  const GivenText* given = Find(key);
  if (given == nullptr) Expected(key, expected);
  return given == nullptr ? "" : given->text;
}

std::optional<double> GivenValues::Number(const std::string& key, Range range) const {
  const GivenText* given = Find(key);
  if (given == nullptr) return std::nullopt;
  const auto value = NumberIn(given->text);
  if (value && range.Has(*value)) return value;
  Expected(key, "a number from " + ::sparfuse::harness::Text(range));
  return std::nullopt;
}

std::optional<int> GivenValues::Integer(const std::string& key, Range range) const {
  const GivenText* given = Find(key);
  if (given == nullptr) return std::nullopt;
  const auto value = NumberIn(given->text);
  if (value && range.Has(*value) && *value == std::floor(*value)) return static_cast<int>(*value);
  Expected(key, "a whole number from " + ::sparfuse::harness::Text(range));
  return std::nullopt;
}

std::optional<int> GivenValues::NeedInteger(const std::string& key, Range range) const {
  if (Find(key) == nullptr) {
    Expected(key, "a whole number from " + ::sparfuse::harness::Text(range));
    return std::nullopt;
  }
  return Integer(key, range);
}

void GivenValues::Expected(const std::string& key, std::string_view expected) const {
  const GivenText* given = Find(key);
  const std::string odd = given == nullptr ? "" : OddCharacters(given->text);
  problems_->push_back(given == nullptr
                           ? fmt::format("{}: no {}: expected {}", where_, key, expected)
                           : fmt::format("{} = \"{}\"{}: expected {}", given->where, given->text,
                                         odd.empty() ? "" : ", which has " + odd, expected));
}

std::optional<double> NumberIn(std::string_view text) {
  text = Trimmed(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last || !std::isfinite(value)) return std::nullopt;
  return value;
}

LinePattern::LinePattern(const GivenText& pattern)
    : where_(pattern.where),
      pattern_(WithoutNames(pattern.text).pattern, pattern.where + " = " + pattern.text),
      names_(WithoutNames(pattern.text).names) {}

LinePattern::LinePattern(const GivenText& pattern, const std::vector<std::string>& known)
    : LinePattern(pattern) {
  if (names_.empty()) {
    SPARFUSE_THROW(kConfig, fmt::format("{} = {}: expected a named group, as (?<seconds>...)",
                                        where_, pattern.text));
  }
  for (const auto& [group, name] : names_) {
    if (std::ranges::find(known, name) == known.end()) {
      SPARFUSE_THROW(kConfig, fmt::format("{}: unknown group \"{}\"{}", where_, name,
                                          Suggestion(name, known)));
    }
  }
}

bool LinePattern::Matches(std::string_view line) const { return pattern_.FoundIn(line); }

bool LinePattern::Find(
    std::string_view line,
    const std::function<void(const std::string& name, std::string_view value)>& use) const {
  std::vector<std::string_view> found;
  if (!pattern_.Find(line, found)) return false;
  bool any = false;
  for (const auto& [group, name] : std::views::reverse(names_)) {
    if (found[group].data() == nullptr) continue;
    any = true;
    use(name, found[group]);
  }
  return any;
}

std::map<std::string, std::string> LinePattern::Match(std::string_view line) const {
  std::map<std::string, std::string> values;
  Find(line,
       [&](const std::string& name, std::string_view value) { values.try_emplace(name, value); });
  return values;
}

}  // namespace sparfuse::harness
