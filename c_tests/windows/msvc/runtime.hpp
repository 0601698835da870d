// The C++ runtime of programs that are built for Microsoft's ABI without its SDK: what the compiler calls by itself.
#pragma once
#include <stddef.h>
#include <stdint.h>
extern "C" {
__declspec(dllimport) int printf(const char*, ...);
__declspec(dllimport) void ExitProcess(unsigned);
int strcmp(const char*, const char*);
int memcmp(const void*, const void*, size_t);
void* memset(void*, int, size_t);
void* malloc(size_t);
void free(void*);
int _fltused = 0;
int _purecall()
{
    printf("a pure virtual function was called\n");
    ExitProcess(99);
    return 0;
}
}
void* operator new(size_t size) { return malloc(size); }
void operator delete(void* memory, size_t) noexcept { free(memory); }
void operator delete(void* memory) noexcept { free(memory); }
// As vcruntime lays it out: two words, then the decorated name.
class type_info {
public:
    virtual ~type_info();
    const char* raw_name() const { return reinterpret_cast<const char*>(this) + 16; }
    bool operator==(const type_info& other) const { return strcmp(raw_name(), other.raw_name()) == 0; }
    bool operator!=(const type_info& other) const { return !(*this == other); }
};
extern "C" {
__attribute__((used)) void* nrdma_type_info_vftable[2] __asm__("??_7type_info@@6B@") = {nullptr, nullptr};
}
namespace std {
using ::type_info;
}
