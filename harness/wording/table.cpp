#include "harness/wording/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

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

nlohmann::json ToJson(const Table& table) {
  return {{"title", table.title},         {"caption", table.caption}, {"columns", table.columns},
          {"alignment", table.alignment}, {"rows", table.rows},       {"looks", table.looks},
          {"notes", table.notes}};
}

namespace {

// Characters, not bytes: columns line up in a terminal.
std::size_t Width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string Markdown(const Table& table, bool aligned) {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    std::size_t width = Width(table.columns[c]);
    for (const auto& row : table.rows) width = std::max(width, Width(Replaced(row[c], "|", "\\|")));
    widths.push_back(width);
  }
  const auto right = [&](std::size_t c) { return aligned && table.alignment[c] == 'r'; };
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text = "|";
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const std::string cell = Replaced(cells[c], "|", "\\|");
      const std::string space(widths[c] - Width(cell), ' ');
      text += " " + (right(c) ? space + cell : cell + space) + " |";
    }
    return text + "\n";
  };
  std::string text = aligned ? "" : fmt::format("### {}\n\n", table.title);
  text += line(table.columns);
  text += "|";
  for (std::size_t c = 0; c < widths.size(); ++c)
    text += std::string(widths[c] + 1, '-') + (right(c) ? ":|" : "-|");
  text += "\n";
  for (const auto& row : table.rows) text += line(row);
  if (!table.caption.empty()) text += "\n" + table.caption + "\n";
  for (std::size_t i = 0; i < table.notes.size(); ++i) {
    text += fmt::format("\n[{}] {}\n", i + 1, table.notes[i]);
  }
  return text;
}

std::string LatexText(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\textbackslash{}";
    } else if (c == '~') {
      out += "\\textasciitilde{}";
    } else if (c == '^') {
      out += "\\textasciicircum{}";
    } else {
      if (std::string_view("&%$#_{}").find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
  }
  out = Replaced(out, "±", "$\\pm$");
  out = Replaced(out, "–", "--");
  out = Replaced(out, "µ", "$\\mu$");
  return Replaced(out, "\u2009", "\\,");
}

std::string Latex(const Table& table) {
  const auto line = [](const std::vector<std::string>& cells) {
    std::string text;
    for (std::size_t c = 0; c < cells.size(); ++c)
      text += (c > 0 ? " & " : "") + LatexText(cells[c]);
    return text + " \\\\\n";
  };
  std::string text =
      "\\begin{table}\n\\caption{" + LatexText(table.title) +
      (table.caption.empty() ? "" : ". " + LatexText(table.caption)) + "}\n\\begin{tabular}{" +
      (table.alignment.empty() ? std::string(table.columns.size(), 'l') : table.alignment) +
      "}\n\\hline\n";
  text += line(table.columns) + "\\hline\n";
  for (const auto& row : table.rows) text += line(row);
  text += "\\hline\n\\end{tabular}\n";
  for (std::size_t i = 0; i < table.notes.size(); ++i) {
    text += fmt::format("\n[{}] {}\n", i + 1, LatexText(table.notes[i]));
  }
  return text + "\\end{table}\n";
}

std::string Field(const ordered_json& value) {
  if (value.is_null()) return "";
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  for (std::size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2)
    text.insert(at, 1, '"');
  return "\"" + text + "\"";
}

}  // namespace

std::string Render(const Table& table, TableFormat format) {
  switch (format) {
    case TableFormat::kMarkdown:
    case TableFormat::kAligned:
      return Markdown(table, format == TableFormat::kAligned);
    case TableFormat::kLatex:
      return Latex(table);
  }
  return "";
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
