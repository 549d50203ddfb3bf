#include "harness/catalog/outside_part.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <mutex>
#include <sstream>

#include "baselines/plugin_library.hpp"
#include "core/base/error.hpp"
#include "core/base/python_imports.hpp"
#include "core/plugin/part_kinds.hpp"
#include "harness/catalog/python_plugin.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {
namespace fs = std::filesystem;
namespace {

// Parses a name in an experiment's or a method's file.
OutsideName ParseGiven(std::string_view kind, std::string_view name) {
  OutsideName parsed = ParseOutsideName(kind, name);
  if (parsed.hash.empty()) return parsed;
  SPARFUSE_THROW(
      kConfig,
      fmt::format("{} \"{}\": expected \"{}\"; sparfuse computes the hash", kind, name,
                  IsLibraryPart(name) ? "library:FILE.so:NAME" : "python:FILE.py:ClassName"));
}

fs::path AbsoluteFile(const OutsideName& parsed, const fs::path& folder) {
  return fs::absolute(folder / parsed.file).lexically_normal();
}

// The files that were named in this process, by the names in cells. Any file would do whose content
// has the name's hash.
struct KnownFiles {
  std::mutex mutex;
  std::map<std::string, fs::path> files;
};

KnownFiles& FilesOfParts() {
  static KnownFiles known;
  return known;
}

std::string ReadSource(std::string_view kind, std::string_view name, const fs::path& file) {
  std::error_code failed;
  if (!fs::is_regular_file(file, failed)) {
    SPARFUSE_THROW(
        kConfig, fmt::format("{} \"{}\": {} is not there; expected a {}", kind, name, file.string(),
                             IsLibraryPart(name) ? "plugin" : "Python file"));
  }
  return ReadFile(file);
}

// The hash of a part's file, and of the modules of its folder that a Python file imports.
std::string HashOfPart(std::string_view name, const fs::path& file, const std::string& text) {
  return ShortHash(IsLibraryPart(name) ? text : TextWithImports(file, text));
}

bool InIdentifier(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

std::vector<std::string> ClassesIn(const std::string& text) {
  std::vector<std::string> classes;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word, name;
    if (!(words >> word >> name) || word != "class") continue;
    const auto end = std::ranges::find_if_not(name, InIdentifier);
    classes.emplace_back(name.begin(), end);
  }
  return classes;
}

void CheckHasClass(std::string_view kind, std::string_view given, const fs::path& file,
                   const std::string& text) {
  const std::string name = ParseOutsideName(kind, given).part;
  const std::vector<std::string> classes = ClassesIn(text);
  if (std::ranges::find(classes, name) != classes.end()) return;
  SPARFUSE_THROW(
      kConfig, fmt::format("{} \"{}\": {} has no \"class {}\"{}", kind, given, file.string(), name,
                           classes.empty() ? "" : Suggestion(name, classes)));
}

const PythonPlugin& LoadPlugin(const std::string& who) {
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
  fs::path plugin = folder / kPythonPlugin;
  if (!fs::exists(plugin)) plugin = folder / "worker" / kPythonPlugin;  // seen from sparfuse
  if (!fs::exists(plugin)) {
    SPARFUSE_THROW(kConfig, fmt::format("{}: {} is not in {}, and Python needs it; install "
                                        "python3-dev, then run scripts/setup",
                                        who, kPythonPlugin, folder.string()));
  }
  void* const library = dlopen(plugin.c_str(), RTLD_NOW | RTLD_GLOBAL);
  void* const function = library == nullptr ? nullptr : dlsym(library, kPythonPluginFunction);
  if (function == nullptr) {
    SPARFUSE_THROW(kConfig, fmt::format("{}: cannot load {}: {}", who, plugin.string(), dlerror()));
  }
  return *reinterpret_cast<PythonPluginFunction*>(function)();
}

const PythonPlugin* loaded_plugin = nullptr;
PartWatch part_watch;

const PythonPlugin& Plugin(const std::string& who) {
  static const PythonPlugin& plugin = [&]() -> const PythonPlugin& {
    loaded_plugin = &LoadPlugin(who);
    loaded_plugin->watch(part_watch);
    return *loaded_plugin;
  }();
  return plugin;
}

// The source of a Python class or a plugin's part that a cell names. Its content must have the
// name's hash.
PartSource SourceOf(const std::string& kind, const std::string& name) {
  const OutsideName parsed = ParseOutsideName(kind, name);
  const fs::path file = FileOfPart(name);
  // Errors of the class name its file.
  std::string shown = fmt::format("{}{}:{}", parsed.prefix, file.string(), parsed.part);
  std::string text = ReadSource(kind, name, file);
  if (const std::string hash = HashOfPart(name, file, text); hash != parsed.hash) {
    SPARFUSE_THROW(kConfig, fmt::format("{} \"{}\": {}, or a module that it imports, was edited "
                                        "since: its content is now {}; run the experiment again",
                                        kind, name, file.string(), hash));
  }
  return {kind, name, std::move(shown), file, std::move(text), parsed.part};
}

std::unique_ptr<Sparsifier> Make(const std::string& name, const Options& options,
                                 std::uint64_t seed) {
  const PartSource source = SourceOf("sparsifier", name);
  return std::unique_ptr<Sparsifier>(Plugin(source.shown).sparsifier(source, options, seed));
}

struct FindPartsOfCells {
  template <class Descriptor>
  static const Descriptor& Part(const std::string& name) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    return FindOnce<Descriptor>(name, [&]() -> const Descriptor& {
      const PartSource source = SourceOf(kKindOf<Descriptor>, name);
      if (IsLibraryPart(name)) {
        return FindInPlugin<Descriptor>(source.file, source.class_name, name);
      }
      return std::get<MakePart<Descriptor>>(Plugin(source.shown).parts)(source);
    });
  }
};

}  // namespace

std::string WithFolder(std::string_view kind, std::string_view given, const fs::path& folder) {
  const OutsideName parsed = ParseGiven(kind, given);
  return fmt::format("{}{}:{}", parsed.prefix, AbsoluteFile(parsed, folder).string(), parsed.part);
}

std::string OutsidePartName(std::string_view kind, std::string_view given, const fs::path& folder) {
  const OutsideName parsed = ParseGiven(kind, given);
  const fs::path file = AbsoluteFile(parsed, folder);
  const std::string text = ReadSource(kind, given, file);
  if (IsLibraryPart(given)) {
    CheckPluginAbi(file);
  } else {
    CheckHasClass(kind, given, file, text);
  }
  const std::string name =
      fmt::format("{}{}@{}", parsed.prefix, parsed.part, HashOfPart(given, file, text));
  KnowPartFile(name, file);
  return name;
}

fs::path FileOfPart(const std::string& name) {
  KnownFiles& known = FilesOfParts();
  const std::lock_guard lock(known.mutex);
  const auto found = known.files.find(name);
  if (found == known.files.end())
    SPARFUSE_THROW(kInternal, fmt::format("\"{}\": its file is not known", name));
  return found->second;
}

std::vector<PartOfCell> OutsidePartsOf(const CellConfig& config) {
  std::vector<PartOfCell> parts;
  const auto add = [&](const char* kind, const std::string& name) {
    if (IsOutsidePart(name)) parts.push_back({kind, name});
  };
  for (const std::string& name : config.sparsifiers) add("sparsifier", name);
  for (const std::string& name : config.quantizers) add("quantizer", name);
  if (config.is_profile()) return parts;
  const MethodChoice& method = config.method_options;
  add("strategy", method.strategy);
  add("planner", method.planner);
  add("sparsifier", config.sparsifier);
  add("feedback", config.feedback);
  add("collective", method.collective);
  if (const auto quantizer = method.quantizer()) add("quantizer", *quantizer);
  return parts;
}

std::map<std::string, std::string> FilesOfParts(const CellConfig& config) {
  std::map<std::string, std::string> files;
  for (const PartOfCell& part : OutsidePartsOf(config))
    files[part.name] = FileOfPart(part.name).string();
  return files;
}

void KnowPartFile(const std::string& name, const fs::path& file) {
  static std::once_flag once;
  std::call_once(once, FindPartsBy<FindPartsOfCells>);
  KnownFiles& known = FilesOfParts();
  const std::lock_guard lock(known.mutex);
  known.files[name] = file;
}

void WatchPythonParts(PartWatch watch) { part_watch = std::move(watch); }

double SecondsInPython() { return loaded_plugin == nullptr ? 0.0 : loaded_plugin->seconds(); }

bool MeansOutsidePart(std::string_view given, std::string_view resolved) {
  if (!IsOutsidePart(given) || !IsOutsidePart(resolved)) return false;
  const OutsideName wanted = ParseOutsideName("part", given);
  const OutsideName cell = ParseOutsideName("part", resolved);
  return wanted.part == cell.part && (wanted.hash.empty() || wanted.hash == cell.hash);
}

const SparsifierDescriptor& ResolveSparsifier(const std::string& name) {
  if (!IsOutsidePart(name)) return FindSparsifier(name);
  if (IsLibraryPart(name)) {
    const PartSource source = SourceOf("sparsifier", name);
    return FindInPlugin<SparsifierDescriptor>(source.file, source.class_name, name);
  }
  static std::mutex mutex;
  static std::map<std::string, SparsifierDescriptor> known;  // its keys hold the parts' names
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = known.try_emplace(name);
  if (is_new) {
    found->second = {.name = found->first,
                     .paper = "",
                     .revision = kOutsidePartRevision,
                     .exact_count = false,  // the class states it only when it runs
                     .index_shared = false,
                     .selection_model = {},
                     .contraction = [](std::span<const std::int64_t>, double) { return 0.0; },
                     .deviations = "",
                     .options = {},
                     .make = [name](const Options& options,
                                    std::uint64_t seed) { return Make(name, options, seed); }};
  }
  return found->second;
}

}  // namespace sparfuse::harness
