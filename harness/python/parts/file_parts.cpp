// Finds parts of methods of this module in files.
#include <fstream>
#include <sstream>
#include <tuple>
#include <utility>

#include "baselines/plugin_library.hpp"
#include "core/base/error.hpp"
#include "core/base/python_imports.hpp"
#include "core/plugin/part_kinds.hpp"
#include "harness/python/parts/parts.hpp"

namespace sparfuse::python {
namespace {

// Each content of a file has parts of its own.
struct FindInFiles {
  template <class Descriptor>
  static const Descriptor& Part(const std::string& name) {
    if (IsLibraryPart(name)) {
      const OutsideName given = ParseOutsideName(kKindOf<Descriptor>, name);
      return FindInPlugin<Descriptor>(std::filesystem::absolute(given.file), given.part, name);
    }
    const GilHeld gil;  // also excludes others
    const PartSource source = ReadPartFile(kKindOf<Descriptor>, name);
    return FindOnce<Descriptor>(
        std::pair(source.shown, TextWithImports(source.file, source.text)),
        [&]() -> const Descriptor& {
          return std::get<harness::MakePart<Descriptor>>(kMakeParts)(source);
        });
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
