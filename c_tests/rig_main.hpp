// main() of a doctest program whose workers are itself. Include it in one file, which defines
// DOCTEST_CONFIG_IMPLEMENT and RIG_LIMIT_S (seconds for the whole program) first.
#ifndef NRDMA_TEST_RIG_MAIN_HPP
#define NRDMA_TEST_RIG_MAIN_HPP
#include <doctest/doctest.h>

#include "rig_cluster.hpp"

namespace rig {

// Tells the watchdog which case runs.
struct Announcer : doctest::IReporter {
  explicit Announcer(const doctest::ContextOptions&) {}
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_start(const doctest::TestCaseData& data) override { watch_case(&watch, data.m_name, 60); }
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override { watch_case(&watch, "between cases", 60); }
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

inline int run_cases(int argc, char** argv) {
  doctest::Context context(argc, argv);
  return verdict(context.run());
}

}  // namespace rig

REGISTER_LISTENER("announcer", 0, rig::Announcer);

int main(int argc, char** argv) {
  int code = 0;
  if (rig::start_program(argc, argv, &code, RIG_LIMIT_S)) return code;
  return rig::run_cases(argc, argv);
}
#endif
