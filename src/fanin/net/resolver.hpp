/// \file
/// Addresses of host names. Transports ask for a name and get the answer on the loop, so that no
/// look-up delays other work of the loop. A process gives the loop a resolver
/// (Loop::set_resolver()). Without a resolver a name is looked up at once, and the loop waits.
///
/// A name is looked up once, and again after forget(), which is called when nobody answered at an
/// address. While the name service fails, the answer is the addresses that were found before.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fanin/base/export.hpp"
#include "fanin/net/address.hpp"
#include "fanin/net/loop.hpp"

namespace fanin::net {

/// Thread: its loop's.
class FANIN_API Resolver {
public:
  /// The addresses, in the order in which to try them, without a port. Errors: not_found;
  /// disconnected, if asking again may help.
  using Found = Result<std::vector<Address>>;

  /// A question for one name. The code that asks owns it. Destroying it withdraws it.
  class Question {
  public:
    /// `answer` is called on the loop. It may destroy the question.
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

  /// The answer, if it is known already, as for numeric addresses and the empty name (this host).
  /// Otherwise `question` is answered later. It must not be waiting.
  [[nodiscard]] std::optional<Found> ask(const std::string& host, Question& question);
  /// Nobody answered at the host's addresses: they may have changed.
  void forget(const std::string& host);

protected:
  Resolver() = default;
  /// Looks the name up, for all questions that wait for it. Returns the answer, or calls answered()
  /// later.
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

/// A resolver that looks names up at once, and blocks. For programs without another resolver, and
/// for tests.
class BlockingResolver final : public Resolver {
public:
  using LookUp = std::function<Found(const std::string& host)>;
  explicit BlockingResolver(LookUp look_up) : look_up_(std::move(look_up)) {}

private:
  std::optional<Found> look_up(const std::string& host) override { return look_up_(host); }
  LookUp look_up_;
};

/// A scripted name service in virtual time: answers take a given time. They are a given error, or
/// else the address that `names` knows, or else the address of this host.
class ScriptedResolver final : public Resolver {
public:
  using Names = std::function<std::optional<Address>(const std::string&)>;
  explicit ScriptedResolver(Loop& loop, Names names = {}) : loop_(loop), names_(std::move(names)) {}
  void take(Duration time) { time_ = time; }
  void fail(std::optional<ErrorKind> kind) { fails_ = kind; } ///< nullopt: all names are known
  [[nodiscard]] std::size_t asked() const { return asked_; } ///< how often

private:
  std::optional<Found> look_up(const std::string& host) override;

  Loop& loop_;
  Names names_;
  Duration time_{};
  std::optional<ErrorKind> fails_;
  std::size_t asked_ = 0;
  std::map<std::string, Timer> answers_;
};

} // namespace fanin::net
