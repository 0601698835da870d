// No identifier of the C++ headers is one of those macros. The standard library comes first: it is not ours.
#include <atomic>
#include <cstddef>
#include <exception>
#include <typeinfo>

#include "clash.h"
#ifndef min
#  define min(a, b) (((a) < (b)) ? (a) : (b))
#  define max(a, b) (((a) > (b)) ? (a) : (b))
#endif
#include <nrdma/nrdma.hpp>

nrdma::Handle<mi::neuraylib::IRDMA_buffer> nothing;
