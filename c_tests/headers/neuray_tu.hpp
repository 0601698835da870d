// A host's implementation of IRDMA_context, made in one translation unit and used in another.
#pragma once

mi::neuraylib::IRDMA_context* make_context(int* alive);
int use_context(mi::neuraylib::IRDMA_context* taken);
