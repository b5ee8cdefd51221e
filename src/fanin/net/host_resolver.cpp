#include "fanin/net/host_resolver.hpp"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "fanin/base/descriptor.hpp"

namespace fanin::net {

struct HostResolver::Shared {
  LookUp look_up;
  Descriptor wake{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)}; // readable: there are answers
  std::mutex mutex; // for all below
  std::condition_variable question_added;
  std::deque<std::string> questions;
  std::deque<std::pair<std::string, Found>> answers;
  bool ended = false;
  std::atomic<bool> answered = false; // there may be answers

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      question_added.wait(lock, [this] { return ended || !questions.empty(); });
      if (ended) return;
      const std::string host = std::move(questions.front());
      questions.pop_front();
      lock.unlock();
      Found found = look_up(host);
      lock.lock();
      answers.emplace_back(host, std::move(found));
      answered.store(true, std::memory_order_release);
      const std::uint64_t one = 1;
      [[maybe_unused]] const ssize_t written = ::write(wake.get(), &one, sizeof one);
    }
  }
};

HostResolver::HostResolver(Loop& loop, LookUp look_up)
    : loop_(loop), shared_(std::make_shared<Shared>()) {
  shared_->look_up = std::move(look_up);
  if (!shared_->wake) throw std::system_error(errno, std::generic_category(), "resolver: eventfd");
  loop_.add(*this);
  loop_.set_resolver(this);
}

HostResolver::~HostResolver() {
  loop_.remove(*this);
  loop_.set_resolver(nullptr);
  const std::lock_guard lock(shared_->mutex);
  shared_->ended = true;
  shared_->question_added.notify_one();
}

int HostResolver::descriptor() const { return shared_->wake.get(); }

std::optional<Resolver::Found> HostResolver::look_up(const std::string& host) {
  if (!std::exchange(started_, true)) start_thread();
  const std::lock_guard lock(shared_->mutex);
  shared_->questions.push_back(host);
  shared_->question_added.notify_one();
  return std::nullopt;
}

// Signals are the loop's. The thread is not waited for, so it owns what it uses.
void HostResolver::start_thread() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([shared = shared_] { shared->run(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

bool HostResolver::poll() {
  if (!shared_->answered.load(std::memory_order_acquire)) return false;
  std::deque<std::pair<std::string, Found>> answers;
  {
    const std::lock_guard lock(shared_->mutex);
    answers.swap(shared_->answers);
    shared_->answered.store(false, std::memory_order_relaxed);
  }
  std::uint64_t count = 0; // an answer that comes just now is found by arm()
  [[maybe_unused]] const ssize_t got = ::read(shared_->wake.get(), &count, sizeof count);
  for (const auto& [host, found] : answers) answered(host, found);
  return true;
}

bool HostResolver::arm() { return !shared_->answered.load(std::memory_order_acquire); }

} // namespace fanin::net
