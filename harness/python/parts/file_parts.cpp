#include "harness/python/parts/file_parts.hpp"

#include <fstream>
#include <map>
#include <sstream>

#include "core/base/error.hpp"
#include "core/base/outside_parts.hpp"
#include "harness/python/parts/parts.hpp"

namespace sparfuse::python {
namespace {

template <const auto& Make>
const auto& Found(const char* kind, const std::string& name) {
  const GilHeld gil;  // guards the table, too
  PartSource source = ReadPartFile(kind, name);
  using Descriptor = std::remove_cvref_t<decltype(Make(source))>;
  static std::map<std::pair<std::string, std::string>, const Descriptor*> known;
  const auto key = std::pair(source.shown, source.text);
  if (const auto found = known.find(key); found != known.end()) return *found->second;
  return *(known[key] = &Make(std::move(source)));
}

}  // namespace

PartSource ReadPartFile(const std::string& kind, const std::string& name) {
  const OutsideName given = ParseOutsideName(kind, name);
  const auto file = std::filesystem::absolute(given.file).lexically_normal();
  std::ifstream stream(file, std::ios::binary);
  if (given.file.empty() || !stream) {
    SPARFUSE_THROW(kConfig, kind + " \"" + name + "\": " + file.string() +
                                " is not there; expected a Python file");
  }
  std::ostringstream text;
  text << stream.rdbuf();
  std::string shown = std::string(kOutsidePrefix) + file.string() + ":" + given.class_name;
  return {kind, shown, shown, file, std::move(text).str(), given.class_name};
}

void FindPartsInFiles() {
  OutsideParts<PlannerDescriptor>::SetFinder(
      [](const std::string& name) -> const PlannerDescriptor& {
        return Found<PlannerOf>("planner", name);
      });
  OutsideParts<StrategyDescriptor>::SetFinder(
      [](const std::string& name) -> const StrategyDescriptor& {
        return Found<StrategyOf>("strategy", name);
      });
  OutsideParts<FeedbackDescriptor>::SetFinder(
      [](const std::string& name) -> const FeedbackDescriptor& {
        return Found<FeedbackOf>("feedback", name);
      });
  OutsideParts<CollectiveDescriptor>::SetFinder(
      [](const std::string& name) -> const CollectiveDescriptor& {
        return Found<CollectiveOf>("collective", name);
      });
  OutsideParts<QuantizerDescriptor>::SetFinder(
      [](const std::string& name) -> const QuantizerDescriptor& {
        return Found<QuantizerOf>("quantizer", name);
      });
}

}  // namespace sparfuse::python
