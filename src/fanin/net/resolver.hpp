// Who knows the addresses of hosts: transports ask for a name and hear the answer on the loop, so
// that no name holds up what else the loop does. A process hands one in (Loop::set_resolver());
// without it a name is looked up where it is asked for, and the loop waits.
//
// A name is looked up once, and again after forget(): who finds nobody at an address says so. What
// was found before is still the answer while the name service fails.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fanin/net/address.hpp"
#include "fanin/net/loop.hpp"

namespace fanin::net {

// Thread: its loop's.
class Resolver {
public:
  // In the order to try them in, without a port. Errors: not_found, and disconnected where asking
  // again may help.
  using Found = Result<std::vector<Address>>;

  // Waits for one answer; whoever asks owns it, and withdraws the question by destroying it.
  class Question {
  public:
    // `answer` is called on the loop; it may destroy whoever asked.
    explicit Question(std::function<void(const Found&)> answer) : answer_(std::move(answer)) {}
    ~Question() { withdraw(); }
    Question(const Question&) = delete;
    Question& operator=(const Question&) = delete;
    void withdraw();
    [[nodiscard]] bool waits() const { return resolver_ != nullptr; }

  private:
    friend class Resolver;
    std::function<void(const Found&)> answer_;
    Resolver* resolver_ = nullptr; // that is asked
  };

  virtual ~Resolver();
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // What is known already, numbers and the empty name (this host) among it; otherwise `question` is
  // answered later. It may not wait already.
  [[nodiscard]] std::optional<Found> ask(const std::string& host, Question& question);
  // Nobody was found there: its address may have changed.
  void forget(const std::string& host);

protected:
  Resolver() = default;
  // Looks it up, for all who ask meanwhile: answers at once, or later with answered().
  [[nodiscard]] virtual std::optional<Found> look_up(const std::string& host) = 0;
  void answered(const std::string& host, const Found& found);

private:
  static constexpr std::size_t hosts_max = 4096; // that are remembered

  struct Host {
    std::vector<Address> addresses; // the last that were found
    bool good = false; // nobody has failed to reach them
    bool asked = false; // an answer is to come
    std::vector<Question*> waiting;
  };
  [[nodiscard]] static Found take(Host& host, Found found);

  std::map<std::string, Host> hosts_;
  std::vector<Question*> answering_; // null: withdrawn
};

// Looks up where it is asked: for programs that are given no other, and for tests.
class BlockingResolver final : public Resolver {
public:
  using LookUp = std::function<Found(const std::string& host)>;
  explicit BlockingResolver(LookUp look_up) : look_up_(std::move(look_up)) {}

private:
  std::optional<Found> look_up(const std::string& host) override { return look_up_(host); }
  LookUp look_up_;
};

// A name service with moods, in virtual time: each answer takes a while, or is an error, or else
// this host.
class ScriptedResolver final : public Resolver {
public:
  explicit ScriptedResolver(Loop& loop) : loop_(loop) {}
  void take(Duration time) { time_ = time; }
  void fail(std::optional<ErrorKind> kind) { fails_ = kind; } // nullopt: all names are known
  [[nodiscard]] std::size_t asked() const { return asked_; }

private:
  std::optional<Found> look_up(const std::string& host) override;

  Loop& loop_;
  Duration time_{};
  std::optional<ErrorKind> fails_;
  std::size_t asked_ = 0;
  std::map<std::string, Timer> answers_;
};

} // namespace fanin::net
