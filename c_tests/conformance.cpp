// The conformance suite: the same cases over every engine. conformance --engine inproc|shm
// The cases are in conformance_*.cpp; they and this file are one program.
#define DOCTEST_CONFIG_IMPLEMENT
#define RIG_LIMIT_S 480
#include "rig_main.hpp"
