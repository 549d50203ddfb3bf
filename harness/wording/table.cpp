#include "harness/wording/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/algorithm/string/replace.hpp>
#include <map>

namespace sparfuse::harness {

using nlohmann::ordered_json;

void Table::AddColumn(std::string heading, char aligned) {
  columns.push_back(std::move(heading));
  alignment += aligned;
}

void Table::AddRow(std::vector<std::string> row, std::string look) {
  looks.resize(rows.size());
  rows.push_back(std::move(row));
  looks.push_back(std::move(look));
}

std::size_t Table::NoteOf(const std::string& note) {
  const auto found = std::ranges::find(notes, note);
  if (found != notes.end()) return static_cast<std::size_t>(found - notes.begin()) + 1;
  notes.push_back(note);
  return notes.size();
}

std::string Table::BlocksText(std::size_t blocks) {
  if (blocks != 2) return std::to_string(blocks);
  return fmt::format("2 [{}]", NoteOf("n = 2: an interval of two blocks says little, for its width "
                                      "is made of one difference"));
}

nlohmann::json ToJson(const Table& table) {
  return {{"title", table.title},         {"caption", table.caption}, {"columns", table.columns},
          {"alignment", table.alignment}, {"rows", table.rows},       {"looks", table.looks},
          {"notes", table.notes}};
}

nlohmann::json ToJson(const GroupedTable& table) {
  return {{"columns", table.columns}, {"groups", table.groups}, {"notes", table.notes}};
}

namespace {

// Counts characters, not bytes, so that columns line up in a terminal.
std::size_t Width(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// Puts a cell on one line.
std::string OnOneLine(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

std::string MarkdownText(const std::string& text) {
  return boost::replace_all_copy(OnOneLine(text), "|", "\\|");
}

std::vector<std::size_t> WidthsOf(const Table& table, std::string (*shown)(const std::string&)) {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    std::size_t width = Width(shown(table.columns[c]));
    for (const auto& row : table.rows) width = std::max(width, Width(shown(row[c])));
    widths.push_back(width);
  }
  return widths;
}

std::string BelowTable(const Table& table) {
  std::string text = table.caption.empty() ? "" : "\n" + table.caption + "\n";
  for (std::size_t i = 0; i < table.notes.size(); ++i)
    text += fmt::format("\n[{}] {}\n", i + 1, table.notes[i]);
  return text;
}

std::string Markdown(const Table& table, bool aligned) {
  const std::vector<std::size_t> widths = WidthsOf(table, MarkdownText);
  const auto right = [&](std::size_t c) { return aligned && table.alignment[c] == 'r'; };
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text = "|";
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const std::string cell = MarkdownText(cells[c]);
      const std::string room(widths[c] - Width(cell), ' ');
      text += " " + (right(c) ? room + cell : cell + room) + " |";
    }
    return text + "\n";
  };
  std::string text = aligned || table.title.empty() ? "" : fmt::format("### {}\n\n", table.title);
  text += line(table.columns);
  text += "|";
  for (std::size_t c = 0; c < widths.size(); ++c)
    text += std::string(widths[c] + 1, '-') + (right(c) ? ":|" : "-|");
  text += "\n";
  for (const auto& row : table.rows) text += line(row);
  return text + BelowTable(table);
}

std::string PlainText(const Table& table) {
  const std::vector<std::size_t> widths =
      WidthsOf(table, [](const std::string& text) { return OnOneLine(text); });
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const std::string cell = OnOneLine(cells[c]);
      const std::string room(widths[c] - Width(cell), ' ');
      const bool right = c < table.alignment.size() && table.alignment[c] == 'r';
      text += (c > 0 ? "  " : "") + (right ? room + cell : cell + room);
    }
    return text.erase(text.find_last_not_of(' ') + 1) + "\n";
  };
  std::string text = table.title + "\n\n" + line(table.columns);
  for (const auto& row : table.rows) text += line(row);
  return text + BelowTable(table);
}

// Escapes LaTeX's commands, and characters that its fonts may lack.
std::string LatexText(const std::string& given) {
  std::string out;
  for (const char c : OnOneLine(given)) {
    static const std::map<char, std::string> kOf = {{'\\', "\\textbackslash{}"},
                                                    {'~', "\\textasciitilde{}"},
                                                    {'^', "\\textasciicircum{}"},
                                                    {'<', "\\textless{}"},
                                                    {'>', "\\textgreater{}"},
                                                    {'|', "\\textbar{}"},
                                                    {'"', "''"},
                                                    {'&', "\\&"},
                                                    {'%', "\\%"},
                                                    {'$', "\\$"},
                                                    {'#', "\\#"},
                                                    {'_', "\\_"},
                                                    {'{', "\\{"},
                                                    {'}', "\\}"}};
    const auto known = kOf.find(c);
    out += known == kOf.end() ? std::string(1, c) : known->second;
  }
  static const std::pair<const char*, const char*> kCharacters[] = {
      {"±", "$\\pm$"},   {"–", "--"},       {"µ", "$\\mu$"}, {"×", "$\\times$"},
      {"≤", "$\\leq$"},  {"≥", "$\\geq$"},  {"−", "$-$"},    {"→", "$\\rightarrow$"},
      {"\u2009", "\\,"}, {"\u202f", "\\,"}, {"\u00a0", "~"}};
  for (const auto& [character, written] : kCharacters) boost::replace_all(out, character, written);
  return out;
}

std::string Latex(const Table& table) {
  const auto line = [](const std::vector<std::string>& cells) {
    std::string text;
    for (std::size_t c = 0; c < cells.size(); ++c)
      text += (c > 0 ? " & " : "") + LatexText(cells[c]);
    // At the begin of a row, LaTeX would take these for options of the previous row's end.
    if (text.starts_with('[') || text.starts_with('*')) text = "{}" + text;
    return text + " \\\\\n";
  };
  std::string text =
      "% \\usepackage{booktabs}\n\\begin{table}\n\\caption{" + LatexText(table.title) +
      (table.caption.empty() ? "" : ". " + LatexText(table.caption)) + "}\n\\begin{tabular}{" +
      (table.alignment.empty() ? std::string(table.columns.size(), 'l') : table.alignment) +
      "}\n\\toprule\n";
  text += line(table.columns) + "\\midrule\n";
  for (const auto& row : table.rows) text += line(row);
  text += "\\bottomrule\n\\end{tabular}\n";
  for (std::size_t i = 0; i < table.notes.size(); ++i) {
    text += fmt::format("\n[{}] {}\n", i + 1, LatexText(table.notes[i]));
  }
  return text + "\\end{table}\n";
}

std::string Field(const ordered_json& value) {
  if (value.is_null()) return "";
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  return "\"" + boost::replace_all_copy(text, "\"", "\"\"") + "\"";
}

}  // namespace

TableFormat TableFormatOf(std::string_view name) {
  return name == "latex"  ? TableFormat::kLatex
         : name == "text" ? TableFormat::kText
                          : TableFormat::kMarkdown;
}

std::string Render(const Table& table, TableFormat format) {
  switch (format) {
    case TableFormat::kText:
      return PlainText(table);
    case TableFormat::kMarkdown:
    case TableFormat::kAligned:
      return Markdown(table, format == TableFormat::kAligned);
    case TableFormat::kLatex:
      return Latex(table);
  }
  return "";
}

std::string Render(const GroupedTable& table) {
  std::string text;
  for (const auto& [heading, rows] : table.groups) {
    const Table group{.columns = table.columns, .rows = rows};
    text += fmt::format("**{}**\n\n{}\n", heading, Markdown(group, false));
  }
  for (const std::string& note : table.notes) text += note + "\n";
  return text;
}

std::string CsvOf(const ordered_json& columns, const std::vector<ordered_json>& rows) {
  std::string csv;
  const auto add_line = [&](const auto& field_of) {
    std::string line;
    for (const auto& [key, unused] : columns.items())
      line += (line.empty() ? "" : ",") + Field(field_of(key));
    csv += line + "\n";
  };
  add_line([](const std::string& key) { return ordered_json(key); });
  for (const ordered_json& row : rows)
    add_line([&](const std::string& key) { return row.at(key); });
  return csv;
}

}  // namespace sparfuse::harness
