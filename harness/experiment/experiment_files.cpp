#include "harness/experiment/experiment_files.hpp"

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>

namespace sparfuse::harness {
namespace {

namespace fs = std::filesystem;

// fig3 before fig14: groups of digits compare as numbers.
bool NaturallyBefore(const std::string& a, const std::string& b) {
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!digit(a[i]) || !digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    const auto number = [&](const std::string& text, std::size_t& at) {
      const std::size_t begin = at;
      while (at < text.size() && digit(text[at])) ++at;
      return std::pair(at - begin, text.substr(begin, at - begin));  // the longer is the larger
    };
    const auto of_a = number(a, i), of_b = number(b, j);
    if (of_a != of_b) return of_a < of_b;
  }
  return a.size() - i < b.size() - j;
}

}  // namespace

std::vector<fs::path> ExperimentFiles(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code none;  // a folder that is not there has none
  for (const auto& entry : fs::recursive_directory_iterator(folder, none)) {
    if (entry.path().extension() == ".toml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end(), [](const fs::path& a, const fs::path& b) {
    return NaturallyBefore(a.string(), b.string());
  });
  return files;
}

}  // namespace sparfuse::harness
