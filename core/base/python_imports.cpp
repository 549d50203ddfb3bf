#include "core/base/python_imports.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>

namespace sparfuse {
namespace fs = std::filesystem;
namespace {

bool InName(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string_view WithoutSpace(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0)
    text.remove_prefix(1);
  return text;
}

std::string FirstName(std::string_view text) {
  text = WithoutSpace(text);
  return std::string(text.begin(), std::ranges::find_if_not(text, InName));
}

bool BeginsWithWord(std::string_view text, std::string_view word) {
  return text.starts_with(word) && text.size() > word.size() && !InName(text[word.size()]);
}

struct Import {
  std::string name;
  bool late = false;
};

// Of "import a.b, c" it gives a and c, of "from a.b import c" it gives a.
std::vector<Import> StatementsOf(const std::string& text) {
  std::vector<Import> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::string_view statement = WithoutSpace(line);
    const bool late = statement.size() < line.size();
    if (BeginsWithWord(statement, "from")) {
      found.push_back({FirstName(statement.substr(4)), late});
    } else if (BeginsWithWord(statement, "import")) {
      std::istringstream names{std::string(statement.substr(6))};
      for (std::string name; std::getline(names, name, ',');)
        found.push_back({FirstName(name), late});
    }
  }
  return found;
}

bool ReadInto(const fs::path& file, std::string& text) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream all;
  all << stream.rdbuf();
  text = std::move(all).str();
  return static_cast<bool>(stream);
}

// The files of module or package NAME in the folder. Installed modules lie beside one another, and
// belong to others.
std::vector<fs::path> FilesOf(const fs::path& folder, const std::string& name) {
  std::error_code failed;
  if (folder.filename() == "site-packages" || folder.filename() == "dist-packages") return {};
  if (const fs::path module = folder / (name + ".py"); fs::is_regular_file(module, failed))
    return {module};
  std::vector<fs::path> files;
  if (!fs::is_directory(folder / name, failed)) return files;
  for (const auto& entry : fs::recursive_directory_iterator(folder / name, failed)) {
    if (entry.path().extension() == ".py") files.push_back(entry.path());
  }
  return files;
}

}  // namespace

PythonImports ImportsOf(const fs::path& file, const std::string& text) {
  PythonImports imports;
  const fs::path folder = file.parent_path();
  std::error_code failed;
  std::set<std::string> names, late, seen;
  std::vector<std::string> texts = {text};
  while (!texts.empty()) {
    const std::string next = std::move(texts.back());
    texts.pop_back();
    for (const Import& import : StatementsOf(next)) {
      if (import.name.empty()) continue;
      const std::vector<fs::path> found = FilesOf(folder, import.name);
      if (found.empty() || found.front() == file) continue;
      // Python prefers an installed module to a folder without this file.
      const bool is_folder = !fs::is_regular_file(folder / (import.name + ".py"), failed) &&
                             !fs::is_regular_file(folder / import.name / "__init__.py", failed);
      if (!is_folder) {
        names.insert(import.name);
        if (import.late) late.insert(import.name);
      }
      if (!seen.insert(import.name).second) continue;
      for (const fs::path& each : found) {
        std::string content;
        if (!ReadInto(each, content)) continue;
        texts.push_back(content);
        imports.files[each] = std::move(content);
      }
    }
  }
  imports.names.assign(names.begin(), names.end());
  imports.late.assign(late.begin(), late.end());
  return imports;
}

std::string TextWithImports(const fs::path& file, const std::string& text) {
  std::string all = text;
  for (const auto& [path, content] : ImportsOf(file, text).files) {
    all += '\0';
    all += path.lexically_relative(file.parent_path()).generic_string();
    all += '\0';
    all += content;
  }
  return all;
}

}  // namespace sparfuse
