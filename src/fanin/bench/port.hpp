// The RDMA port that a measurement goes through, and what share of its rate was reached.
#pragma once

#include <optional>
#include <string>

#include "fanin/base/json.hpp"
#include "fanin/bench/measure.hpp"
#include "fanin/doctor/ports.hpp"
#include "fanin/net/url.hpp"

namespace fanin::bench {

// Where the address is one of an RDMA port of this host whose rate is known. Of verbs and
// ofi+verbs; others have none.
[[nodiscard]] std::optional<doctor::Port> find_port(const net::Url& url);

// Adds `port` to a result.
void put_port(json::Value& result, const std::optional<doctor::Port>& port);
// Adds `share_of_port` to a row: of the payload.
void put_share(json::Value& row, const std::optional<doctor::Port>& port, const Series& series);
// "the 10 Gb/s of rxe0 port 1"; empty: the result has none.
[[nodiscard]] std::string port_text(const json::Value& result);
// "62 %"; empty: the row has none.
[[nodiscard]] std::string share_text(const json::Value& row);

} // namespace fanin::bench
