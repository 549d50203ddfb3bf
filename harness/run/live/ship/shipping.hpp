// Collects and gives hosts without a shared folder the files that their ranks need, and takes back
// the files that ranks wrote. Everything passes the launcher's own channels (node_channel.hpp).
#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "harness/catalog/catalog.hpp"
#include "harness/run/live/launch/launch_command.hpp"
#include "harness/run/live/ship/node_channel.hpp"

namespace sparfuse::harness {

// The worker's path in a shipment. It is as deep as in an archive of scripts/bundle, whose worker
// looks for libraries in ../../lib of its own folder first: that is the shipment's lib.
inline constexpr const char* kShippedWorker = "bin/worker/sparfuse-worker";

struct ShippedFile {
  std::filesystem::path source;
  std::string name;  // in the shipment: "lib/libtorch_cpu.so", "data/digits/digits.bin"
  std::string hash;  // SHA-256 of the content
};

struct Shipment {
  std::vector<ShippedFile> files;
  bool has_open_mpi = false;  // its own, in the place of the nodes'

  // Hash of names and contents, twelve digits.
  std::string Id() const;

  // The files from LibTorch's folder, which a host with the same LibTorch has.
  std::vector<const ShippedFile*> OfTorch() const;
};

// The worker with its linked libraries, except those that every host has of its own: the C library,
// MPI with its libraries, drivers of cards. Also the existing files among `names`, paths below
// `data`. If OPAL_PREFIX names an archive of scripts/bundle, its Open MPI is included. Throws
// Error{kData} naming a library that is missing here, or a file whose link leads out of `data`.
Shipment Collect(const std::filesystem::path& worker, const std::filesystem::path& data,
                 const std::vector<std::string>& names);

// The data files of all workloads, as Collect takes them.
std::vector<std::string> DataFilesOf(const Catalog& catalog);

// The libraries in the output of ldd that are shipped, sorted. Throws as Collect.
std::vector<std::filesystem::path> ShippedLibraries(const std::string& ldd);

// A script that prints the files of the folders 0, 1, ... in `place`, except config.json, with
// their hashes.
std::string SendingResults(const std::string& place);

// Takes the files from the script's output into the directories of trials 0, 1, ..., through the
// folder `between`. Returns the missing or damaged files, of which nothing is taken; or "". Throws
// Error{kData} if this machine cannot write.
std::string TakeResults(const std::filesystem::path& printed, const std::filesystem::path& between,
                        const std::vector<std::filesystem::path>& trials);

// A node, and the hashes of the files that it keeps.
struct NodeStore {
  std::string node;
  std::set<std::string> has;
};

class Shipping {
 public:
  // Every node keeps files by their hashes in $TMPDIR/sparfuse-UID. It takes LibTorch's files from
  // the LibTorch of its own python3 if they are equal, and then gets the files that it still lacks.
  // The hashes of files are checked when they arrive and before their first use. Several nodes are
  // served at once. Throws Error{kConfig} for an archive's Open MPI with mpirun, which needs Open
  // MPI on the node to start there; Error{kData} naming the node and its message, also if
  // `interrupted` is set in the meantime.
  Shipping(const LaunchMethod& method, const Shipment& shipment,
           const std::atomic<bool>& interrupted);
  // Removes the remains of launches there.
  ~Shipping();
  Shipping(const Shipping&) = delete;
  Shipping& operator=(const Shipping&) = delete;

  // Its executable on the nodes.
  std::filesystem::path worker() const { return folder_ / kShippedWorker; }
  // Variables that ranks need there.
  Environment environment() const;

  // From now on only these nodes take part. All of them have their files already.
  void Use(std::vector<std::string> nodes);

  // Marks the files of a launch on the nodes as useless.
  void Forget(const std::string& nonce) const;

  // Begins a launch of trials: puts each one's config.json on all nodes; returns the folders there.
  std::vector<std::filesystem::path> Send(const std::vector<std::filesystem::path>& trials,
                                          const std::string& nonce) const;
  // Ends the launch: takes the files of ranks into the trials' directories. A node keeps its files
  // until all have arrived, and then until the next Send. Returns a sentence for each node with
  // missing files. It cannot be interrupted.
  std::vector<std::string> Fetch(const std::vector<std::filesystem::path>& trials,
                                 const std::string& nonce) const;

 private:
  // Makes the store if there is none, removes old files, and finds the shipment's files that are
  // there.
  std::vector<NodeStore> Look(const Shipment& shipment);
  void TakeFromTorch(const Shipment& shipment, NodeStore& node) const;
  // A script's words: an archive of files named by their hashes becomes files of the store.
  std::string Unpacking(const std::string& options) const;
  // Whether all got it: a file of hashes' contents, by Slurm's own tree of nodes.
  bool Broadcast(const std::filesystem::path& archive, std::vector<NodeStore>& nodes) const;
  void Transfer(const Shipment& shipment, std::vector<NodeStore>& nodes) const;
  // Gives the files of the store their names.
  void Link(const Shipment& shipment) const;
  // The mistake in the received files, or "".
  std::string FetchFrom(const std::string& node, const std::vector<std::filesystem::path>& trials,
                        const std::string& nonce) const;
  // Words of a script that remove the fetched files there, or "".
  std::string RemovingFetched(const std::string& node) const;
  std::filesystem::path PlaceOf(const std::string& nonce) const {
    return store_ / "trials" / nonce;
  }

  NodeChannel channel_, to_the_end_;  // which an interruption ends, or not
  std::vector<std::string> nodes_;
  std::filesystem::path store_, folder_;  // on the nodes
  bool has_open_mpi_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::vector<std::string>> fetched_;  // nonces, by node
};

}  // namespace sparfuse::harness
