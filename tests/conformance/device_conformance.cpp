#include "conformance/device_conformance.hpp"

#include <algorithm>
#include <atomic>
#include <thread>

#include "spillway/core/error.hpp"
#include "support/error_text.hpp"
#include "support/gate.hpp"
#include "support/registered_memory.hpp"

namespace spillway::testing {
namespace {

constexpr Bytes kSize{64 << 10};

bool all_equal(std::span<const std::byte> bytes, int value) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [value](std::byte each) { return std::to_integer<int>(each) == value; });
}

TEST_P(DeviceConformance, AnEventNeverRecordedIsDone) {
  const auto event = device().make_event(Timing::kOff);
  const auto stream = device().make_stream("s");
  EXPECT_TRUE(event->query());
  event->synchronize();
  stream->wait(*event);
  stream->synchronize();
  EXPECT_EQ(event->point().order, 0U);
}

TEST_P(DeviceConformance, AStreamRunsItsWorkInOrder) {
  const auto stream = device().make_stream("s");
  const DeviceBuffer buffer = device().allocate(kSize);
  const RegisteredMemory result(device(), kSize * 3);
  for (int i = 0; i < 3; ++i) {
    stream->fill(buffer.data(), std::byte(i + 1), kSize);
    stream->copy(result.data() + static_cast<std::uint64_t>(i) * kSize.count(), buffer.data(),
                 kSize, CopyKind::kToHost);
  }
  stream->synchronize();
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(all_equal(
        result.span().subspan(static_cast<std::uint64_t>(i) * kSize.count(), kSize.count()),
        i + 1));
  }
}

TEST_P(DeviceConformance, CopiesGoToTheDeviceAcrossItAndBack) {
  const auto stream = device().make_stream("s");
  const DeviceBuffer first = device().allocate(kSize);
  const DeviceBuffer second = device().allocate(kSize);
  const RegisteredMemory source(device(), kSize);
  const RegisteredMemory result(device(), kSize);
  for (std::size_t i = 0; i < kSize.count(); ++i) source.data()[i] = std::byte(i * 7 % 251);
  stream->copy(first.data(), source.data(), kSize, CopyKind::kToDevice);
  stream->copy(second.data(), first.data(), kSize, CopyKind::kOnDevice);
  stream->copy(result.data(), second.data(), kSize, CopyKind::kToHost);
  stream->synchronize();
  EXPECT_TRUE(std::equal(source.span().begin(), source.span().end(), result.span().begin()));
}

TEST_P(DeviceConformance, AWaitHoldsBackWhatIsQueuedAfterIt) {
  const auto first = device().make_stream("first");
  const auto second = device().make_stream("second");
  const auto event = device().make_event(Timing::kOff);
  const DeviceBuffer buffer = device().allocate(kSize);
  const RegisteredMemory result(device(), kSize);
  Gate gate;
  first->fill(buffer.data(), std::byte{1}, kSize);
  gate.close(*first);
  first->fill(buffer.data(), std::byte{2}, kSize);
  first->record(*event);
  second->wait(*event);
  second->copy(result.data(), buffer.data(), kSize, CopyKind::kToHost);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(event->query());
  EXPECT_FALSE(second->query());
  gate.open();
  second->synchronize();
  EXPECT_TRUE(event->query());
  EXPECT_TRUE(all_equal(result.span().first(kSize.count()), 2));
  first->synchronize();
}

TEST_P(DeviceConformance, AWaitIsForTheRecordingThatWasCurrentWhenItWasQueued) {
  const auto first = device().make_stream("first");
  const auto second = device().make_stream("second");
  const auto event = device().make_event(Timing::kOff);
  Gate gate;
  first->record(*event);
  second->wait(*event);
  gate.close(*first);
  first->record(*event);
  second->synchronize();  // Would not return if the wait had moved with the event.
  EXPECT_FALSE(event->query());
  gate.open();
  event->synchronize();
  EXPECT_TRUE(event->query());
  first->synchronize();
}

TEST_P(DeviceConformance, AnEventDestroyedWhileWaitedForStillHoldsTheWaiterBack) {
  const auto first = device().make_stream("first");
  const auto second = device().make_stream("second");
  auto event = device().make_event(Timing::kOff);
  std::atomic<int> order{0};
  Gate gate;
  gate.close(*first);
  first->call("one", [&order] { order = 1; });
  first->record(*event);
  second->wait(*event);
  second->call("two", [&order] { order = order == 1 ? 2 : -1; });
  event.reset();
  gate.open();
  second->synchronize();
  EXPECT_EQ(order, 2);
  first->synchronize();
}

TEST_P(DeviceConformance, QueryTellsWhetherWorkIsLeft) {
  const auto stream = device().make_stream("s");
  EXPECT_TRUE(stream->query());
  Gate gate;
  gate.close(*stream);
  EXPECT_FALSE(stream->query());
  gate.open();
  stream->synchronize();
  EXPECT_TRUE(stream->query());
}

TEST_P(DeviceConformance, ElapsedTimeLiesBetweenTwoEvents) {
  const auto stream = device().make_stream("s");
  const auto start = device().make_event(Timing::kOn);
  const auto end = device().make_event(Timing::kOn);
  stream->record(*start);
  stream->call("sleep", [] { std::this_thread::sleep_for(std::chrono::milliseconds(3)); });
  stream->record(*end);
  end->synchronize();
  EXPECT_GE(end->elapsed_since(*start), std::chrono::milliseconds(2));
  EXPECT_EQ(start->elapsed_since(*start), Nanoseconds(0));
}

TEST_P(DeviceConformance, ElapsedTimeSaysWhatIsMissing) {
  const auto stream = device().make_stream("s");
  const auto untimed = device().make_event(Timing::kOff);
  const auto start = device().make_event(Timing::kOn);
  const auto end = device().make_event(Timing::kOn);
  stream->record(*untimed);
  stream->record(*start);
  stream->synchronize();
  EXPECT_EQ(error_text<InvalidArgument>([&] { (void)untimed->elapsed_since(*start); }),
            "[elapsed] the event keeps no time; make it with Timing::kOn");
  EXPECT_EQ(error_text<InvalidArgument>([&] { (void)end->elapsed_since(*start); }),
            "[elapsed] the event was never recorded; record it first");
  Gate gate;
  gate.close(*stream);
  stream->record(*end);
  EXPECT_EQ(error_text<DeviceError>([&] { (void)end->elapsed_since(*start); }),
            "[elapsed] the event is not done yet; synchronize it first");
  gate.open();
  stream->synchronize();
}

TEST_P(DeviceConformance, AFailedCallIsThrownAtSynchronizeByItsNameAndTheStreamWorksAgain) {
  const auto stream = device().make_stream("backward");
  std::atomic<bool> ran{false};
  stream->call("checksum", [] { throw std::runtime_error("the sum is wrong"); });
  EXPECT_EQ(error_text<DeviceError>([&] { stream->synchronize(); }),
            "[checksum] failed on stream \"backward\": the sum is wrong");
  stream->call("again", [&ran] { ran = true; });
  stream->synchronize();
  EXPECT_TRUE(ran);
}

TEST_P(DeviceConformance, WhatFollowsAFailureIsSkippedAndWhoWaitsForItFailsToo) {
  if (!GetParam().errors_travel) GTEST_SKIP() << "skipped: errors do not travel on this device";
  const auto first = device().make_stream("first");
  const auto second = device().make_stream("second");
  const auto event = device().make_event(Timing::kOff);
  std::atomic<bool> ran{false};
  first->call("copy of layer 3", [] { throw std::runtime_error("the link is down"); });
  first->call("after", [&ran] { ran = true; });
  first->record(*event);
  second->wait(*event);
  second->call("after", [&ran] { ran = true; });
  const std::string text = "[copy of layer 3] failed on stream \"first\": the link is down";
  EXPECT_EQ(error_text<DeviceError>([&] { second->synchronize(); }), text);
  EXPECT_EQ(error_text<DeviceError>([&] { event->synchronize(); }), text);
  EXPECT_EQ(error_text<DeviceError>([&] { first->synchronize(); }), text);
  EXPECT_FALSE(ran);
  first->record(*event);
  event->synchronize();
  second->synchronize();
}

TEST_P(DeviceConformance, NullPointersAreRefusedAndZeroBytesAreNothing) {
  const auto stream = device().make_stream("s");
  const DeviceBuffer buffer = device().allocate(kSize);
  EXPECT_EQ(error_text<InvalidArgument>(
                [&] { stream->copy(nullptr, buffer.data(), kSize, CopyKind::kToHost); }),
            "[copy] the destination of a copy of 64.0 KiB is null");
  EXPECT_EQ(error_text<InvalidArgument>(
                [&] { stream->copy(buffer.data(), nullptr, kSize, CopyKind::kToDevice); }),
            "[copy] the source of a copy of 64.0 KiB is null");
  EXPECT_EQ(error_text<InvalidArgument>([&] { stream->fill(nullptr, std::byte{1}, kSize); }),
            "[fill] the destination of a fill of 64.0 KiB is null");
  stream->copy(nullptr, nullptr, Bytes(0), CopyKind::kToHost);
  stream->fill(nullptr, std::byte{1}, Bytes(0));
  stream->synchronize();
}

TEST_P(DeviceConformance, DestroyingAStreamLetsItsWorkFinish) {
  std::atomic<bool> ran{false};
  Gate gate;
  auto stream = device().make_stream("s");
  gate.close(*stream);
  stream->call("work", [&ran] { ran = true; });
  gate.open();
  stream.reset();
  device().synchronize();
  EXPECT_TRUE(ran);
}

TEST_P(DeviceConformance, SynchronizeWaitsForAllStreams) {
  const auto first = device().make_stream("first");
  const auto second = device().make_stream("second");
  std::atomic<int> ran{0};
  for (const auto& stream : {first.get(), second.get()}) {
    stream->call("work", [&ran] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ++ran;
    });
  }
  device().synchronize();
  EXPECT_EQ(ran, 2);
}

TEST_P(DeviceConformance, ABufferOfZeroBytesIsRefused) {
  EXPECT_EQ(error_text<InvalidArgument>([&] { (void)device().allocate(Bytes(0)); }),
            "[allocate] a buffer of 0 bytes was asked for on " + device().name() +
                "; ask for at least 1");
}

TEST_P(DeviceConformance, BuffersAreAlignedAndTheirOwn) {
  DeviceBuffer first = device().allocate(Bytes(1));
  const DeviceBuffer second = device().allocate(Bytes(1));
  EXPECT_NE(first.data(), second.data());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first.data()) % 256, 0U);
  std::byte* const data = first.data();
  const DeviceBuffer moved = std::move(first);
  EXPECT_EQ(moved.data(), data);
  EXPECT_EQ(moved.size(), Bytes(1));
}

}  // namespace
}  // namespace spillway::testing
