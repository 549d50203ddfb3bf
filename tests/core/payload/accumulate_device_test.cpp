// Tests that payloads are summed and merged on a device with the host's bits.
#include "core/payload/accumulate_device.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <random>

#include "tests/support/devices/device_arrays.hpp"
#include "tests/support/errors.hpp"

namespace sparfuse {
namespace {

class AccumulateDevice : public OnDevices {};
INSTANTIATE_TEST_SUITE_P(Devices, AccumulateDevice, TheDevices(), DeviceName);

struct HostPayload {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
};

HostPayload RandomPayload(std::size_t n, double density, std::mt19937& random) {
  std::bernoulli_distribution kept(density);
  std::normal_distribution<float> normal;
  HostPayload payload;
  for (std::size_t i = 0; i < n; ++i) {
    if (!kept(random)) continue;
    payload.indices.push_back(static_cast<std::uint32_t>(i));
    payload.values.push_back(normal(random));
  }
  return payload;
}

// Payloads on a device. Each payload with an odd number has a count word below its bound.
class OnDevicePayloads {
 public:
  OnDevicePayloads(const Stream& stream, const std::vector<HostPayload>& payloads) {
    for (std::size_t p = 0; p < payloads.size(); ++p) {
      const HostPayload& payload = payloads[p];
      indices_.push_back(std::make_unique<DeviceArray<std::uint32_t>>(stream, payload.indices, 1));
      values_.push_back(std::make_unique<DeviceArray<float>>(stream, payload.values, 3));
      const std::size_t count = payload.indices.size();
      views.push_back({indices_[p]->data(), values_[p]->data(), count, nullptr});
      if (p % 2 == 0) continue;
      words_.push_back(std::make_unique<DeviceArray<std::uint32_t>>(
          stream, std::vector<std::uint32_t>{static_cast<std::uint32_t>(count)}));
      views[p].count += 5000;
      views[p].count_word = words_.back()->data();
    }
  }
  std::vector<DevicePayload> views;

 private:
  std::vector<std::unique_ptr<DeviceArray<std::uint32_t>>> indices_;
  std::vector<std::unique_ptr<DeviceArray<float>>> values_;
  std::vector<std::unique_ptr<DeviceArray<std::uint32_t>>> words_;
};

std::vector<float> Expected(const std::vector<HostPayload>& payloads, const Window& window,
                            float scale, std::size_t n) {
  std::vector<SparsePayload> views;
  for (const HostPayload& payload : payloads) views.push_back({payload.indices, payload.values});
  std::vector<float> out(n);
  ThreadPool pool(1);
  AccumulateSparse(views, window, scale, out, pool);
  return out;
}

TEST_P(AccumulateDevice, SumsWithTheHostsBits) {
  std::mt19937 random(1);
  struct Case {
    std::size_t whole, first, n, payloads;
    double density;
    float scale;
  };
  for (const Case& c :
       {Case{1, 0, 1, 1, 1, 1}, Case{1, 0, 1, 0, 1, 0.5f}, Case{5, 0, 0, 2, 0.5, 0.5f},
        Case{100, 0, 100, 3, 0.3, 1.0f / 3}, Case{8191, 0, 8191, 2, 1, 0.5f},
        Case{8193, 0, 8193, 5, 0.02, 0.2f}, Case{30'000, 0, 30'000, 8, 0.1, 0.125f},
        Case{30'000, 8'000, 9'000, 4, 0.2, 0.25f}, Case{60'000, 59'999, 1, 4, 0.9, 0.25f},
        Case{20'000, 3, 19'000, 2, 0.0001, 0.5f}, Case{9'000, 0, 9'000, 70, 0.05, 1.0f / 70}}) {
    std::vector<HostPayload> payloads;
    for (std::size_t p = 0; p < c.payloads; ++p) {
      payloads.push_back(p % 4 == 3 ? HostPayload{} : RandomPayload(c.whole, c.density, random));
    }
    const OnDevicePayloads on_device(stream(), payloads);
    const Window window{c.first, c.whole};
    const std::vector<float> expected = Expected(payloads, window, c.scale, c.n);
    for (const std::size_t offset : {0, 1, 5}) {
      const DeviceArray<float> out(stream(), std::vector<float>(c.n + 1, kNan), offset);
      const DeviceArray<std::uint64_t> fault(stream(), 1);
      AccumulateSparseOnDevice(stream(), workspace(), on_device.views, window, c.scale,
                               {out.data(), c.n, stream()}, fault.data());
      std::vector<float> found = out.ToHost();
      EXPECT_TRUE(std::isnan(found.back()));
      found.pop_back();
      ASSERT_EQ(Bits(found), Bits(expected)) << "n=" << c.n << " payloads=" << c.payloads;
      EXPECT_EQ(fault.ToHost()[0], 0u);
    }
  }
}

// Steps over an output that is zero at first. Each step clears the elements that the last step
// touched, and writes no others.
TEST_P(AccumulateDevice, WritesOnlyWhatIsTouched) {
  constexpr std::size_t kN = 20'000;
  for (const std::size_t ranks : {2, 40}) {
    for (const std::size_t offset : {0, 3}) {
      std::mt19937 random(7);
      const DeviceArray<float> out(stream(), kN, offset);
      const DeviceArray<std::uint32_t> touched(stream(), TouchedWords(kN));
      const DeviceArray<std::uint64_t> fault(stream(), 1);
      const Window window{0, kN};
      for (const double density : {0.002, 0.0001, 0.3, 0.0, 0.001}) {
        std::vector<HostPayload> payloads;
        for (std::size_t p = 0; p < ranks; ++p) {
          payloads.push_back(RandomPayload(kN, density, random));
          for (auto& index : payloads.back().indices) index = index / 2 + kN / 2;  // second half
          auto& indices = payloads.back().indices;
          indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
          payloads.back().values.resize(indices.size());
        }
        const OnDevicePayloads on_device(stream(), payloads);
        AccumulateSparseOnDevice(stream(), workspace(), on_device.views, window, 0.5f, out.view(),
                                 fault.data(), touched.data());
        ASSERT_EQ(Bits(out.ToHost()), Bits(Expected(payloads, window, 0.5f, kN))) << density;
      }
      EXPECT_EQ(fault.ToHost()[0], 0u);
    }
  }
  // The output contradicts the bits, which shows that no other element is written.
  const DeviceArray<float> out(stream(), std::vector<float>(kN, kNan));
  const DeviceArray<std::uint32_t> touched(stream(), TouchedWords(kN));
  const DeviceArray<std::uint64_t> fault(stream(), 1);
  const OnDevicePayloads on_device(stream(), {{{9, 9000}, {1.0f, 2.0f}}});
  AccumulateSparseOnDevice(stream(), workspace(), on_device.views, {0, kN}, 1.0f, out.view(),
                           fault.data(), touched.data());
  const std::vector<float> found = out.ToHost();
  EXPECT_EQ(std::count_if(found.begin(), found.end(), [](float v) { return !std::isnan(v); }), 16);
  EXPECT_EQ(found[9], 1.0f);
  EXPECT_EQ(found[8], 0.0f);
  EXPECT_EQ(found[9000], 2.0f);
}

TEST_P(AccumulateDevice, NotesTheFirstCorruptIndex) {
  const auto fault_of = [&](const std::vector<HostPayload>& payloads, std::size_t whole) {
    const OnDevicePayloads on_device(stream(), payloads);
    const DeviceArray<float> out(stream(), whole + 2);
    const DeviceArray<std::uint64_t> fault(stream(), 1);
    AccumulateSparseOnDevice(stream(), workspace(), on_device.views, {0, whole}, 1.0f,
                             {out.data() + 1, whole, stream()}, fault.data());
    const std::vector<float> found = out.ToHost();
    EXPECT_EQ(found.front(), 0.0f);  // nothing is written out of bounds
    EXPECT_EQ(found.back(), 0.0f);
    return fault.ToHost()[0];
  };
  const HostPayload good{{1, 2, 8999}, {1, 1, 1}};
  CheckPayloadFault(fault_of({good, good}, 9000));
  const std::vector<std::pair<HostPayload, std::string>> bad = {
      {{{1, 9000, 9001}, {1, 1, 1}}, "payload 1 is corrupt at element 1"},
      {{{1, 5, 4, 3}, {1, 1, 1, 1}}, "payload 1 is corrupt at element 2"},
      {{{7, 7}, {1, 1}}, "payload 1 is corrupt at element 1"},
      {{{0xffffffffu}, {1}}, "payload 1 is corrupt at element 0"}};
  for (const auto& [payload, expected] : bad) {
    testing::ExpectError(FailureKind::kComm, {expected}, [&] {
      CheckPayloadFault(fault_of({good, payload, payload}, 9000));
    });
  }
}

TEST_P(AccumulateDevice, WorksElementByElementFromAnyPlaceOn) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const std::size_t n : {0, 1, 3, 4, 4097, 10'001}) {
    for (const std::size_t offset : {0, 1, 2}) {
      std::vector<float> x(n), y(n), scaled(n);
      for (std::size_t i = 0; i < n; ++i) {
        x[i] = normal(random);
        y[i] = normal(random);
        scaled[i] = x[i] * 0.3f;
      }
      for (const std::size_t other : {offset, std::size_t{0}}) {
        const DeviceArray<float> from(stream(), x, offset);
        const DeviceArray<float> to(stream(), y, other);
        ScaleDenseOnDevice(stream(), from.read(), 0.3f, to.view());
        EXPECT_EQ(to.ToHost(), scaled);
        const DeviceArray<std::uint32_t> not_finite(stream(), 1);
        CopyFiniteOnDevice(stream(), from.read(), to.view(), not_finite.data());
        EXPECT_EQ(to.ToHost(), x);
        EXPECT_EQ(not_finite.ToHost()[0], 0u);
        ScaleDenseOnDevice(stream(), to.read(), 0.3f, to.view());
        EXPECT_EQ(to.ToHost(), scaled);
      }
    }
  }
}

TEST_P(AccumulateDevice, NotesTheFirstElementThatIsNotFinite) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    std::vector<float> x(5000, std::numeric_limits<float>::max());
    x[4998] = kNan;
    x[1234] = bad;
    const DeviceArray<float> from(stream(), x, 1);
    const DeviceArray<float> to(stream(), x.size());
    const DeviceArray<std::uint32_t> not_finite(stream(), 1);
    CopyFiniteOnDevice(stream(), from.read(), to.view(), not_finite.data());
    EXPECT_EQ(not_finite.ToHost()[0], NotFiniteCode(1234));
    EXPECT_EQ(Bits(to.ToHost()), Bits(x));
  }
}

// Slots with these selections, each with room for twice as many elements.
class Slots {
 public:
  Slots(const Stream& stream, const std::vector<HostPayload>& selections) {
    for (const HostPayload& selection : selections) {
      HostPayload room = selection;
      room.indices.resize(2 * room.indices.size() + 1, 0xffffffffu);
      room.values.resize(room.indices.size(), kNan);
      indices_.push_back(std::make_unique<DeviceArray<std::uint32_t>>(stream, room.indices));
      values_.push_back(std::make_unique<DeviceArray<float>>(stream, room.values));
      SlotReport report;
      report.count = static_cast<std::uint32_t>(selection.indices.size());
      reports_.push_back(std::make_unique<DeviceArray<SlotReport>>(stream, std::vector{report}));
      slots.push_back({indices_.back()->data(), values_.back()->data(), room.indices.size(),
                       reports_.back()->data()});
    }
  }
  std::vector<DeviceSlot> slots;

 private:
  std::vector<std::unique_ptr<DeviceArray<std::uint32_t>>> indices_;
  std::vector<std::unique_ptr<DeviceArray<float>>> values_;
  std::vector<std::unique_ptr<DeviceArray<SlotReport>>> reports_;
};

TEST_P(AccumulateDevice, MergesSlotsIntoOnePayload) {
  std::mt19937 random(5);
  for (const std::size_t parts : {0, 1, 3, 64, 65, 150}) {
    std::vector<HostPayload> selections;
    HostPayload merged;
    std::uint32_t base = 10;
    for (std::size_t p = 0; p < parts; ++p) {
      const std::size_t n = p == 1 ? 15'000 : 40;
      selections.push_back(p % 5 == 2 ? HostPayload{} : RandomPayload(n, 0.5, random));
      for (const auto index : selections[p].indices) merged.indices.push_back(base + index);
      merged.values.insert(merged.values.end(), selections[p].values.begin(),
                           selections[p].values.end());
      base += static_cast<std::uint32_t>(n);
    }
    const Slots slots(stream(), selections);
    std::vector<MergePart> merge;
    base = 10;
    std::size_t capacity = 0;
    for (std::size_t p = 0; p < parts; ++p) {
      merge.push_back({slots.slots[p], base});
      base += p == 1 ? 15'000 : 40;
      capacity += slots.slots[p].capacity;
    }
    const std::size_t count = merged.indices.size();
    const DeviceArray<std::uint32_t> wire(stream(), 2 * capacity + 1);
    const DeviceArray<float> values(stream(), capacity + 1);
    const DeviceArray<std::uint32_t> count_word(stream(), std::vector<std::uint32_t>{77});
    MergeSlotsOnDevice(stream(), workspace(), merge,
                       {wire.data(), nullptr, capacity, count_word.data()});
    ASSERT_EQ(count_word.ToHost()[0], count) << parts;
    const std::vector<std::uint32_t> words = wire.ToHost();
    ASSERT_TRUE(std::equal(merged.indices.begin(), merged.indices.end(), words.begin())) << parts;
    const std::vector<std::uint32_t> value_bits = Bits(merged.values);
    ASSERT_TRUE(std::equal(value_bits.begin(), value_bits.end(),
                           words.begin() + static_cast<std::ptrdiff_t>(count)));

    MergeSlotsOnDevice(stream(), workspace(), merge,
                       {wire.data(), values.data(), capacity, count_word.data()});
    const std::vector<float> apart = values.ToHost();
    ASSERT_TRUE(std::equal(merged.values.begin(), merged.values.end(), apart.begin()));
    if (parts > 0) {
      EXPECT_THROW(MergeSlotsOnDevice(stream(), workspace(), merge,
                                      {wire.data(), nullptr, capacity - 1, count_word.data()}),
                   Error);
    }
  }
}

TEST_P(AccumulateDevice, CountsTensorsOfWhichNothingIsSelected) {
  // Tensors [0, 100), [100, 101), [101, 9000), [9000, 20000), [20000, 20010).
  const DeviceArray<std::uint32_t> bounds(
      stream(), std::vector<std::uint32_t>{0, 100, 101, 9000, 20'000, 20'010});
  const auto count = [&](const std::vector<std::uint32_t>& selected,
                         const std::vector<std::uint32_t>& left) {
    const Slots slots(stream(), {{selected, std::vector<float>(selected.size())}});
    std::vector<float> unsent(20'010);
    for (const std::uint32_t i : left) unsent[i] = i % 2 == 0 ? 1e-40f : kNan;
    const DeviceArray<float> on_device(stream(), unsent, 1);
    const DeviceArray<std::uint64_t> missing(stream(), std::vector<std::uint64_t>{10});
    CountMissingOnDevice(stream(), workspace(), on_device.read(), slots.slots[0], bounds.read(),
                         missing.data());
    return missing.ToHost()[0] - 10;
  };
  EXPECT_EQ(count({}, {}), 0u);
  EXPECT_EQ(count({}, {0, 100, 101, 9000, 20'009}), 5u);
  EXPECT_EQ(count({}, {99, 8999, 19'999}), 3u);
  EXPECT_EQ(count({}, {9000, 12'000, 19'999}), 1u);
  EXPECT_EQ(count({100, 9000}, {5, 100, 200, 15'000, 20'000}), 3u);
  EXPECT_EQ(count({0, 100, 8999, 19'999, 20'009}, {5, 100, 200, 15'000, 20'000}), 0u);

  // A single tensor.
  const DeviceArray<std::uint32_t> one(stream(), std::vector<std::uint32_t>{0, 5});
  const DeviceArray<float> left(stream(), std::vector<float>{0, 0, 0, 0, 1});
  for (const bool selects : {false, true}) {
    const Slots slots(stream(), {selects ? HostPayload{{2}, {1}} : HostPayload{}});
    const DeviceArray<std::uint64_t> missing(stream(), 1);
    CountMissingOnDevice(stream(), workspace(), left.read(), slots.slots[0], one.read(),
                         missing.data());
    EXPECT_EQ(missing.ToHost()[0], selects ? 0u : 1u);
  }
}

}  // namespace
}  // namespace sparfuse
