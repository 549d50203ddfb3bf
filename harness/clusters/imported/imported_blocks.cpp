// Keeps what an import writes into a cluster's file apart from what its owner writes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "core/base/error.hpp"
#include "harness/clusters/imported/imported_links.hpp"
#include "harness/files/canonical.hpp"

namespace sparfuse::harness {
namespace {

constexpr std::string_view kBegin = "# >>> sparfuse cluster import: all-reduce of ";
constexpr std::string_view kEnd = "# <<< sparfuse cluster import";

struct ImportedBlock {
  std::size_t begin = 0, end = 0;  // in the text, with both marks
  int line = 0;                    // of the first mark
  int ranks = 0;
  bool as_written = false;
};

std::string CurveText(const LinkLog& log) {
  std::vector<std::string> bytes, us;
  for (const LinkSample& sample : log.samples) {
    bytes.push_back(fmt::format("{:.0f}", sample.bytes));
    us.push_back(fmt::format("{:.5g}", 1e6 * sample.seconds));
  }
  return fmt::format(
      "[[curve]]\noperation = \"all-reduce\"\nranks     = {}\nbytes     = [{}]\nus        = [{}]\n"
      "kind      = \"imported\"\nsource    = {}\n",
      log.ranks, fmt::join(bytes, ", "), fmt::join(us, ", "), Shown(log.Source()));
}

// The first block from `from` on.
std::optional<ImportedBlock> NextBlock(const std::string& text, const std::string& file,
                                       std::size_t from) {
  const std::size_t begin = text.find(kBegin, from);
  if (begin == std::string::npos) return std::nullopt;
  ImportedBlock block;
  block.begin = begin;
  block.line = 1 + static_cast<int>(std::count(
                       text.begin(), text.begin() + static_cast<std::ptrdiff_t>(begin), '\n'));
  const std::size_t body = std::min(text.find('\n', begin), text.size() - 1) + 1;
  const std::size_t end = text.find(kEnd, body);
  if (end == std::string::npos) {
    SPARFUSE_THROW(kConfig, fmt::format("{}:{}: no line \"{}\" below: expected both marks of an "
                                        "import, or neither, which makes the curve yours",
                                        file, block.line, kEnd));
  }
  block.end = std::min(text.find('\n', end), text.size() - 1) + 1;
  const std::string head = text.substr(begin + kBegin.size(), body - begin - kBegin.size());
  const auto [after, error] = std::from_chars(head.data(), head.data() + head.size(), block.ranks);
  block.as_written = error == std::errc() &&
                     std::string_view(after, head.data() + head.size())
                             .find(ShortHash(text.substr(body, end - body))) != std::string::npos;
  return block;
}

}  // namespace

std::string BlockOf(const LinkLog& log) {
  const std::string curve = CurveText(log);
  return fmt::format("{}{} ranks, {}; the next import of as many replaces it\n{}{}\n", kBegin,
                     log.ranks, ShortHash(curve), curve, kEnd);
}

std::string WithBlocks(std::string text, const std::string& file,
                       std::span<const LinkLog* const> logs) {
  for (const LinkLog* log : logs) {
    const std::string now = BlockOf(*log);
    bool replaced = false;
    for (std::size_t from = 0; !replaced;) {
      const auto block = NextBlock(text, file, from);
      if (!block) break;
      from = block->end;
      if (block->ranks != log->ranks) continue;
      if (!block->as_written) {
        SPARFUSE_THROW(
            kConfig,
            fmt::format("{}:{}: what an import wrote was edited since: expected it as it was, or "
                        "without its two lines \"# >>>\" and \"# <<<\", which makes it yours",
                        file, block->line));
      }
      text.replace(block->begin, block->end - block->begin, now);
      replaced = true;
    }
    if (replaced) continue;
    if (!text.empty() && text.back() != '\n') text += '\n';
    text += "\n" + now;
  }
  return text;
}

}  // namespace sparfuse::harness
