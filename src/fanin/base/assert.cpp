#include "fanin/base/assert.hpp"

#include <cstdio>
#include <cstdlib>

#include "fanin/base/state.hpp"

namespace fanin::detail {

void assertion_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "fanin: broken invariant: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

void wrong_state(const char* function, int from, int to) {
  std::fprintf(stderr, "fanin: broken invariant: state %d may not follow state %d: %s\n", to, from,
               function);
  std::abort();
}

} // namespace fanin::detail
