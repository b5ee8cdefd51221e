#include "fanin/message/context.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/try.hpp"
#include "fanin/base/units.hpp"

namespace fanin::message {

struct Context::Owned {
  explicit Owned(net::WaitPolicy wait) : loop(clock, wait) {}
  MonotonicClock clock;
  std::unique_ptr<memory::PagePool> send_pool;
  std::unique_ptr<memory::PagePool> receive_pool;
  net::Loop loop;
  net::TransportRegistry registry;
  std::vector<std::pair<std::string, std::unique_ptr<net::Transport>>> transports;
};

Result<std::unique_ptr<Context>> Context::make(ContextOptions options,
                                               const net::TransportRegistry* registry) {
  if (options.receive_pool.page_size / 2 < options.send_pool.page_size) {
    return fail(ErrorKind::usage,
                fmt::format("receive pages of {} are less than twice the send pages of {}",
                            format_size(options.receive_pool.page_size),
                            format_size(options.send_pool.page_size)));
  }
  auto owned = std::make_unique<Owned>(options.wait);
  auto send_pool = FANIN_TRY(memory::PagePool::make(options.send_pool));
  auto receive_pool = FANIN_TRY(memory::PagePool::make(options.receive_pool));
  owned->send_pool = std::move(send_pool);
  owned->receive_pool = std::move(receive_pool);
  if (registry != nullptr) {
    owned->registry = *registry;
  } else {
    net::add_built_in_transports(owned->registry);
  }
  if (options.seed == 0)
    options.seed = static_cast<std::uint64_t>(owned->clock.now().time_since_epoch().count());
  return std::unique_ptr<Context>(new Context(std::move(owned), options));
}

Context::Context(std::unique_ptr<Owned> owned, const ContextOptions& options)
    : owned_(std::move(owned)),
      loop_(owned_->loop),
      send_pool_(*owned_->send_pool),
      receive_pool_(*owned_->receive_pool),
      random_(options.seed),
      log_(options.log) {
  loop_.add(*this);
}

Context::Context(ContextParts parts)
    : loop_(parts.loop),
      given_transports_(&parts.transports),
      send_pool_(parts.send_pool),
      receive_pool_(parts.receive_pool),
      random_(parts.seed),
      log_(std::move(parts.log)) {
  loop_.add(*this);
}

Context::~Context() {
  loop_.remove(*this);
  if (owned_ == nullptr) return;
  if (is_copy()) { // to destroy a transport would end the original's connections
    static_cast<void>(owned_.release());
    return;
  }
  for (const auto& [scheme, transport] : owned_->transports) loop_.remove(*transport);
}

Result<net::Transport*> Context::transport(const net::Url& url) {
  auto found = find_transport(url);
  if (found && std::find(used_.begin(), used_.end(), *found) == used_.end())
    used_.push_back(*found);
  return found;
}

Result<net::Transport*> Context::find_transport(const net::Url& url) {
  if (given_transports_ != nullptr) return given_transports_->find(url);
  for (const auto& [scheme, transport] : owned_->transports) {
    if (scheme == url.scheme) return transport.get();
  }
  const net::TransportFactory factory = owned_->registry.find(url.scheme);
  if (!factory) {
    return fail(ErrorKind::unsupported,
                fmt::format("{}: no transport for the scheme '{}' here (there are: {})", url.text(),
                            url.scheme, fmt::join(owned_->registry.schemes(), ", ")));
  }
  auto made = FANIN_TRY(factory(loop_, log_ ? log_ : [](LogLevel, std::string_view) {}));
  loop_.add(*made);
  return owned_->transports.emplace_back(url.scheme, std::move(made)).second.get();
}

void Context::at_turn_end(TurnEndTask& task) {
  tasks_added_ = true;
  if (std::exchange(task.listed_, true)) return;
  tasks_.push_back(&task);
}

void Context::forget(TurnEndTask& task) {
  if (!std::exchange(task.listed_, false)) return;
  *std::find(tasks_.begin(), tasks_.end(), &task) = nullptr; // poll() may be walking the list
}

bool Context::poll() {
  tasks_added_ = false;
  bool worked = false;
  const std::size_t listed = tasks_.size(); // who comes meanwhile has its turn in the next one
  for (std::size_t i = 0; i < listed; ++i) {
    TurnEndTask* const task = tasks_[i];
    if (task == nullptr) continue;
    const TurnEndTask::Answer answer = task->at_turn_end();
    worked |= answer.worked;
    if (tasks_[i] == nullptr || answer.stay) continue;
    task->listed_ = false;
    tasks_[i] = nullptr;
  }
  std::erase(tasks_, nullptr);
  if (draining_ && drained()) loop_.stop();
  return worked;
}

bool Context::arm() { return !tasks_added_; }

bool Context::drained() const {
  return closing_sockets_ == 0 &&
         std::all_of(used_.begin(), used_.end(),
                     [](const auto* transport) { return transport->closing() == 0; });
}

std::uint64_t Context::given_up() const {
  std::uint64_t sum = aborted_;
  for (const net::Transport* const transport : used_) sum += transport->given_up();
  return sum;
}

bool Context::drain() {
  if (is_copy()) return false;
  if (drained()) return true;
  const std::uint64_t before = given_up();
  draining_ = true;
  loop_.run();
  draining_ = false;
  return drained() && given_up() == before;
}

} // namespace fanin::message
