#include "fanin/base/result.hpp"

#include <system_error>

namespace fanin {

std::unexpected<Error> fail_errno(ErrorKind kind, std::string what, int error_number) {
  what += ": ";
  what += std::generic_category().message(error_number);
  return fail(kind, std::move(what));
}

} // namespace fanin
