/* The interfaces of mi::base and mi::neuraylib that nrdma's objects implement, and those of the host that it drives.
 *
 * For hosts without NVIDIA's SDK. Each SDK header that the compiler finds is included; only what is
 * missing is declared here, and the missing header's include guard is defined, so that a later include
 * of it through another path declares nothing twice. Virtual functions stand in the order of the SDK:
 * the order is the binary interface. C++11 and later.
 */
#ifndef NRDMA_NEURAY_HPP
#define NRDMA_NEURAY_HPP

#include <atomic>
#include <cstddef>

#ifndef __has_include
#  define __has_include(header) 0
#endif

/* Class hierarchy analysis and CFI must not take the classes that they see here for all there are: the
 * objects come from a shared library. */
#if defined(__GNUC__) && !defined(_WIN32)
#  pragma GCC visibility push(default)
#endif

/* ---- mi/base/types.h ---- */
#if __has_include(<mi/base/types.h>)
#  include <mi/base/types.h>
#elif !defined(MI_BASE_TYPES_H)
#  define MI_BASE_TYPES_H
namespace mi {

using Sint8 = signed char;
using Sint16 = signed short;
using Sint32 = signed int;
using Sint64 = signed long long;
using Uint8 = unsigned char;
using Uint16 = unsigned short;
using Uint32 = unsigned int;
using Uint64 = unsigned long long;
using Float32 = float;
using Float64 = double;

/* Sizes and counts; differences of them. */
using Size = Uint64;
using Difference = Sint64;

static const Size SIZE_MAX_VALUE = ~Size(0);

static_assert(sizeof(void*) == 8, "nrdma is for 64-bit platforms");
static_assert(sizeof(Uint16) == 2 && sizeof(Uint32) == 4 && sizeof(Uint64) == 8, "integer sizes");

}  // namespace mi
#endif

/* ---- mi/base/uuid.h ---- */
#if __has_include(<mi/base/uuid.h>)
#  include <mi/base/uuid.h>
#elif !defined(MI_BASE_UUID_H)
#  define MI_BASE_UUID_H
namespace mi {
namespace base {

/* The id of an interface or class. */
struct Uuid {
    Uint32 m_id1;
    Uint32 m_id2;
    Uint32 m_id3;
    Uint32 m_id4;
};

inline bool operator==(const Uuid& a, const Uuid& b)
{
    return a.m_id1 == b.m_id1 && a.m_id2 == b.m_id2 && a.m_id3 == b.m_id3 && a.m_id4 == b.m_id4;
}

inline bool operator<(const Uuid& a, const Uuid& b)
{
    if (a.m_id1 != b.m_id1)
        return a.m_id1 < b.m_id1;
    if (a.m_id2 != b.m_id2)
        return a.m_id2 < b.m_id2;
    if (a.m_id3 != b.m_id3)
        return a.m_id3 < b.m_id3;
    return a.m_id4 < b.m_id4;
}

inline bool operator!=(const Uuid& a, const Uuid& b) { return !(a == b); }
inline bool operator>(const Uuid& a, const Uuid& b) { return b < a; }
inline bool operator<=(const Uuid& a, const Uuid& b) { return !(b < a); }
inline bool operator>=(const Uuid& a, const Uuid& b) { return !(a < b); }

inline Uint32 uuid_hash32(const Uuid& id) { return id.m_id1 ^ id.m_id2 ^ id.m_id3 ^ id.m_id4; }

/* An id as a type, from the parts of its usual text form: 32 bits, twice 16 bits, eight bytes. */
template <Uint32 id1, Uint16 id2, Uint16 id3, Uint8 id4, Uint8 id5, Uint8 id6, Uint8 id7, Uint8 id8,
          Uint8 id9, Uint8 id10, Uint8 id11>
class Uuid_t {
public:
    static const Uint32 m_id1 = id1;
    static const Uint32 m_id2 = static_cast<Uint32>(id2) | (static_cast<Uint32>(id3) << 16);
    static const Uint32 m_id3 = static_cast<Uint32>(id4) | (static_cast<Uint32>(id5) << 8) |
                                (static_cast<Uint32>(id6) << 16) | (static_cast<Uint32>(id7) << 24);
    static const Uint32 m_id4 = static_cast<Uint32>(id8) | (static_cast<Uint32>(id9) << 8) |
                                (static_cast<Uint32>(id10) << 16) | (static_cast<Uint32>(id11) << 24);
    static const Uint32 hash32 = m_id1 ^ m_id2 ^ m_id3 ^ m_id4;

    operator const Uuid&() const
    {
        static const Uuid uuid = {m_id1, m_id2, m_id3, m_id4};
        return uuid;
    }
};

}  // namespace base
}  // namespace mi
#endif

/* ---- mi/base/iinterface.h ---- */
#if __has_include(<mi/base/iinterface.h>)
#  include <mi/base/iinterface.h>
#elif !defined(MI_BASE_IINTERFACE_H)
#  define MI_BASE_IINTERFACE_H
namespace mi {
namespace base {

/* What every object has: a reference count and a way to its other interfaces. */
class IInterface {
public:
    typedef Uuid_t<0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0> IID;

    /* Whether `iid` names this interface or a base of it. */
    static bool compare_iid(const Uuid& iid) { return iid == IID(); }

    /* Both return the new count; the object is gone at 0. */
    virtual Uint32 retain() const = 0;
    virtual Uint32 release() const = 0;

    /* The object as another interface, with one more reference, or NULL. */
    virtual const IInterface* get_interface(const Uuid& interface_id) const = 0;
    virtual IInterface* get_interface(const Uuid& interface_id) = 0;

    template <class T>
    const T* get_interface() const
    {
        return static_cast<const T*>(get_interface(typename T::IID()));
    }

    template <class T>
    T* get_interface()
    {
        return static_cast<T*>(get_interface(typename T::IID()));
    }

    /* The id of the most derived interface. */
    virtual Uuid get_iid() const = 0;

protected:
    /* The end of the search that Interface_declare begins. */
    static const IInterface* get_interface_static(const IInterface* object, const Uuid& interface_id)
    {
        if (!compare_iid(interface_id))
            return nullptr;
        object->retain();
        return object;
    }

    static IInterface* get_interface_static(IInterface* object, const Uuid& interface_id)
    {
        if (!compare_iid(interface_id))
            return nullptr;
        object->retain();
        return object;
    }
};

}  // namespace base
}  // namespace mi
#endif

/* ---- mi/base/interface_declare.h ---- */
#if __has_include(<mi/base/interface_declare.h>)
#  include <mi/base/interface_declare.h>
#elif !defined(MI_BASE_INTERFACE_DECLARE_H)
#  define MI_BASE_INTERFACE_DECLARE_H
namespace mi {
namespace base {

/* The base of an interface with the given id that derives from `I`. */
template <Uint32 id1, Uint16 id2, Uint16 id3, Uint8 id4, Uint8 id5, Uint8 id6, Uint8 id7, Uint8 id8,
          Uint8 id9, Uint8 id10, Uint8 id11, class I = IInterface>
class Interface_declare : public I {
public:
    typedef Interface_declare<id1, id2, id3, id4, id5, id6, id7, id8, id9, id10, id11, I> Self;
    typedef Uuid_t<id1, id2, id3, id4, id5, id6, id7, id8, id9, id10, id11> IID;

    static bool compare_iid(const Uuid& iid) { return iid == IID() || I::compare_iid(iid); }

protected:
    static const IInterface* get_interface_static(const IInterface* object, const Uuid& interface_id)
    {
        if (interface_id != IID())
            return I::get_interface_static(object, interface_id);
        const Self* self = static_cast<const Self*>(object);
        self->retain();
        return self;
    }

    static IInterface* get_interface_static(IInterface* object, const Uuid& interface_id)
    {
        if (interface_id != IID())
            return I::get_interface_static(object, interface_id);
        Self* self = static_cast<Self*>(object);
        self->retain();
        return self;
    }
};

}  // namespace base
}  // namespace mi
#endif

/* ---- mi/base/atom.h ---- */
#if __has_include(<mi/base/atom.h>)
#  include <mi/base/atom.h>
#elif !defined(MI_BASE_ATOM_H)
#  define MI_BASE_ATOM_H
namespace mi {
namespace base {

/* A counter that threads share. */
class Atom32 {
public:
    Atom32() : m_value(0) {}
    Atom32(const Uint32 value) : m_value(value) {}
    Atom32(const Atom32& other) : m_value(other.m_value.load()) {}

    Atom32& operator=(const Atom32& rhs)
    {
        m_value.store(rhs.m_value.load());
        return *this;
    }
    Uint32 operator=(const Uint32 rhs) { return m_value = rhs; }
    Uint32 operator+=(const Uint32 rhs) { return m_value += rhs; }
    Uint32 operator-=(const Uint32 rhs) { return m_value -= rhs; }
    Uint32 operator++() { return ++m_value; }
    Uint32 operator++(int) { return m_value++; }
    Uint32 operator--() { return --m_value; }
    Uint32 operator--(int) { return m_value--; }
    operator Uint32() const { return m_value.load(); }
    Uint32 swap(const Uint32 rhs) { return m_value.exchange(rhs); }

private:
    std::atomic<Uint32> m_value;
};

}  // namespace base
}  // namespace mi
#endif

/* ---- mi/base/interface_implement.h ---- */
#if __has_include(<mi/base/interface_implement.h>)
#  include <mi/base/interface_implement.h>
#elif !defined(MI_BASE_INTERFACE_IMPLEMENT_H)
#  define MI_BASE_INTERFACE_IMPLEMENT_H
namespace mi {
namespace base {

/* Reference counting and get_interface() for a class that implements `I`. The last release deletes it. */
template <class I>
class Interface_implement : public I {
public:
    Interface_implement(Uint32 initial = 1) : m_refcnt(initial) {}

    /* A copy is a new object: it starts with one reference, and assignment leaves both counts alone. */
    Interface_implement(const Interface_implement<I>&) : I(), m_refcnt(1) {}
    Interface_implement<I>& operator=(const Interface_implement<I>&) { return *this; }

    virtual Uint32 retain() const { return ++m_refcnt; }

    virtual Uint32 release() const
    {
        const Uint32 left = --m_refcnt;
        if (left == 0)
            delete this;
        return left;
    }

    virtual const IInterface* get_interface(const Uuid& interface_id) const
    {
        return I::get_interface_static(this, interface_id);
    }

    virtual IInterface* get_interface(const Uuid& interface_id)
    {
        return I::get_interface_static(this, interface_id);
    }

    using I::get_interface;

    Uuid get_iid() const { return typename I::IID(); }

protected:
    virtual ~Interface_implement() {}

    Atom32& refcount() const { return m_refcnt; }

private:
    mutable Atom32 m_refcnt;
};

}  // namespace base
}  // namespace mi
#endif

/* ---- mi/base/handle.h ---- */
#if __has_include(<mi/base/handle.h>)
#  include <mi/base/handle.h>
#elif !defined(MI_BASE_HANDLE_H)
#  define MI_BASE_HANDLE_H
namespace mi {
namespace base {

/* The tag for "take another reference" in place of "take over the caller's". */
struct Dup_interface_helper {};
typedef const Dup_interface_helper* Dup_interface;
static const Dup_interface DUP_INTERFACE = nullptr;

/* Owns one reference to an object, or nothing. */
template <class Interface>
class Handle {
public:
    typedef Handle<Interface> Self;
    typedef Interface Interface_type;
    typedef Interface value_type;
    typedef Difference difference_type;
    typedef Interface* pointer;
    typedef Interface& reference;

    Handle() : m_iptr(nullptr) {}

    /* Takes over the reference that the caller holds. */
    explicit Handle(Interface* object) : m_iptr(object) {}

    /* Takes a reference of its own. */
    Handle(Interface* object, Dup_interface) : m_iptr(object) { retain(); }

    Handle(const Self& other) : m_iptr(other.m_iptr) { retain(); }

    template <class Interface2>
    Handle(const Handle<Interface2>& other) : m_iptr(other.get())
    {
        retain();
    }

    Handle(Self&& other) : m_iptr(other.m_iptr) { other.m_iptr = nullptr; }

    ~Handle() { reset(); }

    Self& operator=(const Self& other)
    {
        Self(other).swap(*this);
        return *this;
    }

    template <class Interface2>
    Self& operator=(const Handle<Interface2>& other)
    {
        Self(other).swap(*this);
        return *this;
    }

    Self& operator=(Self&& other)
    {
        if (this != &other)
            Self(static_cast<Self&&>(other)).swap(*this);
        return *this;
    }

    /* Takes over the reference that the caller holds. */
    Self& operator=(Interface* object)
    {
        Self(object).swap(*this);
        return *this;
    }

    void swap(Self& other)
    {
        Interface* mine = m_iptr;
        m_iptr = other.m_iptr;
        other.m_iptr = mine;
    }

    void reset()
    {
        /* Empty first: the release may run code that looks at this handle. */
        Interface* mine = m_iptr;
        m_iptr = nullptr;
        if (mine != nullptr)
            mine->release();
    }

    bool is_valid_interface() const { return m_iptr != nullptr; }
    Interface* get() const { return m_iptr; }
    Interface& operator*() const { return *m_iptr; }
    Interface* operator->() const { return m_iptr; }

    /* The object as another interface; an empty handle when it has none or this one is empty. */
    template <class New_interface>
    Handle<New_interface> get_interface() const
    {
        if (m_iptr == nullptr)
            return Handle<New_interface>();
        return Handle<New_interface>(
            static_cast<New_interface*>(m_iptr->get_interface(typename New_interface::IID())));
    }

    /* True in a condition, but no integer. */
    typedef bool (Handle::*bool_conversion_support)() const;
    operator bool_conversion_support() const
    {
        return is_valid_interface() ? &Handle<Interface>::is_valid_interface : nullptr;
    }

    friend bool operator==(const Handle<Interface>& lhs, const Interface* rhs) { return lhs.get() == rhs; }
    friend bool operator==(const Interface* lhs, const Handle<Interface>& rhs) { return lhs == rhs.get(); }
    friend bool operator!=(const Handle<Interface>& lhs, const Interface* rhs) { return lhs.get() != rhs; }
    friend bool operator!=(const Interface* lhs, const Handle<Interface>& rhs) { return lhs != rhs.get(); }

private:
    void retain() const
    {
        if (m_iptr != nullptr)
            m_iptr->retain();
    }

    Interface* m_iptr;
};

template <class A, class B>
inline bool operator==(const Handle<A>& lhs, const Handle<B>& rhs)
{
    return lhs.get() == rhs.get();
}

template <class A, class B>
inline bool operator!=(const Handle<A>& lhs, const Handle<B>& rhs)
{
    return lhs.get() != rhs.get();
}

template <class Interface>
inline Handle<Interface> make_handle(Interface* object)
{
    return Handle<Interface>(object);
}

template <class Interface>
inline Handle<Interface> make_handle_dup(Interface* object)
{
    return Handle<Interface>(object, DUP_INTERFACE);
}

}  // namespace base
}  // namespace mi
#endif

/* ---- mi/neuraylib/irdma_context.h ---- */
#if __has_include(<mi/neuraylib/irdma_context.h>)
#  include <mi/neuraylib/irdma_context.h>
#elif !defined(MI_NEURAYLIB_IRDMA_CONTEXT_H)
#  define MI_NEURAYLIB_IRDMA_CONTEXT_H
namespace mi {
namespace neuraylib {

/* Memory that results travel in. The shape of API version 45 and later; the objects also serve code
 * built for the twelve functions of 2019. */
class IRDMA_buffer : public mi::base::Interface_declare<0x9b7b00e6, 0x9539, 0x4a07, 0x88, 0x1a, 0x9d, 0xdd,
                                                        0x91, 0x5c, 0x6d, 0xfe> {
public:
    /* The id of this object, never used again. */
    virtual Uint64 get_id() const = 0;
    /* The GPU that holds the memory, or -1 for main memory. */
    virtual Sint32 get_gpu_id() const = 0;
    virtual const Uint8* get_data() const = 0;
    virtual Uint8* get_data() = 0;
    /* In bytes: the size that was asked for. */
    virtual Size get_size() const = 0;
    /* A view of a part, which keeps the whole alive; +1, or NULL when the part is not inside. */
    virtual const IRDMA_buffer* duplicate(Size offset, Size size) const = 0;
    virtual IRDMA_buffer* duplicate(Size offset, Size size) = 0;
    /* Whether network cards reach the GPU memory directly. */
    virtual bool is_gpudirect() = 0;
};

/* The buffers that are exchanged with one host. */
class IRDMA_context : public mi::base::Interface_declare<0x5f3980e9, 0xfadc, 0x478d, 0xbb, 0x18, 0x44, 0x10,
                                                         0xa4, 0x6f, 0xf7, 0xb5> {
public:
    /* Memory to send from, and memory to receive into; +1, or NULL. */
    virtual IRDMA_buffer* get_write_memory(Size size, Sint32 gpu_id = -1) = 0;
    virtual IRDMA_buffer* get_read_memory(Size size, Sint32 gpu_id = -1) = 0;
    /* The caller's own memory as a buffer; +1, or NULL. */
    virtual IRDMA_buffer* wrap_user_buffer(Uint8* data, Size size, Sint32 gpu_id = -1) = 0;
    /* Sends an intermediate result. 0; -1 wrong buffer or lost peer; -2 not inside a remote fragment. */
    virtual Sint32 flush(IRDMA_buffer* buffer) = 0;
};

}  // namespace neuraylib
}  // namespace mi
#endif

/* ---- mi/neuraylib/iserializer.h ---- */
#if __has_include(<mi/neuraylib/iserializer.h>)
#  include <mi/neuraylib/iserializer.h>
#elif !defined(MI_NEURAYLIB_ISERIALIZER_H)
#  define MI_NEURAYLIB_ISERIALIZER_H
namespace mi {
namespace neuraylib {

/* The number of an element of DiCE's database, which nrdma only carries: what crosses the interface, and the same with
 * its usual operators. */
struct Tag_struct {
    Uint32 id;
};

class Tag : public Tag_struct {
public:
    Tag() { id = 0; }
    Tag(Tag_struct tag) { id = tag.id; }
    bool is_valid() const { return id != 0; }
    explicit operator bool() const { return is_valid(); }
};

inline bool operator==(const Tag& a, const Tag& b) { return a.id == b.id; }
inline bool operator!=(const Tag& a, const Tag& b) { return a.id != b.id; }
inline bool operator<(const Tag& a, const Tag& b) { return a.id < b.id; }
inline bool operator>(const Tag& a, const Tag& b) { return a.id > b.id; }
inline bool operator<=(const Tag& a, const Tag& b) { return a.id <= b.id; }
inline bool operator>=(const Tag& a, const Tag& b) { return a.id >= b.id; }

const Tag NULL_TAG;

class ISerializer;
class IDeserializer;

/* An object that can be written on one host and made again on another. */
class ISerializable : public mi::base::Interface_declare<0x7a70f2fb, 0x1b27, 0x416f, 0xaa, 0x21, 0x16, 0xc7,
                                                         0xb4, 0xd4, 0x1f, 0xfc> {
public:
    virtual mi::base::Uuid get_class_id() const = 0;
    virtual void serialize(ISerializer* serializer) const = 0;
    virtual void deserialize(IDeserializer* deserializer) = 0;
};

/* Where an object writes itself. False: nothing was written. */
class ISerializer : public mi::base::Interface_declare<0xdcf5a659, 0x2b06, 0x436b, 0x82, 0x55, 0x36, 0x9d,
                                                       0xbd, 0xe7, 0x42, 0xb1> {
public:
    /* Another object, which the other side gets from IDeserializer::deserialize(); its class must be registered. */
    virtual bool serialize(const ISerializable* serializable) = 0;
    virtual bool write(const bool* values, Size count = 1) = 0;
    virtual bool write(const Uint8* values, Size count = 1) = 0;
    virtual bool write(const Uint16* values, Size count = 1) = 0;
    virtual bool write(const Uint32* values, Size count = 1) = 0;
    virtual bool write(const Uint64* values, Size count = 1) = 0;
    virtual bool write(const Sint8* values, Size count = 1) = 0;
    virtual bool write(const Sint16* values, Size count = 1) = 0;
    virtual bool write(const Sint32* values, Size count = 1) = 0;
    virtual bool write(const Sint64* values, Size count = 1) = 0;
    virtual bool write(const Float32* values, Size count = 1) = 0;
    virtual bool write(const Float64* values, Size count = 1) = 0;
    /* A hint: so many bytes will follow. */
    virtual void reserve(Size size) = 0;
    /* In execute_fragment_remote(): sends what was written since the last time. */
    virtual void flush() = 0;
    virtual bool write(const Tag_struct* values, Size count = 1) = 0;
};

}  // namespace neuraylib
}  // namespace mi
#endif

/* ---- mi/neuraylib/ideserializer.h ---- */
#if __has_include(<mi/neuraylib/ideserializer.h>)
#  include <mi/neuraylib/ideserializer.h>
#elif !defined(MI_NEURAYLIB_IDESERIALIZER_H)
#  define MI_NEURAYLIB_IDESERIALIZER_H
namespace mi {
namespace neuraylib {

/* Where an object reads itself. False: nothing was read. */
class IDeserializer : public mi::base::Interface_declare<0x7052258a, 0x579b, 0x4861, 0x9c, 0x12, 0x5f, 0x02,
                                                         0x9c, 0x86, 0xfb, 0xce> {
public:
    /* The object that comes next, +1; NULL, and it is skipped, when its class is not registered here. */
    virtual ISerializable* deserialize() = 0;

    /* The same as another interface. */
    template <class T>
    T* deserialize()
    {
        ISerializable* object = deserialize();
        if (object == nullptr)
            return nullptr;
        T* result = static_cast<T*>(object->get_interface(typename T::IID()));
        object->release();
        return result;
    }

    virtual bool read(bool* values, Size count = 1) = 0;
    virtual bool read(Uint8* values, Size count = 1) = 0;
    virtual bool read(Uint16* values, Size count = 1) = 0;
    virtual bool read(Uint32* values, Size count = 1) = 0;
    virtual bool read(Uint64* values, Size count = 1) = 0;
    virtual bool read(Sint8* values, Size count = 1) = 0;
    virtual bool read(Sint16* values, Size count = 1) = 0;
    virtual bool read(Sint32* values, Size count = 1) = 0;
    virtual bool read(Sint64* values, Size count = 1) = 0;
    virtual bool read(Float32* values, Size count = 1) = 0;
    virtual bool read(Float64* values, Size count = 1) = 0;
    virtual bool read(Tag_struct* values, Size count = 1) = 0;
};

}  // namespace neuraylib
}  // namespace mi
#endif

/* ---- mi/neuraylib/iuser_class_factory.h ---- */
#if __has_include(<mi/neuraylib/iuser_class_factory.h>)
#  include <mi/neuraylib/iuser_class_factory.h>
#elif !defined(MI_NEURAYLIB_IUSER_CLASS_FACTORY_H)
#  define MI_NEURAYLIB_IUSER_CLASS_FACTORY_H
namespace mi {
namespace neuraylib {

class ITransaction;

/* Makes objects of one class. nrdma calls it with NULL, 0, NULL. */
class IUser_class_factory : public mi::base::Interface_declare<0x37355ece, 0x2ed7, 0x4158, 0x88, 0x35, 0xb8,
                                                               0x60, 0xaf, 0x75, 0x6a, 0x64> {
public:
    /* +1, or NULL. */
    virtual mi::base::IInterface* create(ITransaction* transaction, Uint32 argc,
                                         const mi::base::IInterface* argv[]) = 0;
};

/* The factory of a class that has a constructor without arguments. */
template <class T>
class User_class_factory : public mi::base::Interface_implement<IUser_class_factory> {
public:
    mi::base::IInterface* create(ITransaction*, Uint32 argc, const mi::base::IInterface*[])
    {
        return argc == 0 ? new T : nullptr;
    }
};

}  // namespace neuraylib
}  // namespace mi
#endif

/* ---- mi/neuraylib/dice.h, as far as jobs need it ---- */
#if __has_include(<mi/neuraylib/dice.h>)
#  include <mi/neuraylib/dice.h>
#elif !defined(MI_NEURAYLIB_DICE_H)
#  define MI_NEURAYLIB_DICE_H
namespace mi {
namespace neuraylib {

class IDice_transaction;
class IGpu_description;

/* Where a fragment runs. Not counted: valid during the call. */
class IJob_execution_context {
public:
    /* Stable for the calling thread, different for each running one. */
    virtual Uint64 get_thread_id() const = 0;
};

/* Work in independent pieces, here and on other hosts. A host that runs pieces for another makes one replica of the
 * job, by the class's factory and deserialize(), and runs several of them on it at once. */
class IFragmented_job : public mi::base::Interface_declare<0x037f3783, 0x187c, 0x4bb7, 0x92, 0x50, 0x6d, 0xfe,
                                                           0x1c, 0x81, 0x89, 0xef, ISerializable> {
public:
    enum Scheduling_mode { LOCAL, CLUSTER, ONCE_PER_HOST, USER_DEFINED, SCHEDULING_MODE_FORCE_32_BIT = 0xffffffffU };

    /* A fragment on the host that runs the job. */
    virtual void execute_fragment(IDice_transaction* transaction, Size index, Size count,
                                  const IJob_execution_context* context) = 0;
    /* A fragment for another host, which gave no result buffer; and there, its results. */
    virtual void execute_fragment_remote(ISerializer* serializer, IDice_transaction* transaction, Size index,
                                         Size count, const IJob_execution_context* context) = 0;
    virtual void receive_remote_result(IDeserializer* deserializer, IDice_transaction* transaction, Size index,
                                       Size count) = 0;
    /* Before a fragment goes to another host: where its result shall be, +1; NULL takes the way above. */
    virtual IRDMA_buffer* get_rdma_result_buffer(IRDMA_context* rdma_context, Size index) = 0;
    /* A fragment for another host, which gave one. The result is +1; NULL: there is none. */
    virtual IRDMA_buffer* execute_fragment_remote_rdma(IDice_transaction* transaction, Size index, Size count,
                                                       IRDMA_context* rdma_context,
                                                       const IJob_execution_context* context) = 0;
    virtual void receive_remote_result_rdma(IRDMA_buffer* buffer, IDice_transaction* transaction, Size index,
                                            Size count) = 0;
    virtual void assign_fragments_to_hosts(Uint32* slots, Size nr_slots) = 0;
    virtual Scheduling_mode get_scheduling_mode() const = 0;
    virtual Float32 get_cpu_load() const = 0;
    virtual Float32 get_gpu_load() const = 0;
    virtual void cancel() = 0;
    virtual Sint8 get_priority() const = 0;
    virtual Size get_thread_limit() const = 0;
    virtual bool get_allow_non_sequential_chunks() const = 0;
};

/* Hears of the end of an asynchronous job. */
class IExecution_listener : public mi::base::Interface_declare<0x5700dbde, 0xbe1d, 0x4c07, 0xa7, 0x0d, 0xf4,
                                                               0x11, 0x7e, 0x9f, 0x73, 0xf1> {
public:
    virtual void job_finished() = 0;
};

/* Runs jobs without a transaction. */
class IScheduler : public mi::base::Interface_declare<0xd0754018, 0xca8f, 0x48e0, 0x8a, 0x37, 0xeb, 0x83, 0x31,
                                                      0xb7, 0x85, 0x20> {
public:
    virtual Sint32 execute_fragmented(IFragmented_job* job, Size count) = 0;
    virtual Sint32 execute_fragmented_async(IFragmented_job* job, Size count, IExecution_listener* listener) = 0;
    virtual void suspend_current_job() = 0;
    virtual void resume_current_job() = 0;
    virtual void yield() = 0;
};

/* Classes and contexts, in the shape of API version 45 and later. */
class IDice_configuration : public mi::base::Interface_declare<0xfccbf7b8, 0x30d1, 0x4fbf, 0xbd, 0xc6, 0x3b,
                                                               0x96, 0xe1, 0xfb, 0x40, 0x6a> {
public:
    virtual bool register_serializable_class(mi::base::Uuid class_id, IUser_class_factory* factory) = 0;

    template <class T>
    bool register_serializable_class()
    {
        IUser_class_factory* factory = new User_class_factory<T>();
        const bool registered = register_serializable_class(typename T::IID(), factory);
        factory->release();
        return registered;
    }

    virtual bool unregister_serializable_class(mi::base::Uuid class_id) = 0;
    virtual Sint32 set_gpu_enabled(bool value) = 0;
    virtual bool get_gpu_enabled() const = 0;
    virtual IRDMA_context* get_rdma_context(Uint32 host_id) = 0;
    virtual Uint32 get_highest_gpu_id(Uint32 host_id = 0) = 0;
    virtual const IGpu_description* get_gpu_description(Uint32 gpu_id, Uint32 host_id = 0) = 0;
};

/* What classes with an id have in common: their id is also an interface's, so that a handle can ask for the class. */
template <Uint32 id1, Uint16 id2, Uint16 id3, Uint8 id4, Uint8 id5, Uint8 id6, Uint8 id7, Uint8 id8, Uint8 id9,
          Uint8 id10, Uint8 id11, class I = mi::base::IInterface>
class Base : public mi::base::Interface_implement<I> {
public:
    typedef Base<id1, id2, id3, id4, id5, id6, id7, id8, id9, id10, id11, I> Self;
    typedef mi::base::Uuid_t<id1, id2, id3, id4, id5, id6, id7, id8, id9, id10, id11> IID;

    static bool compare_iid(const mi::base::Uuid& iid) { return iid == IID() || I::compare_iid(iid); }

    virtual const mi::base::IInterface* get_interface(const mi::base::Uuid& interface_id) const
    {
        if (interface_id != IID())
            return I::get_interface_static(this, interface_id);
        this->retain();
        return this;
    }

    virtual mi::base::IInterface* get_interface(const mi::base::Uuid& interface_id)
    {
        if (interface_id != IID())
            return I::get_interface_static(this, interface_id);
        this->retain();
        return this;
    }

    using mi::base::Interface_implement<I>::get_interface;

    virtual mi::base::Uuid get_class_id() const { return IID(); }
};

/* A job to derive from: LOCAL, of load 1, without data; execute_fragment() is left to write. */
template <Uint32 id1, Uint16 id2, Uint16 id3, Uint8 id4, Uint8 id5, Uint8 id6, Uint8 id7, Uint8 id8, Uint8 id9,
          Uint8 id10, Uint8 id11, class I = IFragmented_job>
class Fragmented_job : public Base<id1, id2, id3, id4, id5, id6, id7, id8, id9, id10, id11, I> {
public:
    virtual IFragmented_job::Scheduling_mode get_scheduling_mode() const { return IFragmented_job::LOCAL; }
    virtual Float32 get_cpu_load() const { return 1.0f; }
    virtual Float32 get_gpu_load() const { return 0.0f; }
    virtual Sint8 get_priority() const { return 0; }
    virtual Size get_thread_limit() const { return 0; }
    virtual bool get_allow_non_sequential_chunks() const { return false; }
    virtual void assign_fragments_to_hosts(Uint32*, Size) {}
    virtual void execute_fragment_remote(ISerializer*, IDice_transaction*, Size, Size,
                                         const IJob_execution_context*)
    {
    }
    virtual void receive_remote_result(IDeserializer*, IDice_transaction*, Size, Size) {}
    virtual IRDMA_buffer* get_rdma_result_buffer(IRDMA_context*, Size) { return nullptr; }
    virtual IRDMA_buffer* execute_fragment_remote_rdma(IDice_transaction*, Size, Size, IRDMA_context*,
                                                       const IJob_execution_context*)
    {
        return nullptr;
    }
    virtual void receive_remote_result_rdma(IRDMA_buffer*, IDice_transaction*, Size, Size) {}
    virtual void serialize(ISerializer*) const {}
    virtual void deserialize(IDeserializer*) {}
    virtual void cancel() {}
};

}  // namespace neuraylib
}  // namespace mi
#endif

#if defined(__GNUC__) && !defined(_WIN32)
#  pragma GCC visibility pop
#endif

#endif /* NRDMA_NEURAY_HPP */
