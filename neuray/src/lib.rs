//! `libnrdma_neuray.so`: what a neuray host asks a plugin library for, in a library of its own, so that a plugin
//! which links libnrdma does not inherit the entry.
//!
//! There is one plugin, of type "nrdma v1", which every host accepts and leaves alone. A host that starts API
//! plugins looks for an exact type, as "neuray API v48"; `NRDMA_NEURAY_PLUGIN_TYPE` sets it.
use std::ffi::{c_char, c_void};
use std::ptr;

/// The version of the plugin system that hosts ask for first.
const SYSTEM_VERSION: i32 = 3;
/// The plugin's own version.
const VERSION: i32 = 1;
const NAME: &std::ffi::CStr = c"nrdma";
const TYPE: &std::ffi::CStr = c"nrdma v1";
const COMPILER: &std::ffi::CStr = c"rustc";

unsafe extern "C" {
    /// glibc: NULL also in a process with raised privileges.
    fn secure_getenv(name: *const c_char) -> *const c_char;
}

/// The plugin: one pointer wide, not counted, of static life.
#[repr(C)]
struct Plugin {
    vtbl: *const Vtbl,
}
// SAFETY: nothing of it changes.
unsafe impl Sync for Plugin {}

/// The slots of mi::base::Plugin, then those of mi::neuraylib::IPlugin; the same for all compilers.
#[repr(C)]
struct Vtbl {
    get_plugin_system_version: extern "C" fn(this: *const Plugin) -> i32,
    get_name: extern "C" fn(this: *const Plugin) -> *const c_char,
    get_type: extern "C" fn(this: *const Plugin) -> *const c_char,
    get_version: extern "C" fn(this: *const Plugin) -> i32,
    get_compiler: extern "C" fn(this: *const Plugin) -> *const c_char,
    release: extern "C" fn(this: *mut Plugin),
    get_string_property:
        unsafe extern "C" fn(this: *mut Plugin, index: i32, value: *mut *const c_char) -> *const c_char,
    init: extern "C" fn(this: *mut Plugin, api: *mut c_void) -> bool,
    exit: extern "C" fn(this: *mut Plugin, api: *mut c_void) -> bool,
}

/// The table, behind the two words that C++ looks for in front of it.
#[repr(C)]
struct Table {
    offset_to_top: isize,
    type_info: *const c_void,
    vtbl: Vtbl,
}
// SAFETY: nothing of it changes.
unsafe impl Sync for Table {}

static TABLE: Table = Table {
    offset_to_top: 0,
    type_info: ptr::null(),
    vtbl: Vtbl {
        get_plugin_system_version,
        get_name,
        get_type,
        get_version,
        get_compiler,
        release,
        get_string_property,
        init,
        exit,
    },
};
static PLUGIN: Plugin = Plugin { vtbl: &raw const TABLE.vtbl };

extern "C" fn get_plugin_system_version(_this: *const Plugin) -> i32 {
    SYSTEM_VERSION
}

extern "C" fn get_name(_this: *const Plugin) -> *const c_char {
    NAME.as_ptr()
}

extern "C" fn get_type(_this: *const Plugin) -> *const c_char {
    // SAFETY: a C string.
    let set = unsafe { secure_getenv(c"NRDMA_NEURAY_PLUGIN_TYPE".as_ptr()) };
    if set.is_null() {
        return TYPE.as_ptr();
    }
    // SAFETY: a C string.
    match unsafe { set.read() } {
        0 => TYPE.as_ptr(),
        _ => set,
    }
}

extern "C" fn get_version(_this: *const Plugin) -> i32 {
    VERSION
}

extern "C" fn get_compiler(_this: *const Plugin) -> *const c_char {
    COMPILER.as_ptr()
}

/// Nothing was allocated.
extern "C" fn release(_this: *mut Plugin) {}

/// `value` gets the property's value, the result is its key; NULL behind the last one.
///
/// # Safety
/// `value` is NULL or room for a pointer.
unsafe extern "C" fn get_string_property(
    _this: *mut Plugin,
    index: i32,
    value: *mut *const c_char,
) -> *const c_char {
    let properties = [
        (c"author", c"the nrdma authors"),
        (c"description", c"RDMA buffers and fragmented jobs; see libnrdma.so"),
        (c"version", c"0.1.0"),
    ];
    let found = usize::try_from(index).ok().and_then(|index| properties.get(index));
    let Some((key, text)) = found else {
        return ptr::null();
    };
    if !value.is_null() {
        // SAFETY: by the contract above.
        unsafe { value.write(text.as_ptr()) };
    }
    key.as_ptr()
}

/// A host that starts API plugins may go on.
extern "C" fn init(_this: *mut Plugin, _api: *mut c_void) -> bool {
    true
}

/// And end.
extern "C" fn exit(_this: *mut Plugin, _api: *mut c_void) -> bool {
    true
}

/// The plugins of this library, by number; NULL behind the last one.
#[unsafe(no_mangle)]
pub extern "C" fn mi_plugin_factory(index: u32, _context: *mut c_void) -> *mut c_void {
    match index {
        0 => (&raw const PLUGIN).cast_mut().cast(),
        _ => ptr::null_mut(),
    }
}
