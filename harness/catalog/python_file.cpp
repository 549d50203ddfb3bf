#include "harness/catalog/python_file.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <mutex>
#include <sstream>
#include <vector>

#include "core/base/error.hpp"
#include "harness/catalog/python_plugin.hpp"
#include "harness/files/canonical.hpp"
#include "harness/files/durable_file.hpp"

namespace sparfuse::harness {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "python:";

// "python:FILE:CLASS" of an experiment file, or "python:CLASS@HASH" of a cell.
struct Parsed {
  fs::path file;  // empty in cells
  std::string class_name;
  std::string hash;  // empty in experiment files
};

bool InIdentifier(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

Parsed Parse(std::string_view name) {
  const std::string_view rest = name.substr(kPrefix.size());
  const std::size_t colon = rest.rfind(':');
  const std::size_t at = rest.rfind('@');
  Parsed parsed;
  if (colon != std::string_view::npos) {
    parsed.file = rest.substr(0, colon);
    parsed.class_name = rest.substr(colon + 1);
  } else if (at != std::string_view::npos) {
    parsed.class_name = rest.substr(0, at);
    parsed.hash = rest.substr(at + 1);
  }
  if (parsed.class_name.empty() || (parsed.file.empty() && parsed.hash.empty()) ||
      !std::all_of(parsed.class_name.begin(), parsed.class_name.end(), InIdentifier)) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("sparsifier \"{}\": expected \"python:FILE.py:ClassName\"", name));
  }
  return parsed;
}

// Of an experiment's or a method's file.
Parsed ParseGiven(std::string_view name) {
  Parsed parsed = Parse(name);
  if (parsed.hash.empty()) return parsed;
  SPARFUSE_THROW(kConfig,
                 fmt::format("sparsifier \"{}\": expected \"python:FILE.py:ClassName\"; the hash "
                             "is worked out",
                             name));
}

fs::path AbsoluteFile(const Parsed& parsed, const fs::path& folder) {
  return fs::absolute(folder / parsed.file).lexically_normal();
}

// The files that this process was told of, by the names of cells. Any file with the content that
// the name has the hash of would do.
class KnownFiles {
 public:
  void Add(const std::string& name, const fs::path& file) {
    const std::lock_guard lock(mutex_);
    files_[name] = file;
  }
  fs::path Of(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(name);
    if (found == files_.end()) {
      SPARFUSE_THROW(kInternal, fmt::format("sparsifier \"{}\": its file is not known", name));
    }
    return found->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, fs::path> files_;
};

KnownFiles& Files() {
  static KnownFiles files;
  return files;
}

std::string ReadSource(std::string_view name, const fs::path& file) {
  std::error_code failed;
  if (!fs::is_regular_file(file, failed)) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("sparsifier \"{}\": {} is not there; expected a Python file", name,
                               file.string()));
  }
  return ReadFile(file);
}

std::vector<std::string> ClassesIn(const std::string& text) {
  std::vector<std::string> classes;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word, name;
    if (!(words >> word >> name) || word != "class") continue;
    const auto end = std::find_if_not(name.begin(), name.end(), InIdentifier);
    classes.emplace_back(name.begin(), end);
  }
  return classes;
}

MakePythonSparsifier& LoadPlugin(const std::string& name) {
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
  fs::path plugin = folder / kPythonPlugin;
  if (!fs::exists(plugin)) plugin = folder / "worker" / kPythonPlugin;  // seen from sparfuse
  if (!fs::exists(plugin)) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("sparsifier \"{}\": {} is not in {}, and Python needs it; install "
                               "python3-dev, then run scripts/setup",
                               name, kPythonPlugin, folder.string()));
  }
  void* const library = dlopen(plugin.c_str(), RTLD_NOW | RTLD_GLOBAL);
  void* const make = library == nullptr ? nullptr : dlsym(library, kMakePythonSparsifier);
  if (make == nullptr) {
    SPARFUSE_THROW(kConfig, fmt::format("sparsifier \"{}\": cannot load {}: {}", name,
                                        plugin.string(), dlerror()));
  }
  return *reinterpret_cast<MakePythonSparsifier*>(make);
}

std::unique_ptr<Sparsifier> Make(const std::string& name, const Options& options,
                                 std::uint64_t seed) {
  const Parsed parsed = Parse(name);
  const fs::path file = PythonFileOf(name);
  // Errors of the class name its file.
  const std::string shown = fmt::format("{}{}:{}", kPrefix, file.string(), parsed.class_name);
  PythonClass given{name, shown, file, ReadSource(name, file), parsed.class_name, options, seed};
  if (const std::string hash = ShortHash(given.text); hash != parsed.hash) {
    SPARFUSE_THROW(kConfig, fmt::format("sparsifier \"{}\": {} was edited since: its content is "
                                        "now {}; run the experiment again",
                                        name, file.string(), hash));
  }
  static MakePythonSparsifier& make = LoadPlugin(shown);
  return std::unique_ptr<Sparsifier>(make(given));
}

}  // namespace

std::string WithFolder(std::string_view given, const fs::path& folder) {
  const Parsed parsed = ParseGiven(given);
  return fmt::format("{}{}:{}", kPrefix, AbsoluteFile(parsed, folder).string(), parsed.class_name);
}

std::string PythonSparsifierName(std::string_view given, const fs::path& folder) {
  const Parsed parsed = ParseGiven(given);
  const fs::path file = AbsoluteFile(parsed, folder);
  const std::string text = ReadSource(given, file);
  const std::vector<std::string> classes = ClassesIn(text);
  if (std::find(classes.begin(), classes.end(), parsed.class_name) == classes.end()) {
    SPARFUSE_THROW(kConfig,
                   fmt::format("sparsifier \"{}\": {} has no \"class {}\"{}", given, file.string(),
                               parsed.class_name,
                               classes.empty() ? "" : Suggestion(parsed.class_name, classes)));
  }
  const std::string name = fmt::format("{}{}@{}", kPrefix, parsed.class_name, ShortHash(text));
  KnowPythonFile(name, file);
  return name;
}

fs::path PythonFileOf(const std::string& name) { return Files().Of(name); }

std::map<std::string, std::string> PythonFilesOf(const CellConfig& config) {
  std::map<std::string, std::string> files;
  std::vector<std::string> sparsifiers = config.sparsifiers;
  sparsifiers.push_back(config.sparsifier);
  for (const std::string& name : sparsifiers) {
    if (IsPythonSparsifier(name)) files[name] = PythonFileOf(name).string();
  }
  return files;
}

void KnowPythonFile(const std::string& name, const fs::path& file) { Files().Add(name, file); }

bool MeansPythonSparsifier(std::string_view given, std::string_view resolved) {
  if (!IsPythonSparsifier(given) || !IsPythonSparsifier(resolved)) return false;
  const Parsed wanted = Parse(given);
  const Parsed cell = Parse(resolved);
  return wanted.class_name == cell.class_name && (wanted.hash.empty() || wanted.hash == cell.hash);
}

const SparsifierDescriptor& ResolveSparsifier(const std::string& name) {
  if (!IsPythonSparsifier(name)) return FindSparsifier(name);
  static std::mutex mutex;
  static std::map<std::string, SparsifierDescriptor> known;  // its keys back the names
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = known.try_emplace(name);
  if (is_new) {
    found->second = {.name = found->first,
                     .paper = "",
                     .revision = kPythonSparsifierRevision,
                     .exact_count = false,  // the class says so only where it runs
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
