// Reads and writes the SQLite index over the trial directories.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/store/trial_row.hpp"

struct sqlite3;
struct sqlite3_stmt;

namespace sparfuse::harness {

// The index's entry for a trial.json that it read.
struct IndexedFile {
  FileStamp stamp;
  bool left_out = false;  // it is no row; `problem` says why, "" for one of an older schema
  std::string problem;
};

// Follows the directories: adds rows, and removes them if their trial.json is gone or has changed.
// All failures are Error{kData} naming the file, SQLite's reason and a remedy.
class Index {
 public:
  // Precondition: WhyNotCurrent(path) is empty.
  static Index OpenToWrite(const std::filesystem::path& path);
  // A new one that a crash may leave broken: to be renamed once it is whole.
  static Index Create(const std::filesystem::path& path);
  // Throws also if the index is not current. Opens it for writing if possible, so that SQLite rolls
  // back a transaction that a kill interrupted.
  static Index OpenToRead(const std::filesystem::path& path);
  // The reason why the index must be made again. Empty if there is no index yet, or if it has the
  // tables of this program. For the holder of the store's lock.
  struct NotCurrent {
    std::string why;
    bool damaged = false;  // else it is merely of another version, or empty
  };
  static std::optional<NotCurrent> WhyNotCurrent(const std::filesystem::path& path);
  // Whether there is a file. Throws if anything else is there, because a user's folder or link is
  // not replaced.
  static bool IsThere(const std::filesystem::path& path);
  Index(Index&&) noexcept;
  Index& operator=(Index&&) noexcept;
  ~Index();

  // The trial's trial.json must be below the index's folder.
  void AddTrial(const Trial& trial);
  // Throws if there is a row of this id.
  void AddTrial(const TrialRow& row);
  void AddLeftOut(const std::string& place, const IndexedFile& file);
  void RemoveTrial(const std::string& place);
  void AddAnnotation(const Annotation& annotation);
  void RemoveAnnotation(const std::string& id);

  // Runs `write` in one transaction: all its changes are made, or none if it throws.
  template <class Write>
  void InOneTransaction(const Write& write) {
    Execute("BEGIN IMMEDIATE");
    try {
      write();
      Execute("COMMIT");
    } catch (...) {
      RollBack();
      throw;
    }
  }

  std::map<std::string, IndexedFile> Files() const;  // by place
  std::map<std::string, IndexedFile> LeftOut() const;
  std::set<std::string> AnnotationIds() const;
  // All rows, by age.
  std::vector<TrialRow> Rows() const;

 private:
  friend class Statement;
  struct Writer;  // the prepared statements of AddTrial

  Index(const std::filesystem::path& path, int flags);
  void Execute(const char* sql) const;
  void RollBack() const;
  std::optional<NotCurrent> WhyNotCurrent() const;
  // Makes `failed` ready to be used again, if one is given.
  [[noreturn]] void Fail(const char* what, sqlite3_stmt* failed = nullptr) const;

  std::filesystem::path path_;
  sqlite3* database_ = nullptr;
  std::unique_ptr<Writer> writer_;
};

}  // namespace sparfuse::harness
