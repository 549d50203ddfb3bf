// Encodes and sums up on a device, for the quantizers' EncodeOnDevice and AccumulateOnDevice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/quantize/quantizer.hpp"

namespace sparfuse {

// Arguments of Quantizer::EncodeOnDevice.
struct DeviceEncode {
  const DeviceContext& context;
  const SelectSource& source;
  DeviceSpan<std::byte> out;
  std::uint32_t* not_finite;
};

// The arguments of Quantizer::EncodeOnDevice, checked. Throws Error{kConfig}; Error{kInternal} for
// memory that is not on the stream's device.
DeviceEncode CheckedEncode(const Quantizer& quantizer, const DeviceEncode& encode,
                           const TensorInfo& info);

// Bytes of the codes are described in fp32.cpp, fp16.cpp, qsgd.cpp, sign.cpp.
void EncodeFp32OnDevice(const DeviceEncode& encode);
void EncodeFp16OnDevice(const DeviceEncode& encode);
void EncodeSignOnDevice(const DeviceEncode& encode);

// Buckets of `bucket` elements, or one (0), of the numbers of `key`'s RandomStream.
struct QsgdForm {
  float levels;
  std::size_t bucket;
  std::size_t codes_at;  // bytes of the norms
};
void EncodeQsgdOnDevice(const DeviceEncode& encode, const QsgdForm& form, std::uint64_t key);

// Arguments of Quantizer::AccumulateOnDevice.
struct DeviceAccumulate {
  const DeviceContext& context;
  std::span<const std::byte* const> payloads;
  float scale;
  DeviceSpan<float> out;
  std::uint64_t* fault;
};

void AccumulateFp32OnDevice(const DeviceAccumulate& accumulate);
void AccumulateFp16OnDevice(const DeviceAccumulate& accumulate);
void AccumulateQsgdOnDevice(const DeviceAccumulate& accumulate, const QsgdForm& form);
void AccumulateSignOnDevice(const DeviceAccumulate& accumulate);

}  // namespace sparfuse
