// Renders tables as Markdown and as LaTeX.
#include <fmt/format.h>

#include <algorithm>

#include "harness/report/tables/table.hpp"

namespace sparfuse::harness {
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

std::string Markdown(const Table& table) {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    std::size_t width = Width(table.columns[c]);
    for (const auto& row : table.rows) width = std::max(width, Width(Replaced(row[c], "|", "\\|")));
    widths.push_back(width);
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text = "|";
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const std::string cell = Replaced(cells[c], "|", "\\|");
      text += " " + cell + std::string(widths[c] - Width(cell), ' ') + " |";
    }
    return text + "\n";
  };
  std::string text = fmt::format("### {}\n\n", table.title);
  text += line(table.columns);
  text += "|";
  for (const std::size_t width : widths) text += std::string(width + 2, '-') + "|";
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

}  // namespace

std::string Render(const Table& table, TableFormat format) {
  switch (format) {
    case TableFormat::kMarkdown:
      return Markdown(table);
    case TableFormat::kLatex:
      return Latex(table);
  }
  return "";
}

}  // namespace sparfuse::harness
