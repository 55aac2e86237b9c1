#include "comm/mpi/job.hpp"

#include <array>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "comm/mpi/backend.hpp"
#include "comm/mpi/check.hpp"
#include "comm/partition.hpp"
#include "comm/process_end.hpp"
#include "spillway/groups/error.hpp"
#include "util/digest.hpp"

namespace spillway::mpi {
namespace {

/// What a rank asks for, short enough for one message.
struct Request {
  std::uint64_t digest = 0;
  std::array<char, 56> name{};
};

Request request_for(const std::string& name, const std::vector<std::vector<int>>& partition) {
  Digest digest;
  digest.add_field(name);
  for (const auto& list : partition) {
    digest.add(list.size());
    for (const int rank : list) digest.add(static_cast<std::uint64_t>(rank));
  }
  Request request;
  request.digest = digest.value();
  name.copy(request.name.data(), request.name.size() - 1);
  return request;
}

}  // namespace

Job::Job(const WorldOptions& options) : options_(options) {
  if (options.largest_message.count() < 1 || options.largest_message.count() > INT_MAX) {
    throw InvalidArgument("world", "the largest message is " +
                                       std::to_string(options.largest_message.count()) +
                                       " bytes; it must be from 1 byte to 2 GiB - 1");
  }
  start();
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  engine_ = std::make_shared<Engine>(options.timeout);
  everyone_ = make_channel(0, 0, "world", ranks);
  if (size > 1 && options.silence.count() > 0) {
    watched_ = make_channel(0, 0, "watch", ranks);
    watch_ = std::make_unique<Watch>(watched_->communicator, options.silence,
                                     [this](const std::string& why) { abort(why); });
  }
}

void Job::start() {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized != 0) {
    throw CommunicationError("mpi",
                             "MPI has ended in this process and cannot be started again; "
                             "keep one world for the life of the process");
  }
  int level = MPI_THREAD_SINGLE;
  if (initialized != 0) {
    MPI_Query_thread(&level);
  } else {
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
    started_here_ = true;
  }
  if (level < MPI_THREAD_MULTIPLE) {
    throw CommunicationError("mpi",
                             "this MPI does not let several threads call it at once "
                             "(MPI_THREAD_MULTIPLE); use one that does, such as Open MPI 4");
  }
}

Job::~Job() {
  // A rank that an exception ends will not take part in MPI_Finalize; no rank should wait for it.
  if (std::uncaught_exceptions() > exceptions_ && size() > 1) {
    abort("an exception ends this rank");
  }
  try {
    finish();
  } catch (const std::exception& error) {
    abort(std::string("at the end of the world: ") + error.what());
  }
}

void Job::finish() {
  // MPI_Finalize would wait without a limit, and says not for whom.
  engine_->drain();
  c10::make_intrusive<Backend>(everyone_, engine_)->barrier({})->wait();
  engine_->close();
  watch_.reset();
  for (const auto& channel : channels_) {
    check(MPI_Comm_free(&channel->communicator), "MPI_Comm_free");
  }
  if (started_here_) check(MPI_Finalize(), "MPI_Finalize");
}

std::shared_ptr<Channel> Job::make_channel(int color, int key, std::string name,
                                           std::vector<int> ranks) {
  auto channel = std::make_shared<Channel>();
  check(MPI_Comm_split(MPI_COMM_WORLD, color, key, &channel->communicator), "MPI_Comm_split");
  check(MPI_Comm_set_errhandler(channel->communicator, MPI_ERRORS_RETURN),
        "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(channel->communicator, &channel->rank), "MPI_Comm_rank");
  channel->name = std::move(name);
  channel->ranks = std::move(ranks);
  channel->largest_message = static_cast<int>(options_.largest_message.count());
  int* largest_tag = nullptr;
  int known = 0;
  check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &largest_tag, &known), "MPI_Comm_get_attr");
  channel->largest_tag = known != 0 ? *largest_tag - 1 : 32766;
  channels_.push_back(channel);
  return channel;
}

void Job::check_agreement(const std::string& name, const std::vector<std::vector<int>>& partition) {
  if (size() == 1) return;
  // Always the same tag: who made a group before has had the answers of all.
  const auto operation =
      std::make_shared<Operation>(everyone_, "group " + name, 0, std::vector<at::Tensor>{});
  const auto requests = std::make_shared<std::vector<Request>>(static_cast<std::size_t>(size()));
  Request& mine = (*requests)[static_cast<std::size_t>(rank())];
  mine = request_for(name, partition);
  everyone_->for_each_other([&](int peer) {
    operation->receive(&(*requests)[static_cast<std::size_t>(peer)], sizeof(Request), peer);
    operation->send(&mine, sizeof(Request), peer);
  });
  operation->then([requests](Operation& /*self*/) {});  // Kept alive while messages are under way.
  engine_->start(operation);
  engine_->wait(*operation, {});
  everyone_->for_each_other([&](int peer) {
    const Request& other = (*requests)[static_cast<std::size_t>(peer)];
    if (other.digest == mine.digest) return;
    throw CommunicationError("group " + name, "rank " + std::to_string(peer) +
                                                  " asked for the group " + other.name.data() +
                                                  " or for other members; every rank must make "
                                                  "the same groups in the same order");
  });
}

c10::intrusive_ptr<c10d::Backend> Job::split(const std::string& name,
                                             const std::vector<std::vector<int>>& partition) {
  check_agreement(name, partition);
  const std::vector<int>& mine = list_of(rank(), size(), name, partition);
  const auto color = static_cast<int>(&mine - partition.data());
  auto channel = make_channel(color, position_of(rank(), mine), name, mine);
  if (mine.size() == 1) return nullptr;
  return c10::make_intrusive<Backend>(std::move(channel), engine_);
}

void Job::abort(const std::string& why) noexcept {
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  say_end(rank, size, why);
  MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
  std::_Exit(EXIT_FAILURE);
}

}  // namespace spillway::mpi

/// The plugin's one function; see StartMpi.
extern "C" std::unique_ptr<spillway::MpiJob> spillway_start_mpi(
    int version, const spillway::WorldOptions& options) {
  if (version != spillway::kMpiPluginVersion) {
    throw spillway::CommunicationError(
        "mpi",
        "the plugin is of another version of Spillway than the program; set "
        "SPILLWAY_MPI_PLUGIN to the one that was built with it");
  }
  return std::make_unique<spillway::mpi::Job>(options);
}
