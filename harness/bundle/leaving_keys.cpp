// Lists the keys that leave this machine: the lists of redaction.hpp. Those of a cell are in its
// table (harness/records/cell_config.cpp).
#include "harness/bundle/redaction.hpp"
#include "harness/records/cell_config.hpp"
#include "harness/records/record.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// A System (harness/records/node.hpp).
constexpr const char* kSystem = R"({
  "cpu_model": "words", "cores": "number", "memory_gib": "number", "gpus": ["words"],
  "kernel": "words", "cluster": "data", "profile_hash": "hash",
  "kind": "words", "name": "data", "source": "citation"
})";

// A Node of a system.
constexpr const char* kNode = R"({
  "cpu_model": "words", "cores": "number", "memory_gib": "number", "gpus": ["words"],
  "network": [{"kind": "data", "gbps": "data"}]
})";

// As the worker finds it, and what a declared profile says of the cluster.
constexpr const char* kMachine = R"({
  "placement": "hosts", "communication_threads": "data", "cores": "number", "kernels": "data",
  "cuda_devices": "number", "cards": ["words"], "load_before": "data",
  "hardware": "words", "source": "words",
  "gpus": {
    "driver": "data", "cuda": "data",
    "cards": [{"index": "number", "name": "words", "sm_clock": "data", "memory_clock": "data",
               "held_down_by": "data", "ecc": "data", "power_limit_watts": "number",
               "mig": "data"}],
    "topology": "data"
  }
})";

constexpr const char* kQuiet = R"({
  "other_cpu": "number", "stolen": "number", "resolution": "number", "seconds": "number",
  "cores": "number", "quota": "number", "own_cpu_seconds": "number",
  "involuntary_switches": "number", "pressure": "number", "load": "data", "clock_mhz": "data",
  "loop_seconds": "data", "limits": "data", "slowdown": "number", "disturbed": "number",
  "causes": "data", "why": "words"
})";

// What a list calls a way to leave.
const char* NameOf(Leaves leaves) {
  switch (leaves) {
    case Leaves::kData:
      return "data";
    case Leaves::kOption:
      return "option";
    case Leaves::kWords:
      return "words";
    case Leaves::kCitation:
      return "citation";
    case Leaves::kHash:
      return "hash";
    case Leaves::kPlace:
      return "place";
  }
  return "";
}

// As the record's table says.
template <class Record>
json FormOf() {
  json form = json::object();
  for (const RecordKey<Record>& key : KeysOf<Record>()) {
    const std::string type = key.type_text(key);
    const bool number = type.starts_with("integer") || type.starts_with("number");
    const json how = number ? "number" : NameOf(key.leaves);
    // Data and options are of any depth; a list of places is one of names.
    const bool places = key.leaves == Leaves::kPlace && type.starts_with("list");
    form[key.name] = places ? json::array({how}) : how;
  }
  return form;
}

json CellForm() {
  json form = FormOf<CellConfig>();
  form["dense_tensors"] = FormOf<DenseTensors>();
  // Of results of others.
  form["metric"] = "option";
  form["network_gbps"] = "number";
  return form;
}

constexpr const char* kImportedFrom = R"({
  "file": "words", "sha256": "hash", "stated": "words", "deviation": "number", "steps": "number",
  "standard_error": "number", "implied_gbps": "data", "doubt": "words"
})";

constexpr const char* kTrial = R"({
  "schema": "number", "trial_id": "place", "original_id": "place", "origin": "hash",
  "redaction": "number", "experiment": "place", "part": "place", "block": "number",
  "seed": "number", "status": "option",
  "failure": {"kind": "option", "rank": "number", "signal": "number"},
  "metrics": {"*": {"value": "number", "unit": "option"}}, "checks": {"*": "number"},
  "series": {"*": {"rows": "number", "sampling": "words", "units": "data"}},
  "config_hash": "hash", "system_hash": "hash", "revisions": {"*": "number"},
  "sources": {"*": "hash"}, "source": {"commit": "data", "dirty": "number"},
  "software": {"compiler": "words", "cuda_build": "words"}, "sampling": "words",
  "environment": {"OMP_NUM_THREADS": "number", "MKL_NUM_THREADS": "number",
                  "OPENBLAS_NUM_THREADS": "number", "NCCL_ALGO": "data", "NCCL_PROTO": "data",
                  "NCCL_NTHREADS": "data", "NCCL_MIN_NCHANNELS": "data",
                  "NCCL_MAX_NCHANNELS": "data", "NCCL_BUFFSIZE": "data",
                  "NCCL_P2P_DISABLE": "data", "NCCL_P2P_LEVEL": "data", "NCCL_SHM_DISABLE": "data",
                  "NCCL_IB_DISABLE": "data", "NCCL_NET_GDR_LEVEL": "data",
                  "CUDA_VISIBLE_DEVICES": "data"},
  "launch": {"id": "place", "trials": "number", "start_seconds": "number",
             "binding": {"hosts": "hosts", "cores": "data", "numa": "data", "interface": "data"},
             "network": {"interface": "data", "hosts": "hosts", "bytes": "data", "others": "data"},
             "clocks": {"hosts": "hosts", "offset_seconds": "data", "drift_ppm": "data",
                        "drift_uncertainty_ppm": "data", "uncertainty_seconds": "data"}},
  "rounds": "data",
  "fingerprint": {
    "id": "place", "taken_utc": "data", "ranks": "number", "ranks_per_node": "number",
    "threads": "number", "device": "option", "transport": "option", "link": "option",
    "all_reduce": "option", "all_gather": "option",
    "quantities": {"*": {"value": "number", "low": "number", "high": "number", "n": "number",
                         "unit": "option", "worst": {"value": "number", "ranks": ["number"]}}},
    "changed": ["words"]
  },
  "draws": "data",
  "layout": [{"name": "place", "shape": "data", "numel": "number", "dense": "number"}],
  "started_utc": "data", "seconds": "number", "files": "data"
})";

constexpr const char* kOutcome = R"({
  "status": "option", "plan": "data",
  "plans": "option", "profile": "option", "selection": "option", "turn_seconds": "number",
  "selection_counters": "data", "assumed": "data", "n": "number",
  "calibration": "data", "inputs": "data",
  "card": {"name": "data", "kind": "words", "hardware": "words", "used": "number"}, "table": {"source": "words", "measured_on": "words"},
  "metrics": {"*": {"value": "number", "unit": "option"}}, "checks": {"*": "number"},
  "layout": [{"name": "place", "shape": "data", "numel": "number", "dense": "number"}]
})";

constexpr const char* kAnnotation = R"({
  "annotation_id": "place", "trial_id": "place", "reason": "words", "created_utc": "data",
  "redaction": "number"
})";

json MachineForm() {
  json form = json::parse(kSystem);
  form["nodes"] = json::array({json::parse(kNode)});
  form["machine"] = form;
  return form;
}

}  // namespace

const json& ConfigForm() {
  static const json kForm = [] {
    json form = CellForm();
    form.update(FormOf<TrialConfig>());
    form["python_files"] = json::object();  // paths: the table stays empty
    return form;
  }();
  return kForm;
}

const json& TrialForm() {
  static const json kForm = [] {
    json form = json::parse(kTrial);
    form["config"] = CellForm();
    form["system"] = MachineForm();
    form["launch"]["nodes"] = form["system"]["nodes"];
    form["launch"]["nodes"][0]["count"] = "number";
    form["machine"] = json::parse(kMachine);
    form["quiet"] = json::parse(kQuiet);
    form["imported"] = json::parse(kImportedFrom);
    return form;
  }();
  return kForm;
}

const json& OutcomeForm() {
  static const json kForm = [] {
    json form = json::parse(kOutcome);
    form["machine"] = json::parse(kMachine);
    form["software"] = TrialForm()["software"];
    return form;
  }();
  return kForm;
}

const json& AnnotationForm() {
  static const json kForm = json::parse(kAnnotation);
  return kForm;
}

}  // namespace sparfuse::harness
