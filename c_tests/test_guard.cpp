// The function that a C++ host lends the library: it lets no exception pass.
#include <doctest/doctest.h>
#include <nrdma/nrdma.hpp>

#include <cstring>
#include <stdexcept>
#include <string>

using nrdma::detail::guard;

namespace {

struct Quiet : std::exception {
    const char* what() const noexcept override { return nullptr; }
};

void nothing(void* arg) { ++*static_cast<int*>(arg); }
void standard(void*) { throw std::runtime_error("no such tile"); }
void literal(void*) { throw "a literal"; }
void number(void*) { throw 42; }
void quiet(void*) { throw Quiet(); }

}  // namespace

TEST_CASE("a body that returns")
{
    int runs = 0;
    char what[16] = "untouched";
    CHECK(guard(nothing, &runs, what, sizeof what) == 0);
    CHECK(runs == 1);
    CHECK(std::strcmp(what, "untouched") == 0);
}

TEST_CASE("a body that throws")
{
    char what[64];
    CHECK(guard(standard, nullptr, what, sizeof what) == 1);
    CHECK(std::string(what) == "no such tile");
    CHECK(guard(literal, nullptr, what, sizeof what) == 1);
    CHECK(std::string(what) == "a literal");
    CHECK(guard(number, nullptr, what, sizeof what) == 1);
    CHECK(std::strlen(what) > 0);
    CHECK(guard(quiet, nullptr, what, sizeof what) == 1);
    CHECK(std::string(what).empty());
}

TEST_CASE("the text is cut to what fits")
{
    char what[8];
    std::memset(what, '#', sizeof what);
    CHECK(guard(standard, nullptr, what, 5) == 1);
    CHECK(std::memcmp(what, "no s\0###", 8) == 0);
    CHECK(guard(standard, nullptr, what, 1) == 1);
    CHECK(what[0] == '\0');
    what[0] = '#';
    CHECK(guard(standard, nullptr, what, 0) == 1);
    CHECK(what[0] == '#');
    CHECK(guard(standard, nullptr, nullptr, 64) == 1);
}
