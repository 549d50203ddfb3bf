#include "core/device/status.hpp"

#include <charconv>
#include <cstdlib>
#include <mutex>
#include <string>

namespace sparfuse::gpu {
namespace {

constexpr std::string_view kContextLost =
    "the context is lost: this process can do nothing more on the device";
constexpr std::string_view kDriverTooOld =
    "the driver is older than the CUDA runtime of this build needs: update the driver, or build "
    "with an older toolkit (sparfuse doctor)";
constexpr std::string_view kNoDriver =
    "no CUDA device is visible: check the driver and CUDA_VISIBLE_DEVICES (sparfuse doctor)";
constexpr std::string_view kTaken =
    "the device is busy or in an exclusive compute mode: another process has it (sparfuse doctor)";
constexpr std::string_view kNotReady =
    "the driver is not ready: between cards of an NVSwitch it waits for nvidia-fabricmanager";
constexpr std::string_view kNoImage =
    "this build has no code for the device: compute capability 7.5 and newer (sparfuse doctor)";

// One injected fault, whose calls are counted over the process.
class Injection {
 public:
  void Set(std::string_view fault) {
    std::lock_guard lock(mutex_);
    read_ = true;
    Parse(fault);
  }

  int Next(std::string_view call) {
    std::lock_guard lock(mutex_);
    if (!read_) {
      read_ = true;
      const char* const fault = std::getenv("SPARFUSE_GPU_FAULT");
      Parse(fault == nullptr ? "" : fault);
    }
    if (status_ == kSuccess) return kSuccess;
    if (lost_) return status_;
    if (call != call_ || ++calls_ != nth_) return kSuccess;
    lost_ = MeaningOf(status_).sticky;
    return status_;
  }

 private:
  void Parse(std::string_view fault) {
    call_.clear();
    calls_ = nth_ = 0;
    status_ = kSuccess;
    lost_ = false;
    if (fault.empty()) return;
    const auto first = fault.find(':');
    const auto second = first == fault.npos ? fault.npos : fault.find(':', first + 1);
    bool good = second != fault.npos;
    if (good) {
      call_ = fault.substr(0, first);
      good =
          Number(fault.substr(first + 1, second - first - 1), &nth_) &&
          Number(fault.substr(second + 1), &status_) && nth_ >= 1 && status_ != kSuccess &&
          (call_ == "allocate" || call_ == "launch" || call_ == "copy" || call_ == "synchronize");
    }
    if (good) return;
    status_ = kSuccess;
    SPARFUSE_THROW(kConfig, "SPARFUSE_GPU_FAULT = \"", fault,
                   "\": expected CALL:NTH:STATUS with CALL one of allocate, launch, "
                   "copy, synchronize, NTH >= 1 and STATUS a number of cudaError_t");
  }

  static bool Number(std::string_view text, int* number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
    return error == std::errc() && end == text.data() + text.size();
  }

  std::mutex mutex_;
  bool read_ = false;
  bool lost_ = false;
  std::string call_;
  int calls_ = 0;
  int nth_ = 0;
  int status_ = kSuccess;
};

Injection& TheInjection() {
  static Injection injection;
  return injection;
}

}  // namespace

StatusMeaning MeaningOf(int status) {
  switch (status) {
    case kOutOfMemoryStatus:
      return {FailureKind::kOutOfMemory, false, ""};
    case 35:   // cudaErrorInsufficientDriver
    case 222:  // cudaErrorUnsupportedPtxVersion
    case 803:  // cudaErrorSystemDriverMismatch
    case 804:  // cudaErrorCompatNotSupportedOnDevice
      return {FailureKind::kUnsupported, false, kDriverTooOld};
    case 100:  // cudaErrorNoDevice
    case 101:  // cudaErrorInvalidDevice
      return {FailureKind::kUnsupported, false, kNoDriver};
    case 802:  // cudaErrorSystemNotReady
      return {FailureKind::kUnsupported, false, kNotReady};
    case 46:  // cudaErrorDevicesUnavailable
      return {FailureKind::kUnsupported, false, kTaken};
    case 209:  // cudaErrorNoKernelImageForDevice
      return {FailureKind::kUnsupported, false, kNoImage};
    case 214:  // cudaErrorECCUncorrectable
    case 220:  // cudaErrorNvlinkUncorrectable
    case 226:  // cudaErrorContained
    case 700:  // cudaErrorIllegalAddress
    case 702:  // cudaErrorLaunchTimeout
    case 710:  // cudaErrorAssert
    case 714:  // cudaErrorHardwareStackError
    case 715:  // cudaErrorIllegalInstruction
    case 716:  // cudaErrorMisalignedAddress
    case 717:  // cudaErrorInvalidAddressSpace
    case 718:  // cudaErrorInvalidPc
    case 719:  // cudaErrorLaunchFailure
    case 721:  // cudaErrorTensorMemoryLeak
      return {FailureKind::kInternal, true, kContextLost};
    default:
      return {};
  }
}

void CheckStatus(int status, std::string_view call, std::string_view text, std::string_view what) {
  if (status == kSuccess) return;
  const StatusMeaning meaning = MeaningOf(status);
  std::string message;
  if (!what.empty()) message = Concat(what, ": ");
  message += Concat(call, ": ", text, " (CUDA error ", status, ")");
  if (!meaning.advice.empty()) message += Concat("; ", meaning.advice);
  throw Error(meaning.kind, message);
}

int InjectedStatus(std::string_view call) { return TheInjection().Next(call); }

void InjectFault(std::string_view fault) { TheInjection().Set(fault); }

}  // namespace sparfuse::gpu
