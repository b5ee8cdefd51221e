// The same ends on two hosts: who listens serves, who connects says what is to be measured. They
// speak lines of JSON over a TCP connection of their own; the listeners' ports are chosen by the
// system.
#pragma once

#include "fanin/base/descriptor.hpp"
#include "fanin/base/json.hpp"
#include "fanin/base/result.hpp"
#include "fanin/bench/ends.hpp"
#include "fanin/bench/measure.hpp"
#include "fanin/bench/spec.hpp"

namespace fanin::bench {

// Serves one measuring process after another, without an end. Errors: refused.
[[nodiscard]] Result<> serve_ends(const net::Url& url, const Progress& progress);

class OtherHost {
public:
  // Errors: refused, not_found.
  [[nodiscard]] static Result<OtherHost> connect(const net::Url& url);
  // spec's listeners there, its connectors (of `ends`) here. Errors: what either side says.
  [[nodiscard]] Result<Sample> run(const Spec& spec, const Ends& ends, const Window& window);

private:
  OtherHost(Descriptor socket, net::Url url) : socket_(std::move(socket)), url_(std::move(url)) {}

  Descriptor socket_;
  net::Url url_;
};

} // namespace fanin::bench
