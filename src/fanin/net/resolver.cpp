#include "fanin/net/resolver.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "fanin/base/assert.hpp"

namespace fanin::net {

void Resolver::Question::withdraw() {
  if (resolver_ == nullptr) return;
  for (auto& [name, host] : resolver_->hosts_) std::erase(host.waiting, this);
  std::ranges::replace(resolver_->answering_, this, nullptr);
  resolver_ = nullptr;
}

Resolver::~Resolver() {
  for (auto& [name, host] : hosts_) {
    for (Question* const question : host.waiting) question->resolver_ = nullptr;
  }
}

// What those who wait for it hear.
Resolver::Found Resolver::take(Host& host, Found found) {
  host.asked = false;
  if (found) {
    host.addresses = *found;
    host.good = true;
  } else if (!host.addresses.empty()) {
    return host.addresses;
  }
  return found;
}

std::optional<Resolver::Found> Resolver::ask(const std::string& name, Question& question) {
  FANIN_ASSERT(!question.waits());
  if (auto numbers = addresses_of_number(name)) return std::move(*numbers);
  if (hosts_.size() >= hosts_max && !hosts_.contains(name))
    std::erase_if(hosts_, [](const auto& host) { return !host.second.asked; });
  Host& host = hosts_[name];
  if (host.good) return host.addresses;
  if (!host.asked) {
    host.asked = true;
    if (auto found = look_up(name)) return take(host, *std::move(found));
  }
  question.resolver_ = this;
  host.waiting.push_back(&question);
  return std::nullopt;
}

void Resolver::forget(const std::string& name) {
  if (const auto host = hosts_.find(name); host != hosts_.end()) host->second.good = false;
}

void Resolver::answered(const std::string& name, const Found& found) {
  const auto host = hosts_.find(name);
  if (host == hosts_.end()) return;
  const Found answer = take(host->second, found);
  answering_ = std::exchange(host->second.waiting, {});
  for (std::size_t i = 0; i < answering_.size(); ++i) {
    Question* const question = std::exchange(answering_[i], nullptr);
    if (question == nullptr) continue;
    question->resolver_ = nullptr;
    const auto say = question->answer_; // it may end with its owner
    say(answer);
  }
  answering_.clear();
}

std::optional<Resolver::Found> ScriptedResolver::look_up(const std::string& host) {
  ++asked_;
  const auto answer = [this, host]() -> Found {
    if (fails_) return fanin::fail(*fails_, fmt::format("host \"{}\": not known", host));
    if (const auto known = names_ ? names_(host) : std::nullopt) return std::vector{*known};
    return addresses_of_number({}).value();
  };
  if (time_ <= Duration{0}) return answer();
  auto& timer =
      answers_.try_emplace(host, [this, host, answer] { answered(host, answer()); }).first->second;
  timer.start(loop_, loop_.now() + time_);
  return std::nullopt;
}

} // namespace fanin::net
