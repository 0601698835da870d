// An SDK that the compiler cannot find by <mi/...> and that the host includes by another path later: the
// guards that neuray.hpp defined make the second declarations vanish.
#include <nrdma/neuray.hpp>
#include "../sdk/base/mi/base/types.h"
#include "../sdk/base/mi/base/uuid.h"
#include "../sdk/base/mi/base/iinterface.h"
#include "../sdk/base/mi/base/interface_declare.h"
#include "../sdk/base/mi/base/atom.h"
#include "../sdk/base/mi/base/interface_implement.h"
#include "../sdk/base/mi/base/handle.h"
#include "../sdk/neuraylib/mi/neuraylib/irdma_context.h"
#ifdef STAND_IN_TYPES
#  error "the guard did not hold"
#endif
mi::base::Handle<mi::neuraylib::IRDMA_buffer> nothing;
