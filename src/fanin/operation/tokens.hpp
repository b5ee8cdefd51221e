// Who may do what over TCP: tokens in a file that its user alone can read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fanin/base/result.hpp"

namespace fanin::operation {

enum class AccessRole : std::uint8_t { view, operate };
[[nodiscard]] std::string_view name(AccessRole role);

// Thread: any.
class Tokens {
public:
  // Errors: as of read_or_make(), and not_found.
  [[nodiscard]] static Result<Tokens> read(const std::string& path);
  // A line each: "operate TOKEN" or "view TOKEN"; '#' begins a comment. Where there is no file, one
  // with a token of each role is made. Errors: refused (others may read it, or it cannot be
  // made), malformed.
  [[nodiscard]] static Result<Tokens> read_or_make(const std::string& path);

  // Takes the same time for each that is wrong.
  [[nodiscard]] std::optional<AccessRole> role_of(std::string_view token) const;
  // The first one of a role; empty: there is none.
  [[nodiscard]] std::string of(AccessRole role) const;

private:
  std::vector<std::pair<AccessRole, std::string>> tokens_;
};

} // namespace fanin::operation
