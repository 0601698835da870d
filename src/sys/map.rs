//! Memory mappings and the sealed memory files behind shared ones.
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use super::limits;
use crate::core::error::{Error, Kind, Result};

/// From this size on the system is asked for huge pages.
pub(crate) const HUGE: usize = 2 << 20;
const PAGE: usize = 4096;
/// Below this, looking how much memory is left costs more than it tells.
const WORTH_A_LOOK: usize = 16 << 20;

/// The system's word for why a call failed, with the call's name.
fn failed(call: &str, bytes: usize, error: &io::Error) -> Error {
    let kind = match error.raw_os_error() {
        Some(libc::ENOMEM | libc::ENOSPC | libc::EFBIG | libc::EMFILE | libc::ENFILE) => Kind::OutOfMemory,
        _ => Kind::NotSupported,
    };
    let advice = match error.raw_os_error() {
        Some(libc::ENOSPC) => "; free some of /dev/shm's file system or of the cgroup's limit",
        Some(libc::EMFILE) => "; raise the limit on open files (ulimit -n)",
        _ => "",
    };
    Error::new(kind, format!("{call} of {bytes} bytes failed: {error}{advice}"))
}

/// Rounds up to whole pages.
fn pages(bytes: usize) -> Result<usize> {
    bytes
        .checked_next_multiple_of(PAGE)
        .filter(|n| *n > 0 && *n <= isize::MAX.unsigned_abs())
        .ok_or_else(|| Error::new(Kind::OutOfMemory, format!("{bytes} bytes cannot be mapped")))
}

/// A memory file of `bytes` bytes whose size nobody can change any more, with all its pages taken now, so
/// that a full file system is an error here and not a SIGBUS later.
pub(crate) fn create_sealed(name: &CStr, bytes: usize) -> Result<OwnedFd> {
    let len = pages(bytes)?;
    check_available(len)?;
    let fd = create(name).map_err(|e| failed("memfd_create", bytes, &e))?;
    let size = libc::off_t::try_from(len)
        .map_err(|_| Error::new(Kind::OutOfMemory, format!("{len} bytes are too many")))?;
    // SAFETY: a plain call on a descriptor that we own.
    if unsafe { libc::ftruncate(fd.as_raw_fd(), size) } != 0 {
        return Err(failed("ftruncate", bytes, &io::Error::last_os_error()));
    }
    take_pages(&fd, size).map_err(|e| failed("posix_fallocate", bytes, &e))?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: a plain call on a descriptor that we own.
    if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
        return Err(failed("sealing", bytes, &io::Error::last_os_error()));
    }
    Ok(fd)
}

/// Taking the pages of a memory file has no limit but the kernel's killer of processes.
fn check_available(bytes: usize) -> Result<()> {
    if bytes < WORTH_A_LOOK {
        return Ok(());
    }
    let left = limits::memory_available();
    if u64::try_from(bytes).is_ok_and(|bytes| bytes < left) {
        return Ok(());
    }
    Err(Error::new(
        Kind::OutOfMemory,
        format!(
            "{bytes} bytes of shared memory were asked for and {left} are left; ask for less or free some"
        ),
    ))
}

fn create(name: &CStr) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // Kernels before 6.3 do not know MFD_NOEXEC_SEAL.
    for flags in [flags | libc::MFD_NOEXEC_SEAL, flags] {
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
        if fd >= 0 {
            // SAFETY: the descriptor is new and nobody else's.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) {
            return Err(error);
        }
    }
    Err(io::Error::last_os_error())
}

fn take_pages(fd: &OwnedFd, size: libc::off_t) -> io::Result<()> {
    loop {
        // SAFETY: a plain call on a descriptor that we own.
        match unsafe { libc::posix_fallocate(fd.as_raw_fd(), 0, size) } {
            0 => return Ok(()),
            libc::EINTR => {}
            code => return Err(io::Error::from_raw_os_error(code)),
        }
    }
}

/// Checks a memory file that came from a peer: it cannot shrink under us and has `bytes` bytes.
pub(crate) fn check_sealed(fd: &OwnedFd, bytes: usize) -> Result<()> {
    // SAFETY: a plain call on a descriptor that we own.
    let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
        return Err(Error::protocol(format!(
            "the peer's memory is not sealed against shrinking (seals {seals:#x}); it is refused"
        )));
    }
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `stat` is room for the answer.
    if unsafe { libc::fstat(fd.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
        return Err(failed("fstat", bytes, &io::Error::last_os_error()));
    }
    // SAFETY: fstat succeeded and filled it.
    let size = unsafe { stat.assume_init() }.st_size;
    match usize::try_from(size) {
        Ok(size) if size >= bytes => Ok(()),
        _ => Err(Error::protocol(format!(
            "the peer's memory has {size} bytes where it announced {bytes}; it is refused"
        ))),
    }
}

/// A mapping; unmapped on drop. The address never changes.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: usize,
    len: usize,
}

impl Mapping {
    /// Fresh zeroed memory of our own, aligned to `align` (a power of two).
    pub(crate) fn anonymous(len: usize, align: usize) -> Result<Self> {
        let mapping = Self::reserve(len, align, libc::PROT_READ | libc::PROT_WRITE)?;
        mapping.want_huge();
        Ok(mapping)
    }

    /// A memory file, shared.
    pub(crate) fn shared(file: &OwnedFd, len: usize) -> Result<Self> {
        Self::shared_aligned(file, len, PAGE)
    }

    /// A memory file, shared, at an aligned address.
    pub(crate) fn shared_aligned(file: &OwnedFd, len: usize, align: usize) -> Result<Self> {
        let mapping = Self::reserve(len, align, libc::PROT_NONE)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let at = mapping.pointer();
        // SAFETY: replaces exactly the pages that `mapping` owns.
        let got = unsafe { libc::mmap(at, mapping.len, access, flags, file.as_raw_fd(), 0) };
        if got == libc::MAP_FAILED {
            return Err(failed("mmap", len, &io::Error::last_os_error()));
        }
        mapping.want_huge();
        Ok(mapping)
    }

    /// Takes address space, aligned.
    fn reserve(bytes: usize, align: usize, access: i32) -> Result<Self> {
        let len = pages(bytes)?;
        let slack = if align > PAGE { align } else { 0 };
        let total = len
            .checked_add(slack)
            .ok_or_else(|| Error::new(Kind::OutOfMemory, format!("{bytes} bytes cannot be mapped")))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: asks for new pages anywhere.
        let start = unsafe { libc::mmap(ptr::null_mut(), total, access, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(failed("mmap", bytes, &io::Error::last_os_error()));
        }
        let start = start.addr();
        let address = start.next_multiple_of(align.max(PAGE));
        let mapping = Self { address, len };
        unmap(start, address - start);
        unmap(address + len, start + total - (address + len));
        Ok(mapping)
    }

    /// The first byte.
    pub(crate) fn address(&self) -> usize {
        self.address
    }

    /// Bytes from there on.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn pointer(&self) -> *mut libc::c_void {
        ptr::with_exposed_provenance_mut(self.address)
    }

    fn advise(&self, len: usize, advice: i32) -> bool {
        let len = len.min(self.len).next_multiple_of(PAGE).min(self.len);
        // SAFETY: the range lies inside our own mapping.
        unsafe { libc::madvise(self.pointer(), len, advice) == 0 }
    }

    /// A hint; systems without huge pages say no.
    fn want_huge(&self) {
        if self.len >= HUGE {
            self.advise(self.len, libc::MADV_HUGEPAGE);
        }
    }

    /// Takes the first `len` bytes' pages now; false when the system would not.
    pub(crate) fn populate(&self, len: usize) -> bool {
        self.advise(len, libc::MADV_POPULATE_WRITE)
    }

    /// Gives a shared mapping's pages back to the system, for everybody who maps them; false when it is
    /// not shared memory.
    pub(crate) fn punch(&self) -> bool {
        self.advise(self.len, libc::MADV_REMOVE)
    }

    /// Keeps the pages out of forked children.
    pub(crate) fn dont_fork(&self) -> bool {
        self.advise(self.len, libc::MADV_DONTFORK)
    }

    /// A second mapping of the same shared pages.
    pub(crate) fn again(&self, align: usize) -> Result<Self> {
        let twin = Self::reserve(self.len, align, libc::PROT_NONE)?;
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: an old length of 0 duplicates a shared mapping; the target is `twin`'s own pages.
        let got = unsafe { libc::mremap(self.pointer(), 0, self.len, flags, twin.pointer()) };
        if got == libc::MAP_FAILED {
            return Err(failed("mremap", self.len, &io::Error::last_os_error()));
        }
        twin.want_huge();
        Ok(twin)
    }

    /// Moves `other`'s pages over ours, in one step: another thread sees the old bytes or the new ones.
    pub(crate) fn replace_with(&self, other: Self) -> Result<()> {
        if other.len != self.len {
            return Err(Error::invalid(format!(
                "a mapping of {} bytes cannot take the place of {} bytes",
                other.len, self.len
            )));
        }
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: source and target are whole mappings of our own, of the same length.
        let got = unsafe { libc::mremap(other.pointer(), other.len, self.len, flags, self.pointer()) };
        if got == libc::MAP_FAILED {
            return Err(failed("mremap", self.len, &io::Error::last_os_error()));
        }
        // Its pages are ours now; unmapping its old place could hit somebody else's newer mapping.
        std::mem::forget(other);
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        unmap(self.address, self.len);
    }
}

fn unmap(address: usize, len: usize) {
    if len > 0 {
        // SAFETY: only called on ranges that a Mapping owns and gives up.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(address), len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn byte(mapping: &Mapping, at: usize) -> *mut u8 {
        assert!(at < mapping.len());
        ptr::with_exposed_provenance_mut(mapping.address() + at)
    }
    fn put(mapping: &Mapping, at: usize, value: u8) {
        // SAFETY: inside the mapping.
        unsafe { byte(mapping, at).write_volatile(value) };
    }
    fn get(mapping: &Mapping, at: usize) -> u8 {
        // SAFETY: inside the mapping.
        unsafe { byte(mapping, at).read_volatile() }
    }

    #[test]
    fn anonymous_memory_is_aligned_zeroed_and_whole_pages() {
        for align in [1, 4096, 65536, 2 << 20] {
            let m = Mapping::anonymous(100_000, align).unwrap();
            assert_eq!(m.address() % align.max(4096), 0);
            assert_eq!(m.len(), 102_400);
            assert_eq!((get(&m, 0), get(&m, m.len() - 1)), (0, 0));
        }
    }

    #[test]
    fn what_cannot_be_mapped_is_an_error() {
        for bytes in [0, usize::MAX, usize::MAX - 65535, 1 << 60] {
            assert_eq!(Mapping::anonymous(bytes, 65536).unwrap_err().kind, Kind::OutOfMemory, "{bytes}");
        }
    }

    #[test]
    fn a_sealed_file_cannot_change_its_size() {
        let fd = create_sealed(c"nrdma-test", 65536).unwrap();
        for size in [0, 1 << 20] {
            // SAFETY: a plain call on our descriptor.
            assert_eq!(unsafe { libc::ftruncate(fd.as_raw_fd(), size) }, -1);
        }
        check_sealed(&fd, 65536).unwrap();
        assert_eq!(check_sealed(&fd, 65537).unwrap_err().kind, Kind::ProtocolError);
    }

    #[test]
    fn an_unsealed_file_is_refused() {
        // SAFETY: the name is a C string.
        let fd = unsafe {
            libc::memfd_create(c"nrdma-test".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
        };
        assert!(fd >= 0);
        // SAFETY: new and ours.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: a plain call on our descriptor.
        assert_eq!(unsafe { libc::ftruncate(fd.as_raw_fd(), 65536) }, 0);
        assert_eq!(check_sealed(&fd, 65536).unwrap_err().kind, Kind::ProtocolError);
    }

    #[test]
    fn two_mappings_of_a_file_are_the_same_memory() {
        let fd = create_sealed(c"nrdma-test", 65536).unwrap();
        let (a, b) =
            (Mapping::shared(&fd, 65536).unwrap(), Mapping::shared_aligned(&fd, 65536, 65536).unwrap());
        drop(fd);
        put(&a, 70, 7);
        assert_eq!(get(&b, 70), 7);
        let c = a.again(65536).unwrap();
        assert_eq!(c.address() % 65536, 0);
        put(&c, 71, 8);
        assert_eq!(get(&a, 71), 8);
        assert!(a.punch());
        assert_eq!((get(&b, 70), get(&c, 71)), (0, 0));
    }

    #[test]
    fn a_full_file_system_is_an_error() {
        let error = create_sealed(c"nrdma-test", 1 << 45).unwrap_err();
        assert_eq!(error.kind, Kind::OutOfMemory, "{error}");
        assert!(error.text.contains("35184372088832"), "{error}");
    }

    #[test]
    fn replacing_keeps_the_address_and_cuts_the_sharing() {
        let fd = create_sealed(c"nrdma-test", 65536).unwrap();
        let (a, b) = (Mapping::shared(&fd, 65536).unwrap(), Mapping::shared(&fd, 65536).unwrap());
        let fresh = Mapping::anonymous(65536, 4096).unwrap();
        put(&fresh, 5, 50);
        a.replace_with(fresh).unwrap();
        put(&b, 5, 9);
        assert_eq!(get(&a, 5), 50);
        assert!(!a.punch());
    }
}
