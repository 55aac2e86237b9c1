/// Ranks of a shard group as threads of one process.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "spillway/torch/shard_group.hpp"

namespace spillway::testing {

/// What the ranks send each other, in the order in which each of them sends it.
class ThreadRanks {
 public:
  explicit ThreadRanks(int ranks) : sent_(static_cast<std::size_t>(ranks)) {}

  /// Runs `work` as each rank; when all have returned, throws what the first of them threw.
  static void run(int ranks, const std::function<void(const std::shared_ptr<ShardGroup>&)>& work) {
    const auto all = std::make_shared<ThreadRanks>(ranks);
    std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
    {
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
          try {
            work(std::make_shared<Member>(all, rank));
          } catch (...) {
            errors[static_cast<std::size_t>(rank)] = std::current_exception();
          }
        });
      }
    }
    for (const std::exception_ptr& each : errors) {
      if (each != nullptr) std::rethrow_exception(each);
    }
  }

 private:
  static constexpr std::chrono::seconds kTimeout{30};

  struct Message {
    std::vector<std::uint64_t> words;
    at::Tensor part;
  };

  class Sent final : public ShardGroup::Exchange, public ShardGroup::Gather {
   public:
    Sent(std::shared_ptr<ThreadRanks> all, std::size_t number, at::Tensor whole = {})
        : all_(std::move(all)), number_(number), whole_(std::move(whole)) {}

    [[nodiscard]] std::vector<std::uint64_t> read() override {
      std::vector<std::uint64_t> words;
      for (const Message& each : all_->receive(number_)) {
        words.insert(words.end(), each.words.begin(), each.words.end());
      }
      return words;
    }
    void wait() override {
      const std::vector<Message> messages = all_->receive(number_);
      const auto ranks = static_cast<std::int64_t>(messages.size());
      for (std::int64_t i = 0; i < ranks; ++i) {
        whole_.chunk(ranks)[static_cast<std::size_t>(i)].copy_(
            messages[static_cast<std::size_t>(i)].part);
      }
    }

   private:
    std::shared_ptr<ThreadRanks> all_;
    std::size_t number_;
    at::Tensor whole_;
  };

  class Member final : public ShardGroup {
   public:
    Member(std::shared_ptr<ThreadRanks> all, int rank) : all_(std::move(all)), rank_(rank) {}

    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return static_cast<int>(all_->sent_.size()); }
    [[nodiscard]] std::unique_ptr<Gather> gather(at::Tensor whole, at::Tensor part) override {
      const std::size_t number = all_->send(rank_, {{}, part.clone()});
      return std::make_unique<Sent>(all_, number, std::move(whole));
    }
    [[nodiscard]] std::unique_ptr<Exchange> exchange(
        std::span<const std::uint64_t> words) override {
      return std::make_unique<Sent>(
          all_, all_->send(rank_, {{words.begin(), words.end()}, at::Tensor()}));
    }

   private:
    std::shared_ptr<ThreadRanks> all_;
    int rank_;
  };

  std::size_t send(int rank, Message message) {
    const std::lock_guard lock(mutex_);
    std::vector<Message>& mine = sent_[static_cast<std::size_t>(rank)];
    mine.push_back(std::move(message));
    changed_.notify_all();
    return mine.size() - 1;
  }

  /// The message with that number of each rank.
  std::vector<Message> receive(std::size_t number) {
    std::unique_lock lock(mutex_);
    std::vector<Message> all;
    for (std::size_t rank = 0; rank < sent_.size(); ++rank) {
      if (!changed_.wait_for(lock, kTimeout, [&] { return sent_[rank].size() > number; })) {
        throw std::runtime_error("nothing came from rank " + std::to_string(rank));
      }
      all.push_back(sent_[rank][number]);
      const Message& first = all.front();
      const Message& last = all.back();
      if (first.words.size() != last.words.size() || first.part.defined() != last.part.defined() ||
          (first.part.defined() && first.part.nbytes() != last.part.nbytes())) {
        throw std::runtime_error("rank " + std::to_string(rank) + " is at another operation");
      }
    }
    return all;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<Message>> sent_;  // By rank.
};

}  // namespace spillway::testing
