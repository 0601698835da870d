#ifndef MI_BASE_TYPES_H
#define MI_BASE_TYPES_H
#define STAND_IN_TYPES 1
namespace mi {
typedef signed char Sint8;
typedef signed short Sint16;
typedef signed int Sint32;
typedef long long Sint64;
typedef unsigned char Uint8;
typedef unsigned short Uint16;
typedef unsigned int Uint32;
typedef unsigned long long Uint64;
typedef float Float32;
typedef double Float64;
typedef Uint64 Size;
typedef Sint64 Difference;
static const Size SIZE_MAX_VALUE = 18446744073709551615ULL;
}  // namespace mi
#endif
