// Real DiCE job objects over every engine: the program.
#define DOCTEST_CONFIG_IMPLEMENT
#define RIG_LIMIT_S 400
#include "rig_main.hpp"
#include "rig_dice.hpp"
