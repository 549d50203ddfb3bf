// Holds measurements of a machine, or declared values of a cluster: profiles of workloads, kernels
// and links, and fingerprints, which are profiles without a workload
// (docs/profiles-and-clusters.md).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/records/cell_config.hpp"

namespace sparfuse::harness {

inline constexpr const char* kMeasured = "measured";
inline constexpr const char* kHostInLine = "in-line";          // Profile::host
inline constexpr const char* kSelectionsInHooks = "in-hooks";  // Profile::selections
inline constexpr const char* kStagingPayloads = "payloads";    // Profile::staging

// [elements or bytes, seconds], of selections with the shape.
struct ProfilePoint {
  double size = 0;
  double seconds = 0;
  std::optional<std::vector<std::int64_t>> shape = {};
  bool operator==(const ProfilePoint&) const = default;
};
using ProfileCurve = std::vector<ProfilePoint>;

struct ProfiledTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::size_t numel = 0;
  double seconds = 0;
  bool operator==(const ProfiledTensor&) const = default;
};

// A step without communication.
struct BackwardTimes {
  int steps = 0;  // timed
  double begin_seconds = 0, forward_seconds = 0;
  std::vector<ProfiledTensor> tensors;  // in ready order
  double tail_seconds = 0;              // after the last of them
  double update_seconds = 0;
  // Of measured profiles: the time of backward with hooks and without them. Tensors and tail are
  // scaled to the latter.
  std::optional<double> hooked_seconds, unhooked_seconds;
  std::optional<double> all_ranks_seconds;  // of a step, until all ranks are through
  bool operator==(const BackwardTimes&) const = default;
  double backward_seconds() const;  // tensors alone
};

struct LinkFit {
  double alpha_seconds = 0, alpha_standard_error = 0;
  double seconds_per_byte = 0, seconds_per_byte_standard_error = 0;
  int points = 0;
  ProfileCurve relative_residuals;  // by bytes
  double rms_relative_residual = 0, worst_relative_residual = 0, r_squared = 0;
  bool operator==(const LinkFit&) const = default;
};

// A link that rings of messages were sent around.
struct MeasuredLink {
  std::string link_class;
  ProfileCurve round_seconds;  // by bytes
  std::optional<LinkFit> fit;  // nothing if too few times are above 0
  double seconds_per_extra_message = 0;
  double cpu_seconds = 0, round_cpu_seconds = 0, cpu_fraction = 0;
  std::optional<double> message_cpu_seconds;
  bool operator==(const MeasuredLink&) const = default;
};

struct DeclaredLink {
  double alpha_seconds = 0, seconds_per_byte = 0, seconds_per_extra_message = 0;
  bool operator==(const DeclaredLink&) const = default;
};

// Of a dense all-reduce, by bytes: its constant time, and its time on each class of links.
struct AllReduceCurves {
  ProfileCurve start_seconds, intra_node, inter_node;
  bool operator==(const AllReduceCurves&) const = default;
};

// Of the broadcast of the model's buffers, from rank 0 before each forward pass, without the host's
// part.
struct BroadcastTimes {
  double bytes = 0, start_seconds = 0, link_seconds = 0;
  bool operator==(const BroadcastTimes&) const = default;
};

struct SelectionCurve {
  double density = 0;
  ProfileCurve seconds;
  bool operator==(const SelectionCurve&) const = default;
};
using Selections = std::map<std::string, std::vector<SelectionCurve>>;  // by sparsifier

struct DecodeTimes {
  double per_call = 0, per_call_and_rank = 0, per_element = 0, per_element_and_rank = 0;
  double per_entry = 0;
  bool operator==(const DecodeTimes&) const = default;
};

// A relative standard error: of a value or a whole curve, or one for each of its elements.
struct RelativeError {
  double of_all = 0;
  std::optional<std::vector<double>> of_each = {};
  bool operator==(const RelativeError&) const = default;
};

// The inputs of the model and the planners. Every member may be missing. Fingerprints have links
// alone, and older profiles lack newer measurements, as the text says where another one replaces
// them.
struct Profile {
  std::optional<BackwardTimes> backward;
  ProfileCurve pack, scale, clear;  // by elements
  std::optional<double> seconds_per_entry, seconds_per_reduced_element;
  std::map<std::string, double> collective_work, host_work, selection_coding;  // seconds by work
  std::optional<double> dispatch_seconds, exchange_dispatch_seconds;
  std::optional<Selections> selection, host_selection;
  std::string side_lane;                                      // "host", or "": a stream
  std::optional<std::map<std::string, ProfileCurve>> encode;  // by quantizer
  std::optional<std::map<std::string, DecodeTimes>> decode;   // by coder
  std::optional<MeasuredLink> link, node_link;                // between all ranks; within nodes
  ProfileCurve native_all_reduce;                             // by bytes

  // Members of declared clusters.
  std::map<std::string, DeclaredLink> links;  // by class
  std::optional<AllReduceCurves> all_reduce;
  std::optional<BroadcastTimes> buffers;  // of a workload and a stack that have them
  std::string all_gather;                 // "two-level", or "": a ring
  std::string host;                       // "in-line", or "": in parallel with the network
  std::string selections;  // "in-hooks", or "": in parallel with backward, if a method asks for
                           // that
  std::string staging;     // "payloads", or "": the elements that an exchange covers
  std::optional<double> side_slowdown, compute_slowdown, overlap, payload_overlap, fused_overlap;
  std::optional<double> exchange_host_seconds, exchange_host_seconds_per_rank;
  std::optional<double> exchange_seconds_per_element, sum_host_seconds_per_entry;
  std::optional<double> host_growth, host_growth_from, entry_bytes;

  std::map<std::string, RelativeError> relative_errors;  // by JSON pointer to the value
  std::optional<double> seconds;                         // that measuring took
  bool operator==(const Profile&) const = default;
};

// A quantity of a fingerprint.
struct FingerprintValue {
  struct Slowest {
    double value = 0;
    std::vector<int> ranks;
    bool operator==(const Slowest&) const = default;
  };
  double value = 0;          // mean over ranks, or pairs of them, of medians
  double low = 0, high = 0;  // 95 % of it
  int n = 0;                 // repetitions
  std::string unit;
  std::optional<Slowest> worst = {};  // if there are several
  double slowest() const { return worst ? worst->value : value; }
  bool operator==(const FingerprintValue&) const = default;
};

// A few operations that reveal a slow link or a replaced card, independent of the system's name.
struct Fingerprint {
  int ranks = 1, ranks_per_node = 1, threads = 1;
  Place device = Place::kCpu;
  Transport transport = Transport::kMpi;
  std::optional<LinkShape> link;
  std::string all_reduce, all_gather;                  // collectives; "": of one rank
  std::map<std::string, FingerprintValue> quantities;  // by their names
  // Of trials between two fingerprints.
  std::string id, taken_utc;
  std::vector<std::string> changed;  // sentences
  bool operator==(const Fingerprint&) const = default;
};

// An input of a declared cluster as a modelled trial tells it.
struct DescribedInput {
  std::string name;
  double value = 0, low = 0, high = 0;
  std::string kind, source, group;
  double factor = 1;  // by the cell's `inputs`
  bool operator==(const DescribedInput&) const = default;
};

// A published step that a declared cluster is calibrated on.
struct CalibratedStep {
  std::string paper, artifact, method, workload;
  int workers = 0;
  bool operator==(const CalibratedStep&) const = default;
};

// The use of a declared cluster's card.
struct UsedCard {
  std::string name, kind, hardware;
  bool used = false;
  bool operator==(const UsedCard&) const = default;
};

// A profile or a fingerprint, with the place, time and way of its measurement: an entry of a file
// of results/profiles, a fingerprint's file, an outcome of a profile trial, or the values of a
// declared cluster.
struct ProfileOutcome {
  CellConfig config;
  Profile profile;
  std::optional<Fingerprint> fingerprint;
  // "measured", "imported", "declared", or a text if the file's statement cannot be trusted or the
  // numbers are of several kinds.
  std::string kind = kMeasured;
  bool declared = false;  // by a cluster's file, also if its card was measured
  std::optional<std::vector<CalibratedStep>> calibration;
  std::optional<std::vector<DescribedInput>> inputs;
  std::optional<UsedCard> card;
  std::string status, sampling, started_utc;
  std::optional<int> n;
  std::optional<double> seconds;
  // Facts of the trial that measured, as it tells them: who compares them knows their keys.
  nlohmann::json machine, system, software;
  // Other keys of a trial's outcome; the hash includes them.
  nlohmann::json beside = nlohmann::json::object();

  bool is_fingerprint() const { return config.is_fingerprint(); }
  bool operator==(const ProfileOutcome&) const = default;
};
using ProfileOutcomes = std::vector<ProfileOutcome>;

// Throw Error{kData} naming `whole`, key, value and the expected form.
nlohmann::json ToJson(const Profile& profile);
Fingerprint FingerprintOf(const nlohmann::json& stored, std::string_view whole = "fingerprint");
nlohmann::json ToJson(const Fingerprint& fingerprint);
ProfileOutcome ProfileOutcomeOf(const nlohmann::json& stored, std::string_view whole);
nlohmann::json ToJson(const ProfileOutcome& outcome);
nlohmann::json ToJson(const ProfileOutcomes& outcomes);

}  // namespace sparfuse::harness
