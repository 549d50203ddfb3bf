// Lists the keys that leave this machine: the tables of redaction.hpp.
#include "harness/bundle/redaction.hpp"

namespace sparfuse::harness {
namespace {

using nlohmann::json;

// Hardware and software of a machine, as harness/machine/system.hpp describes it.
constexpr const char* kSystem = R"({
  "cpu_model": "words", "cores": "number", "memory_gib": "number", "gpus": ["words"],
  "kernel": "words", "cluster": "data", "profile_hash": "hash",
  "kind": "words"
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

constexpr const char* kConfig = R"({
  "kind": "data", "mode": "data", "workload": "data", "workload_options": "data", "recipe": "data",
  "workers": "number", "ranks_per_node": "number", "threads_per_worker": "number",
  "batch_per_worker": "number", "accumulation": "number", "transport": "data", "device": "data",
  "precision": "data", "link": "data", "warmup_steps": "number", "steps": "number",
  "deadline_seconds": "number", "method": "data", "method_content": "hash",
  "method_options": "data", "sparsifier": "data", "sparsifier_options": "data",
  "density": "number", "feedback": "data", "feedback_options": "data", "dense_tensors": {"max_ndim": "number", "names": ["place"]},
  "no_feedback_tensors": ["place"], "evaluate_every": "number", "target": "number",
  "cluster": "data", "inputs": "data", "sparsifiers": "data", "quantizers": "data"
})";

constexpr const char* kTrial = R"({
  "schema": "number", "trial_id": "place", "original_id": "place", "origin": "hash",
  "redaction": "number", "experiment": "place", "part": "place", "block": "number",
  "seed": "number", "status": "data",
  "failure": {"kind": "data", "rank": "number", "signal": "number"},
  "metrics": {"*": {"value": "number", "unit": "data"}}, "checks": {"*": "number"},
  "series": {"*": {"rows": "number", "sampling": "words", "units": "data"}},
  "config_hash": "hash", "system_hash": "hash", "revisions": {"*": "number"},
  "sources": {"*": "hash"}, "source": {"commit": "data", "dirty": "number"},
  "software": {"compiler": "words", "cuda_build": "words"}, "sampling": "words",
  "environment": {"OMP_NUM_THREADS": "number", "MKL_NUM_THREADS": "number",
                  "OPENBLAS_NUM_THREADS": "number"},
  "launch": {"id": "place", "trials": "number", "start_seconds": "number"}, "rounds": "data",
  "draws": "data",
  "layout": [{"name": "place", "shape": "data", "numel": "number", "dense": "number"}],
  "started_utc": "data", "seconds": "number", "files": "data"
})";

constexpr const char* kOutcome = R"({
  "status": "data", "plan": "data",
  "plans": "data", "profile": "data", "selection": "data", "turn_seconds": "number",
  "selection_counters": "data", "assumed": "data", "n": "number",
  "calibration": "data", "inputs": "data",
  "card": {"name": "data", "kind": "words", "hardware": "words", "used": "number"}, "table": {"source": "words", "measured_on": "words"},
  "metrics": {"*": {"value": "number", "unit": "data"}}, "checks": {"*": "number"},
  "layout": [{"name": "place", "shape": "data", "numel": "number", "dense": "number"}]
})";

constexpr const char* kAnnotation = R"({
  "annotation_id": "place", "trial_id": "place", "reason": "words", "created_utc": "data",
  "redaction": "number"
})";

json MachineForm() {
  json form = json::parse(kSystem);
  form["machine"] = json::parse(kSystem);
  return form;
}

}  // namespace

const json& ConfigForm() {
  static const json kForm = [] {
    json form = json::parse(kConfig);
    form["trial_id"] = "place";
    for (const char* key : {"seed", "block"}) form[key] = "number";
    form["python_files"] = json::object();  // paths: the table stays empty
    return form;
  }();
  return kForm;
}

const json& TrialForm() {
  static const json kForm = [] {
    json form = json::parse(kTrial);
    form["config"] = json::parse(kConfig);
    form["system"] = MachineForm();
    form["machine"] = json::parse(kMachine);
    form["quiet"] = json::parse(kQuiet);
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
