#include "fanin/base/shared_module.hpp"

#include <gmock/gmock.h>

#include <cstdlib>

namespace fanin {
namespace {

using testing::HasSubstr;

class SharedModuleTest : public testing::Test {
protected:
  SharedModuleTest() { setenv("FANIN_MODULE_PATH", "/nowhere::" FANIN_TEST_MODULES, 1); }
  void TearDown() override { unsetenv("FANIN_MODULE_PATH"); }

  static std::string refusal(std::string_view name) {
    const auto module = SharedModule::open(name);
    return module ? "opened" : module.error().text;
  }
};

TEST_F(SharedModuleTest, a_module_that_is_missing_is_refused_with_the_folders) {
  EXPECT_THAT(refusal("nothing"), HasSubstr("without fanin_nothing.so (looked in /nowhere, "));
}

TEST_F(SharedModuleTest, a_module_of_another_commit_is_refused) {
  EXPECT_THAT(refusal("another_commit"), HasSubstr("belongs to commit 000000000000 of fanin"));
}

TEST_F(SharedModuleTest, a_file_that_is_no_module_is_refused) {
  EXPECT_THAT(refusal("without_commit"), HasSubstr("has no function fanin_module_commit"));
  EXPECT_THAT(refusal("text"), HasSubstr("fanin_text.so"));
}

} // namespace
} // namespace fanin
