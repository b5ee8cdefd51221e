// FANIN_TRY hands an error on to the caller, so that what follows deals with the value alone.
#pragma once

#include <type_traits>
#include <utility>

#include "fanin/base/result.hpp"

namespace fanin::detail {

template <class T>
T value_of(Result<T>&& result) {
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

} // namespace fanin::detail

// The value of a Result; a function that returns a Result itself returns the error:
//
//   const auto url = FANIN_TRY(net::Url::parse(text));
//   FANIN_TRY(open(url));
//
// On its own, or as all of what is assigned or returned, so that it is plain where a function may
// end. An extension of GCC and clang.
#define FANIN_TRY(...)                                                                             \
  __extension__({                                                                                  \
    auto fanin_tried = (__VA_ARGS__);                                                              \
    if (!fanin_tried) return std::unexpected(std::move(fanin_tried).error());                      \
    ::fanin::detail::value_of(std::move(fanin_tried));                                             \
  })
