// Tests that quantizers on a device give the host's bytes, residuals and sums.
#include <limits>
#include <memory>
#include <random>

#include "core/base/error.hpp"
#include "core/coding/quantizers/quantizer.hpp"
#include "core/payload/accumulate_device.hpp"
#include "tests/support/devices/device_arrays.hpp"

namespace sparfuse {
namespace {

// "normal"; "tiny" and "huge", whose squares leave single precision; "mixed", with blocks of all of
// these and zeros; "signed zeros".
std::vector<float> Data(const std::string& kind, std::size_t n) {
  std::mt19937 random(static_cast<std::uint32_t>(n));
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t part = kind == "mixed" ? i / 300 % 4 : 0;
    const float scale = kind == "tiny" || part == 1   ? 1e-30f
                        : kind == "huge" || part == 2 ? 1e30f
                                                      : 1.0f;
    x[i] =
        part == 3 || kind == "signed zeros" ? (i % 2 == 0 ? 0.0f : -0.0f) : normal(random) * scale;
  }
  return x;
}

class Staged final : public Quantizer {
 public:
  explicit Staged(std::unique_ptr<Quantizer> of) : of_(std::move(of)) {}
  std::string_view name() const noexcept override { return of_->name(); }
  std::size_t EncodedBytes(std::size_t n) const override { return of_->EncodedBytes(n); }
  double ErrorBound(std::size_t n) const override { return of_->ErrorBound(n); }
  void Encode(const QuantizeContext& context, const SelectSource& source, const TensorInfo& info,
              std::span<std::byte> out) const override {
    of_->Encode(context, source, info, out);
  }
  void AddDecoded(std::span<const std::byte> payload, std::size_t n, std::size_t begin,
                  std::span<float> out) const override {
    of_->AddDecoded(payload, n, begin, out);
  }

 private:
  std::unique_ptr<Quantizer> of_;
};

class QuantizeDevice : public OnDevices {
 protected:
  struct Encoded {
    std::vector<std::byte> bytes;
    std::vector<float> residual;
    std::uint32_t not_finite = 0;
  };

  DeviceContext Context(const std::uint32_t* only_if = nullptr) {
    return {stream(), &workspace(), only_if, &host_};
  }

  Encoded OnHost(const Quantizer& quantizer, const std::vector<float>& gradient,
                 std::vector<float> residual) {
    std::vector<std::byte> bytes(quantizer.EncodedBytes(gradient.size()), std::byte{0x5a});
    quantizer.Encode(
        {&pool_, &host_workspace_, kRank},
        {{gradient.data(), gradient.size(), {}}, {residual.data(), residual.size(), {}}}, info_,
        bytes);
    return {bytes, residual, 0};
  }

  Encoded OnDevice(const Quantizer& quantizer, const std::vector<float>& gradient,
                   const std::vector<float>& residual, std::size_t offset = 0) {
    const DeviceArray<float> from(stream(), gradient, offset);
    const DeviceArray<float> kept(stream(), residual, offset + 1);
    const std::size_t bytes = quantizer.EncodedBytes(gradient.size());
    const DeviceArray<std::byte> out(stream(), std::vector<std::byte>(bytes + 4, std::byte{0x5a}),
                                     4 * offset);
    const DeviceArray<std::uint32_t> not_finite(stream(), 1);
    quantizer.EncodeOnDevice(Context(), kRank, {from.read(), kept.view()}, info_,
                             {out.data(), bytes, stream()}, not_finite.data());
    Encoded encoded{out.ToHost(), kept.ToHost(), not_finite.ToHost()[0]};
    for (std::size_t i = bytes; i < bytes + 4; ++i) EXPECT_EQ(encoded.bytes[i], std::byte{0x5a});
    encoded.bytes.resize(bytes);
    return encoded;
  }

  void ExpectSame(const Quantizer& quantizer, const std::vector<float>& gradient,
                  const std::vector<float>& residual, std::size_t offset = 0) {
    const Encoded host = OnHost(quantizer, gradient, residual);
    const Encoded device = OnDevice(quantizer, gradient, residual, offset);
    EXPECT_EQ(device.bytes, host.bytes);
    EXPECT_EQ(Bits(device.residual), Bits(host.residual));
    EXPECT_EQ(device.not_finite, 0u);
  }

  // The fault that a sum of these payloads of n elements notes.
  std::uint64_t FaultOf(const Quantizer& quantizer,
                        const std::vector<std::vector<std::byte>>& payloads, std::size_t n) {
    std::vector<DeviceArray<std::byte>> there;
    std::vector<const std::byte*> places;
    for (const auto& payload : payloads) {
      there.emplace_back(stream(), payload);
      places.push_back(there.back().data());
    }
    const DeviceArray<float> out(stream(), n);
    const DeviceArray<std::uint64_t> fault(stream(), 1);
    quantizer.AccumulateOnDevice(Context(), places, 1.0f, out.view(), fault.data());
    return fault.ToHost()[0];
  }

  static constexpr int kRank = 3;
  TensorInfo info_{2, "w", {}, 11};
  ThreadPool pool_{1};
  Workspace host_workspace_;
  SelectCounters counters_;
  SelectContext host_{&pool_, &host_workspace_, &counters_, {}};
};
INSTANTIATE_TEST_SUITE_P(Devices, QuantizeDevice, TheDevices(), DeviceName);

struct Form {
  std::string name;
  std::vector<std::pair<std::string, std::int64_t>> options;
};

const Form kForms[] = {{"fp32", {}},
                       {"fp16", {}},
                       {"sign", {}},
                       {"qsgd", {}},
                       {"qsgd", {{"bucket", 0}}},
                       {"qsgd", {{"bucket", 64}, {"levels", 1}}},
                       {"qsgd", {{"bucket", 128}}},
                       {"qsgd", {{"bucket", 4096}, {"levels", 7}}}};

std::unique_ptr<Quantizer> Make(const Form& form) {
  const QuantizerDescriptor& descriptor = FindQuantizer(form.name);
  Options given;
  for (const auto& [name, value] : form.options) given[name] = value;
  return descriptor.make(ResolveOptions("test", descriptor.options, given), 5);
}

TEST_P(QuantizeDevice, EncodesTheHostsBytes) {
  for (const Form& form : kForms) {
    const auto quantizer = Make(form);
    EXPECT_TRUE(quantizer->WorksOnDevice());
    for (const std::size_t n : {1, 2, 31, 33, 65, 511, 4095, 4097, 9001}) {
      SCOPED_TRACE(form.name + " " + std::to_string(n));
      const std::vector<float> gradient = Data("normal", n);
      ExpectSame(*quantizer, gradient, {});
      ExpectSame(*quantizer, gradient, Data("tiny", n), n % 3);
      ExpectSame(*quantizer, gradient, Data("signed zeros", n), 4);
    }
    for (const char* kind : {"tiny", "huge", "mixed", "signed zeros"}) {
      SCOPED_TRACE(form.name + " " + kind);
      ExpectSame(*quantizer, Data(kind, 5000), {});
      ExpectSame(*quantizer, Data(kind, 5000), Data("mixed", 5000));
    }
  }
}

TEST_P(QuantizeDevice, NotesWhatIsNotFinite) {
  for (const Form& form : kForms) {
    const auto quantizer = Make(form);
    std::vector<float> gradient = Data("normal", 6000);
    gradient[5999] = std::numeric_limits<float>::quiet_NaN();
    gradient[4500] = -std::numeric_limits<float>::infinity();
    EXPECT_EQ(OnDevice(*quantizer, gradient, {}).not_finite, NotFiniteCode(4500)) << form.name;
    gradient[5999] = gradient[4500] = std::numeric_limits<float>::max();
    EXPECT_EQ(OnDevice(*quantizer, gradient, gradient).not_finite, NotFiniteCode(4500));
  }
}

TEST_P(QuantizeDevice, ChecksItsArguments) {
  const auto quantizer = Make(kForms[1]);
  const DeviceArray<float> x(stream(), 10);
  const DeviceArray<std::byte> out(stream(), 20);
  const DeviceArray<std::uint32_t> word(stream(), 1);
  const auto encode = [&](DeviceSpan<const float> gradient, std::size_t bytes) {
    quantizer->EncodeOnDevice(Context(), 0, {gradient, {}}, info_, {out.data(), bytes, stream()},
                              word.data());
  };
  encode(x.read(), 20);
  EXPECT_THROW(encode(x.read(), 16), Error);
  EXPECT_THROW(encode({x.data(), 0, stream()}, 0), Error);
  EXPECT_THROW(encode({x.data(), 10, {}}, 20), Error);  // memory on the host
  gpu::Synchronize(stream());
}

TEST_P(QuantizeDevice, AddsUpTheHostsSums) {
  for (const Form& form : kForms) {
    const auto quantizer = Make(form);
    const Staged staged(Make(form));
    for (const std::size_t payloads : {1, 3, 35}) {
      const std::size_t n = payloads == 3 ? 5003 : 1333;
      std::vector<std::vector<std::byte>> encoded;
      std::vector<std::span<const std::byte>> views;
      std::vector<std::unique_ptr<DeviceArray<std::byte>>> on_device;
      std::vector<const std::byte*> pointers;
      for (std::size_t p = 0; p < payloads; ++p) {
        std::vector<float> x = Data("normal", n);
        for (float& v : x) v *= static_cast<float>(p + 1);
        encoded.push_back(OnHost(*quantizer, x, {}).bytes);
        on_device.push_back(std::make_unique<DeviceArray<std::byte>>(stream(), encoded[p], 4));
        pointers.push_back(on_device[p]->data());
      }
      for (const auto& bytes : encoded) views.emplace_back(bytes);
      for (const float scale : {1.0f, 1.0f / 3}) {
        std::vector<float> expected(n);
        AccumulateQuantized(*quantizer, views, scale, expected, pool_);
        const DeviceArray<std::uint64_t> fault(stream(), 1);
        for (const Quantizer* by :
             std::initializer_list<const Quantizer*>{quantizer.get(), &staged}) {
          const DeviceArray<float> out(stream(), std::vector<float>(n + 1, 7.0f), 1);
          by->AccumulateOnDevice(Context(), pointers, scale, {out.data(), n, stream()},
                                 fault.data());
          std::vector<float> found = out.ToHost();
          EXPECT_EQ(found.back(), 7.0f);
          found.pop_back();
          EXPECT_EQ(Bits(found), Bits(expected)) << form.name << " " << payloads;
        }
        EXPECT_EQ(fault.ToHost()[0], 0u);
      }
    }
  }
}

TEST_P(QuantizeDevice, NotesCorruptPayloads) {
  for (const Form& form : kForms) {
    const auto quantizer = Make(form);
    const std::vector<std::byte> good = OnHost(*quantizer, Data("normal", 300), {}).bytes;
    std::vector<std::byte> bad = good;
    bad[1] = bad[2] = bad[3] = std::byte{0xff};  // a NaN in every format
    const std::uint64_t found = FaultOf(*quantizer, {good, bad}, 300);
    EXPECT_EQ(~found >> 32, 1u) << form.name;
    EXPECT_THROW(CheckPayloadFault(found), Error);
  }
}

TEST_P(QuantizeDevice, NotesTheFirstCorruptElement) {
  constexpr std::size_t kElements = 5003;
  constexpr std::uint32_t kNone = 0xffffffffu;
  // The byte of a word of ones in the second payload, and the first element that the word spoils.
  const struct {
    Form form;
    std::size_t byte;
    std::uint32_t element;
  } cases[] = {{kForms[0], 4 * 4999, 4999},
               {kForms[1], 2 * 4998, 4998},
               {kForms[1], 2 * 5002 + 2, kNone},  // behind the last half
               {kForms[2], 0, 0},
               {kForms[3], 4 * 7, 7 * 512},
               {kForms[4], 0, 0},
               {kForms[5], 4 * 70, 70 * 64},
               {kForms[6], 4 * 39, 39 * 128},
               {kForms[7], 4, 4096}};
  for (const auto& [form, byte, element] : cases) {
    SCOPED_TRACE(form.name + " " + std::to_string(byte));
    const auto quantizer = Make(form);
    const std::vector<std::byte> good = OnHost(*quantizer, Data("normal", kElements), {}).bytes;
    std::vector<std::byte> bad = good;
    for (std::size_t b = byte; b < byte + 4 && b < bad.size(); ++b) bad[b] = std::byte{0xff};
    EXPECT_EQ(FaultOf(*quantizer, {good, bad, good}, kElements),
              element == kNone ? 0 : ~(std::uint64_t{1} << 32 | element));
  }
}

TEST_P(QuantizeDevice, ThroughTheHostWhereThereAreNoKernels) {
  const Staged staged(Make(kForms[3]));
  EXPECT_FALSE(staged.WorksOnDevice());
  ExpectSame(staged, Data("normal", 700), Data("normal", 700), 1);
}

TEST_P(QuantizeDevice, DoesNothingWhereItIsLeftOut) {
  const DeviceArray<std::uint32_t> no(stream(), 1);
  const DeviceArray<float> x(stream(), Data("normal", 500));
  for (const Form& form : kForms) {
    const auto quantizer = Make(form);
    const Staged staged(Make(form));
    for (const Quantizer* by : std::initializer_list<const Quantizer*>{quantizer.get(), &staged}) {
      const DeviceArray<std::byte> out(stream(), by->EncodedBytes(500));
      const DeviceArray<float> residual(stream(), Data("mixed", 500));
      const DeviceArray<std::uint32_t> word(stream(), 1);
      by->EncodeOnDevice(Context(no.data()), 0, {x.read(), residual.view()}, info_, out.view(),
                         word.data());
      EXPECT_EQ(out.ToHost(), std::vector<std::byte>(out.size()));
      EXPECT_EQ(Bits(residual.ToHost()), Bits(Data("mixed", 500)));
    }
  }
}

}  // namespace
}  // namespace sparfuse
