// Reads clusters that nobody here has: files of results/profiles with declared numbers, each with
// its source and its range. They are calibrated if the file gives measured steps. They yield the
// form of a measured profile, so that the model sees no difference.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/collective/rounds.hpp"
#include "core/cost/collective_choice.hpp"
#include "harness/clusters/profile_folders.hpp"
#include "harness/files/toml_file.hpp"
#include "harness/records/cell_config.hpp"
#include "harness/records/profile.hpp"
#include "workloads/models/layers.hpp"

namespace sparfuse::harness {

// The outcomes of a file of results/profiles that were measured with one rank alone on its machine.
struct MeasuredCard {
  std::string name;  // of the file
  std::string kind;  // of its numbers: KindOfAll
  std::string hardware;
  ProfileOutcomes outcomes;

  // The outcome of the cell's workload, options, batch and threads; null if there is none.
  const ProfileOutcome* Of(const CellConfig& config) const;
  // The command that measures the cell's missing times into the file.
  std::string MeasureCommand(const CellConfig& config) const;
};

// Reads results/profiles/NAME.json. Throws Error{kConfig} if there is no such file, or if it has no
// outcome of one rank; Error{kData} as ReadProfiles.
MeasuredCard ReadCard(const ProfileFolders& profiles, const std::string& name);

// Factors on the card's work that a cell's `inputs` give, by group; 1 each by default.
struct CardFactors {
  double compute = 1;   // seconds of forward and backward
  double sparsify = 1;  // seconds of selections and encodings
  double memory = 1;    // bandwidth
  double kernel = 1;    // seconds of the smallest kernel: the start of a curve
};

// The times of a step of the card's workload, with the factors.
BackwardTimes BackwardOfCard(const ProfileOutcome& outcome, const CardFactors& factors);
// Replaces declared kernels by the card's: packing, averages, decompression, sums of collectives,
// dispatch, and the selections and encodings that were measured. Other kernels stay.
void PutKernelsOfCard(const ProfileOutcome& outcome, const CardFactors& factors, Profile& profile);

// A number that a cluster's file declares, or that calibration found.
struct DeclaredInput {
  std::string name;          // "inter_node_gbps"
  double value = 0;          // in the unit that the name ends with
  double low = 0, high = 0;  // its range
  std::string kind;          // of InputKinds(), or "calibrated"
  std::string source;
  std::string group = {};                  // the key of `inputs` that scales it
  std::vector<std::string> families = {};  // of workloads that it is for; empty: all
  bool calibrated = false;                 // by this file's references
  std::string remark = {};                 // on its calibration, if that does not determine it
};

// The times of a workload's forward and backward on one card.
struct ComputeTime {
  std::vector<std::string> families;  // the workloads that it is for
  std::string workload;
  int batch_per_worker = 0;
  double forward_seconds = 0, backward_seconds = 0;
  double spread = 1;  // both may be so many times as long or as short
  std::string kind, source;
};

// The times of a selection, or of an encoding, and of its decoding, as far as a table states them.
// Tables of one name may state different directions.
struct Coder {
  std::string name;      // of a sparsifier or a quantizer
  bool encodes = false;  // else as [selection_costs], or device memory, say
  double encode_seconds = 0, encode_seconds_per_element = 0;
  bool encodes_on_host = false;  // else at host_selection_ns_an_element, or as host memory streams
  double host_encode_seconds = 0, host_encode_seconds_per_element = 0;
  // By elements, if the file states several sizes in the place of the two numbers; else empty.
  ProfileCurve encode_curve, host_encode_curve;
  bool decodes = false;  // else as device memory streams
  double decode_seconds = 0, decode_seconds_per_rank = 0;
  double decode_seconds_per_element = 0, decode_seconds_per_element_and_rank = 0;
  double decode_seconds_per_entry = 0;
  double spread = 1;
  std::string kind, source;
};

// A published number that calibration reads, by its columns in results/published. `row`,
// "MODEL/WORKERS/NETWORK", chooses one if an artifact has several for a method.
struct CalibrationBar {
  std::string paper, artifact, method, row;
  std::string name() const {
    return paper + "/" + artifact + "/" + method + (row.empty() ? "" : "/" + row);
  }
};

enum class StepPart : std::uint8_t { kStep, kExposed, kSparsify };
inline constexpr const char* kStepPartNames[] = {"step", "exposed communication", "sparsification"};

// A step, or a part of one, that was measured on the cluster; calibration must reproduce it.
struct ReferenceStep {
  std::vector<std::string> families;  // the workloads that it is for
  std::string workload;
  int batch_per_worker = 0, workers = 0;
  std::string method;
  MethodChoice method_options;
  std::string feedback = "none";
  std::string sparsifier;  // "none": it sends dense gradients
  double density = 1;
  std::optional<LinkShape> link;  // another than the cluster's
  StepPart part = StepPart::kStep;
  // The other step, if a ratio was measured: this step takes `measured` times as long as that one.
  std::shared_ptr<const ReferenceStep> over;
  double measured = 0;  // seconds, or times
  double spread = 1;    // it may have taken so many times as long or as short
  double modelled = 0;  // after calibration
  // The relative error of the modelled value: 0.1 is 10 % too long.
  double off() const { return modelled / measured - 1; }
  std::optional<CalibrationBar> bar;
  std::string source;
};

// The published numbers behind the step: two if it is a ratio.
std::vector<CalibrationBar> BarsOf(const ReferenceStep& step);

// All-reduces of `ranks` that were measured one by one.
struct OperationCurve {
  int ranks = 0;
  std::vector<std::pair<double, double>> seconds;  // by bytes
  std::string kind, source;
};

// How a dense all-reduce is done.
enum class AllReduceBy : std::uint8_t { kRing, kTree, kTwoLevel, kNccl2_8, kNccl2_20 };
inline constexpr const char* kAllReduceNames[] = {"ring", "tree", "two-level", "nccl-2.8",
                                                  "nccl-2.20"};

inline constexpr const char* kAllGatherNames[] = {"ring", "two-level"};  // of AllGatherBy

// Whether the host prepares the next exchange while one is on the way, or waits for its end.
enum class HostBy : std::uint8_t { kBeside, kInLine };
inline constexpr const char* kHostNames[] = {"beside", kHostInLine};

// Whether selections that a method places beside backward run there, or within backward's hooks,
// where all selections of the software synchronise with the device.
enum class SelectionsBy : std::uint8_t { kBeside, kInHooks };
inline constexpr const char* kSelectionsNames[] = {"beside", kSelectionsInHooks};

// The unit of exchange_host_ns_an_element if an exchange carries payloads: each element that it
// covers, or each 8 bytes that a rank sends or receives.
enum class StagingOf : std::uint8_t { kElements, kPayloads };
inline constexpr const char* kStagingNames[] = {"elements", kStagingPayloads};

// Whether the software sends rank 0's buffers to all ranks before each forward pass, and how:
// around a ring of all ranks, in pieces, or down a binomial tree.
enum class BuffersBy : std::uint8_t { kLocal, kRing, kTree };
inline constexpr const char* kBuffersNames[] = {"local", "ring", "tree"};

struct DeclaredCluster {
  std::string name, title, source, hardware;
  int nodes = 1, ranks_per_node = 1;
  double card_gbytes = 0;             // of memory, 10^9 bytes; 0: not stated
  std::vector<DeclaredInput> inputs;  // the calibrated ones included
  std::vector<ComputeTime> compute;
  std::vector<Coder> coders;
  AllReduceBy all_reduce = AllReduceBy::kRing;
  AllGatherBy all_gather = AllGatherBy::kRing;
  HostBy host = HostBy::kBeside;
  SelectionsBy selections = SelectionsBy::kBeside;
  StagingOf staging = StagingOf::kElements;
  BuffersBy buffers = BuffersBy::kLocal;
  NcclMachine nccl;  // without links; of kNccl*
  std::vector<OperationCurve> curves;
  std::vector<ReferenceStep> references;
  std::string calibrated_on;  // another cluster, whose calibration this one takes over
  std::string stack;          // the software whose inputs replace missing ones of the file; or ""
  std::map<std::string, double> selection_costs;  // by sparsifier, times the selection_* inputs
  std::optional<MeasuredCard> card;               // its times replace the file's

  int ranks() const { return nodes * ranks_per_node; }
  // The file's value for a workload's family, else the default of InputSpecs(). Error{kInternal} if
  // there is no default.
  double Value(std::string_view input, std::string_view family = {}) const;
  // The bytes of a cell's buffers that are broadcast before each forward pass: 0 with one rank, and
  // if the software leaves buffers to each rank.
  double BroadcastBytes(const CellConfig& config) const;
  const DeclaredInput* Find(std::string_view input, std::string_view family = {}) const;
  DeclaredInput* Find(std::string_view input, std::string_view family = {});
  // The time for the workload's family; null if compute_tflops must give it.
  const ComputeTime* ComputeOf(const std::string& workload) const;
  // A choice that the file states, and its stack states otherwise: "host = "beside", and ...".
  std::vector<std::string> against_stack;
  // Throws Error{kConfig} saying what the file lacks for this workload or sparsifier.
  void CheckWorkload(const std::string& workload) const;
  void CheckSparsifier(const std::string& sparsifier) const;
  // As above, for a cell, whose card may have been measured.
  void CheckWorkload(const CellConfig& config) const;
  void CheckSparsifier(const CellConfig& config) const;
  // The card's measurement of the cell. Null without a card, or if it lacks the workload and the
  // file has a [[compute]] for it. If neither has it, throws Error{kConfig} with the command that
  // measures it.
  const ProfileOutcome* MeasuredOf(const CellConfig& config) const;
};

struct InputSpec {
  const char* name;
  const char* group;
  Range values;
  std::optional<double> otherwise;  // if the file has none; nothing: the file must have it
  const char* meaning;
  bool of_stack = false;  // a stack's file may state it
};
std::span<const InputSpec> InputSpecs();

// The kind of numbers from a trace of training (harness/traces).
inline constexpr const char* kTraceKind = "measured: trace";

// The kinds of values in a file, and for each the factor by which a value may be off either way if
// its range is not given.
struct InputKind {
  const char* name;
  double spread;
};
std::span<const InputKind> InputKinds();

// The groups of inputs that a cell's `inputs` may scale:
//
//   compute        seconds of forward and backward
//   sparsify       seconds of selections and encodings
//   host_overhead  seconds of the host for an exchange
//   host_staging   seconds of the host that grow with the exchange's content
//   latency        seconds a round
//   bandwidth      of links
//   memory         bandwidth of the device's memory: packing, decompression, update
//   kernel         seconds of the smallest kernel
//   host           bandwidth to and on the host: offloaded selections
//   side           seconds of selections beside backward, at least as long as alone
//   overlap        at most 1
const std::vector<std::string>& InputGroups();

// The table's times of a step on one card, if it has all of them; else null.
const workloads::MeasuredTimes* MeasuredTimesOf(const std::string& workload);

// The optimizer's time on one card: momentum, over device memory.
double UpdateSeconds(const DeclaredCluster& cluster, const std::string& workload);
double UpdateSeconds(const DeclaredCluster& cluster, std::size_t elements);

bool IsDeclared(const ProfileFolders& profiles, const std::string& cluster);

// Reads, checks and calibrates. Throws Error{kConfig} naming file, line, key, value and the
// expected form. Cost: if it calibrates, it simulates some hundred steps, at most half a second;
// once for each file.
const DeclaredCluster& LoadDeclaredCluster(const ProfileFolders& profiles,
                                           const std::string& cluster);
// As above, of a file that is read already. `profiles` has the cluster that it may refer to.
// left_out: workloads whose references, here or of that cluster, do not calibrate anything. Inputs
// that no other reference determines stay as declared. Families of left-out workloads take the
// input of the first family that is left.
DeclaredCluster ParseDeclaredCluster(const TomlFile& file, const ProfileFolders& profiles,
                                     const std::vector<std::string>& left_out = {});

// The cluster within the ranges of its inputs. Each value is drawn between its ends, with the
// declared value as the median; the times of its card are drawn within their errors of measurement.
// Then the cluster is calibrated again. Equal draws give equal values to inputs of equal names, on
// every cluster. draw 0: as declared.
const DeclaredCluster& DrawnCluster(const ProfileFolders& profiles, const std::string& cluster,
                                    int draw);

// The inputs that draws vary: inputs whose ends differ, of the cluster and of the cluster that its
// calibration comes from. Among them are "compute/WORKLOAD", "coder/NAME", and the steps that
// calibration must meet, "reference/WORKLOAD/METHOD/WORKERS/PART". A coder that does not encode is
// "coder/NAME/host_encode" or "coder/NAME/decode".
std::string NameOfInput(const ReferenceStep& step);
std::string NameOfInput(const Coder& coder);
std::vector<std::string> OpenInputs(const ProfileFolders& profiles, const std::string& cluster);

// The cluster with one of its open inputs at an end of its range and the others as declared; then
// calibrated again.
enum class RangeEnd : std::uint8_t { kLow, kHigh };
DeclaredCluster ClusterAtEnd(const ProfileFolders& profiles, const std::string& cluster,
                             const std::string& input, RangeEnd end);

// One outcome in the form of a profile trial's, for the cell's workload, batch and `inputs`: links
// by class, calibrated values, all inputs, and the use of the card. Imported values and the card
// are named in its kind. If all values are declared, the kind is the word "declared" alone.
ProfileOutcomes DeclaredProfile(const DeclaredCluster& cluster, const CellConfig& config);

// The links of DeclaredProfile between nodes and, if nodes have several ranks, within them, as a
// shape that can be emulated. Efficiencies and the number of a node's cards are included. The link
// of `config` does not count. The time of a further message (message_us) is not included.
LinkShape LinksOf(const DeclaredCluster& cluster, const CellConfig& config);

}  // namespace sparfuse::harness
