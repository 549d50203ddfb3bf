#include "harness/python/parts/file_parts.hpp"

#include <fstream>
#include <map>
#include <sstream>
#include <type_traits>
#include <utility>

#include "baselines/plugin_library.hpp"
#include "core/base/error.hpp"
#include "core/plugin/part_kinds.hpp"
#include "harness/python/parts/parts.hpp"

namespace sparfuse::python {
namespace {

// Finds each class once, with the current content of its file.
struct FindInFiles {
  template <class Descriptor>
  static const Descriptor& Part(const std::string& name) {
    if (IsLibraryPart(name)) {
      const OutsideName given = ParseOutsideName(kKindOf<Descriptor>, name);
      return FindInPlugin<Descriptor>(std::filesystem::absolute(given.file), given.part, name);
    }
    const GilHeld gil;  // guards the table, too
    PartSource source = ReadPartFile(kKindOf<Descriptor>, name);
    static std::map<std::pair<std::string, std::string>, const Descriptor*> known;
    const auto key = std::pair(source.shown, source.text);
    if (const auto found = known.find(key); found != known.end()) return *found->second;
    return *(known[key] = &Made<Descriptor>(std::move(source)));
  }

 private:
  template <class Descriptor>
  static const Descriptor& Made(PartSource source) {
    if constexpr (std::is_same_v<Descriptor, StrategyDescriptor>) return StrategyOf(source);
    if constexpr (std::is_same_v<Descriptor, PlannerDescriptor>) return PlannerOf(source);
    if constexpr (std::is_same_v<Descriptor, CollectiveDescriptor>) return CollectiveOf(source);
    if constexpr (std::is_same_v<Descriptor, FeedbackDescriptor>) return FeedbackOf(source);
    if constexpr (std::is_same_v<Descriptor, QuantizerDescriptor>) return QuantizerOf(source);
  }
};

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
  std::string shown = std::string(kPythonPrefix) + file.string() + ":" + given.part;
  return {kind, shown, shown, file, std::move(text).str(), given.part};
}

void FindPartsInFiles() { FindPartsBy<FindInFiles>(); }

}  // namespace sparfuse::python
