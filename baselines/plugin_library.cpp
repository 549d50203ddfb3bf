#include "baselines/plugin_library.hpp"

#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <sparfuse/headers_hash.hpp>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "baselines/registry.hpp"
#include "core/base/error.hpp"
#include "core/base/fnv.hpp"
#include "core/plugin/part_kinds.hpp"

namespace sparfuse {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSection = ".sparfuse_abi";

std::string ContentOf(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    SPARFUSE_THROW(kConfig, file.string() + " is not there; expected the library of a plugin");
  }
  std::ostringstream text;
  text << stream.rdbuf();
  return std::move(text).str();
}

// Returns the bytes [at, at + size) of a file's content, or none if it ends before.
std::optional<std::string_view> Part(std::string_view content, std::uint64_t at,
                                     std::uint64_t size) {
  if (at > content.size() || size > content.size() - at) return std::nullopt;
  return content.substr(at, size);
}

template <class Record>
std::optional<Record> Read(std::string_view content, std::uint64_t at) {
  const auto bytes = Part(content, at, sizeof(Record));
  if (!bytes) return std::nullopt;
  Record record;
  std::memcpy(&record, bytes->data(), sizeof(Record));
  return record;
}

// Returns the text of a section of an ELF file, up to its first zero; nothing if it has none.
std::optional<std::string> SectionText(std::string_view content) {
  const auto header = Read<Elf64_Ehdr>(content, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64) {
    return std::nullopt;
  }
  const auto section = [&](std::uint64_t index) {
    return Read<Elf64_Shdr>(content, header->e_shoff + index * sizeof(Elf64_Shdr));
  };
  const auto names = section(header->e_shstrndx);
  const auto text = names ? Part(content, names->sh_offset, names->sh_size) : std::nullopt;
  if (!text) return std::nullopt;
  for (std::uint64_t i = 0; i < header->e_shnum; ++i) {
    const auto each = section(i);
    if (!each || each->sh_name >= text->size()) return std::nullopt;
    const std::string_view name = text->substr(each->sh_name);
    if (name.substr(0, name.find('\0')) != kSection) continue;
    const auto bytes = Part(content, each->sh_offset, each->sh_size);
    if (!bytes) return std::nullopt;
    return std::string(bytes->substr(0, bytes->find('\0')));
  }
  return std::nullopt;
}

std::string WithHash(std::string_view abi) {
  char hash[17];
  std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(FnvOf(abi)));
  return std::string(hash) + " (" + std::string(abi) + ")";
}

template <class Descriptor>
std::span<const Descriptor> BuiltIn() {
  if constexpr (std::is_same_v<Descriptor, StrategyDescriptor>) return Strategies();
  if constexpr (std::is_same_v<Descriptor, PlannerDescriptor>) return Planners();
  if constexpr (std::is_same_v<Descriptor, SparsifierDescriptor>) return Sparsifiers();
  if constexpr (std::is_same_v<Descriptor, CollectiveDescriptor>) return Collectives();
  if constexpr (std::is_same_v<Descriptor, FeedbackDescriptor>) return Feedbacks();
  if constexpr (std::is_same_v<Descriptor, QuantizerDescriptor>) return Quantizers();
}

// The plugins that this process has opened.
class OpenPlugins {
 public:
  const PluginParts& Open(const fs::path& file) {
    const std::lock_guard lock(mutex_);
    if (const auto found = parts_.find(file); found != parts_.end()) return *found->second;
    CheckPluginAbi(file);
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      SPARFUSE_THROW(kConfig, file.string() + " cannot be loaded: " + dlerror());
    }
    void* const function = dlsym(library, kPluginFunction);
    if (function == nullptr) {
      SPARFUSE_THROW(kConfig, file.string() +
                                  " has no parts; expected one SPARFUSE_PLUGIN(...) in "
                                  "its sources");
    }
    const PluginParts& parts = *reinterpret_cast<PluginFunction*>(function)();
    auto owners = owners_;
    Own<StrategyDescriptor>(file, parts, owners);
    Own<PlannerDescriptor>(file, parts, owners);
    Own<SparsifierDescriptor>(file, parts, owners);
    Own<CollectiveDescriptor>(file, parts, owners);
    Own<FeedbackDescriptor>(file, parts, owners);
    Own<QuantizerDescriptor>(file, parts, owners);
    owners_ = std::move(owners);
    parts_[file] = &parts;
    return parts;
  }

 private:
  using Owners = std::map<std::pair<std::string, std::string>, fs::path>;

  template <class Descriptor>
  static void Own(const fs::path& file, const PluginParts& parts, Owners& owners) {
    const std::string kind = kKindOf<Descriptor>;
    for (const Descriptor& part : PartsOfKind<Descriptor>(parts)) {
      const std::string name(part.name);
      std::string place;
      for (const Descriptor& known : BuiltIn<Descriptor>()) {
        if (known.name == name) place = "sparfuse itself";
      }
      const auto [owner, is_new] = owners.try_emplace({kind, name}, file);
      if (!is_new) place = owner->second.string();
      if (place.empty()) continue;
      SPARFUSE_THROW(kConfig, kind + " \"" + name + "\" is in " + place + " and in " +
                                  file.string() + "; expected one of each name");
    }
  }

  std::mutex mutex_;
  std::map<fs::path, const PluginParts*> parts_;
  Owners owners_;
};

OpenPlugins& Plugins() {
  static OpenPlugins plugins;
  return plugins;
}

}  // namespace

void CheckPluginAbi(const fs::path& file) {
  const std::string_view own = SPARFUSE_ABI;
  const auto abi = SectionText(ContentOf(file));
  if (!abi) {
    SPARFUSE_THROW(kConfig, file.string() + " is not a plugin: it has no section " +
                                std::string(kSection) +
                                "; expected a shared library of sparfuse_add_plugin");
  }
  if (*abi == own) return;
  SPARFUSE_THROW(kConfig, file.string() + " was built against " + WithHash(*abi) +
                              ", and this program is " + WithHash(own) +
                              "; expected equal hashes: build it against the headers that this "
                              "program's build installs");
}

const PluginParts& OpenPlugin(const fs::path& file) {
  return Plugins().Open(fs::weakly_canonical(file));
}

template <class Descriptor>
const Descriptor& FindInPlugin(const fs::path& file, const std::string& part,
                               const std::string& name) {
  const auto parts = PartsOfKind<Descriptor>(OpenPlugin(file));
  const auto found = std::ranges::find(parts, part, &Descriptor::name);
  if (found == parts.end()) {
    std::vector<std::string> known;
    for (const Descriptor& each : parts) known.emplace_back(each.name);
    SPARFUSE_THROW(kConfig, file.string() + " has no " + kKindOf<Descriptor> + " \"" + part + "\"" +
                                Suggestion(part, known));
  }
  static std::mutex mutex;
  static std::map<std::string, Descriptor> named;  // its keys back the names
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = named.try_emplace(name, *found);
  if (is_new) entry->second.name = entry->first;
  return entry->second;
}

template const StrategyDescriptor& FindInPlugin(const fs::path&, const std::string&,
                                                const std::string&);
template const PlannerDescriptor& FindInPlugin(const fs::path&, const std::string&,
                                               const std::string&);
template const SparsifierDescriptor& FindInPlugin(const fs::path&, const std::string&,
                                                  const std::string&);
template const CollectiveDescriptor& FindInPlugin(const fs::path&, const std::string&,
                                                  const std::string&);
template const FeedbackDescriptor& FindInPlugin(const fs::path&, const std::string&,
                                                const std::string&);
template const QuantizerDescriptor& FindInPlugin(const fs::path&, const std::string&,
                                                 const std::string&);

}  // namespace sparfuse
