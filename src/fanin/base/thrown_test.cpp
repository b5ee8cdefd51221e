#include "fanin/base/thrown.hpp"

#include <stdexcept>

#include <gtest/gtest.h>

namespace fanin {
namespace {

template <class Exception>
Error error_of(const Exception& exception) {
  try {
    throw exception;
  } catch (...) {
    return thrown();
  }
}

TEST(Thrown, an_exception_becomes_an_error_with_its_text) {
  const Error error = error_of(std::runtime_error("no such board"));
  EXPECT_EQ(error.kind, ErrorKind::internal);
  EXPECT_EQ(error.text, "it threw an exception: no such board");
}

TEST(Thrown, what_is_not_a_std_exception_has_a_text_of_its_own) {
  const Error error = error_of(7);
  EXPECT_EQ(error.kind, ErrorKind::internal);
  EXPECT_EQ(error.text, "it threw an exception that is not a std::exception");
}

} // namespace
} // namespace fanin
