#include "fanin/base/assert.hpp"

#include <cstdio>
#include <cstdlib>

namespace fanin::detail {

void assertion_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "fanin: broken invariant: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

} // namespace fanin::detail
