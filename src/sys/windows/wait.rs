//! Sleeping on many sockets and events at once.
//!
//! Sockets are asked by WSAPoll, which knows no events: one datagram socket, connected to itself, wakes the
//! sleeper, and events ring it from the system's pool of waiting threads.
use std::collections::HashMap;
use std::ffi::c_void;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::windows::io::{AsRawHandle, AsRawSocket, FromRawHandle, OwnedHandle};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use windows_sys::Win32::Foundation::{HANDLE, INVALID_HANDLE_VALUE};
use windows_sys::Win32::Networking::WinSock::{
    POLLNVAL, POLLRDNORM, POLLWRNORM, SOCKET, SOCKET_ERROR, WSAPOLLFD, WSAPoll,
};
use windows_sys::Win32::System::Threading::{
    CreateEventW, INFINITE, RegisterWaitForSingleObject, SetEvent, UnregisterWaitEx, WT_EXECUTEINWAITTHREAD,
};

use crate::core::error::{Error, Kind, Result};
use crate::core::transport::{Source, Waiter};

/// An auto-reset event: watched, each ring wakes once.
pub(crate) struct Bell(OwnedHandle);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no attributes and no name.
        let raw = unsafe { CreateEventW(ptr::null(), 0, 0, ptr::null()) };
        if raw.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `raw` was just made and nobody else owns it.
        Ok(Self(unsafe { OwnedHandle::from_raw_handle(raw) }))
    }

    /// Wakes whoever watches it.
    pub(crate) fn ring(&self) {
        // SAFETY: the handle is ours. It cannot fail for an event.
        unsafe { SetEvent(self.0.as_raw_handle()) };
    }

    /// For a waiter.
    pub(crate) fn source(&self) -> Source {
        Source(self.0.as_raw_handle().expose_provenance() as u64)
    }
}

/// A watched socket.
#[derive(Clone, Copy)]
struct Watched {
    source: Source,
    token: u64,
    events: i16,
}

/// What a bell's ring reaches; freed only after the system has promised not to call any more.
struct Ringing {
    shared: Arc<Shared>,
    token: u64,
}

/// A bell that the system's threads wait for.
struct Registration {
    wait: HANDLE,
    ringing: *mut Ringing,
}
// SAFETY: a handle and a pointer that only `end` uses, once.
unsafe impl Send for Registration {}

impl Registration {
    fn new(source: Source, shared: &Arc<Shared>, token: u64) -> io::Result<Self> {
        let ringing = Box::into_raw(Box::new(Ringing { shared: Arc::clone(shared), token }));
        let event = ptr::with_exposed_provenance_mut::<c_void>(usize::try_from(source.0).unwrap_or(0));
        let mut wait = ptr::null_mut();
        // SAFETY: `ringing` lives until `end`; `wait` is valid for writes.
        let made = unsafe {
            let context = ringing.cast_const().cast::<c_void>();
            RegisterWaitForSingleObject(
                &mut wait,
                event,
                Some(rung),
                context,
                INFINITE,
                WT_EXECUTEINWAITTHREAD,
            )
        };
        if made == 0 {
            let error = io::Error::last_os_error();
            // SAFETY: made above, and nobody else has it.
            drop(unsafe { Box::from_raw(ringing) });
            return Err(error);
        }
        Ok(Self { wait, ringing })
    }

    /// Must not be called with the state locked: a ring that is under way is waited for.
    fn end(self) {
        // SAFETY: made by `new`; waits for the callback to end.
        unsafe { UnregisterWaitEx(self.wait, INVALID_HANDLE_VALUE) };
        // SAFETY: made by `new`, and nothing calls back any more.
        drop(unsafe { Box::from_raw(self.ringing) });
    }
}

unsafe extern "system" fn rung(context: *mut c_void, _timed_out: bool) {
    // SAFETY: lives until after the registration has ended.
    let ringing = unsafe { &*context.cast::<Ringing>() };
    let mut state = ringing.shared.lock();
    if !state.rung.contains(&ringing.token) {
        state.rung.push(ringing.token);
    }
    ringing.shared.rouse(&mut state);
}

#[derive(Default)]
struct State {
    sockets: Vec<Watched>,
    bells: HashMap<Source, Registration>,
    /// Tokens of bells that rang.
    rung: Vec<u64>,
    /// `wake` was called.
    woken: bool,
    /// A datagram is on its way to the sleeper.
    roused: bool,
    /// Somebody is in WSAPoll, or about to be.
    sleeping: bool,
}

struct Shared {
    state: Mutex<State>,
    /// Connected to itself.
    alarm: UdpSocket,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the sleeper look at the state again.
    fn rouse(&self, state: &mut State) {
        if state.sleeping && !state.roused {
            // One that is lost is no harm: the buffer is full of others then.
            state.roused = self.alarm.send(&[0]).is_ok();
        }
    }

    /// Forgets a source, wherever it is watched.
    fn forget(&self, source: Source) {
        let bell = {
            let mut state = self.lock();
            state.sockets.retain(|watched| watched.source != source);
            self.rouse(&mut state);
            state.bells.remove(&source)
        };
        if let Some(bell) = bell {
            bell.end();
        }
    }
}

/// A [`Waiter`] over WSAPoll.
pub(crate) struct Poller(Arc<Shared>);

/// Where a node's threads sleep.
pub(crate) fn waiter() -> Result<Poller> {
    let alarm = || {
        let alarm = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        alarm.connect(alarm.local_addr()?)?;
        alarm.set_nonblocking(true)?;
        Ok(alarm)
    };
    let alarm = alarm()
        .map_err(|e: io::Error| Error::new(Kind::OutOfMemory, format!("no socket to be woken by: {e}")))?;
    Ok(Poller(Arc::new(Shared { state: Mutex::new(State::default()), alarm })))
}

impl Poller {
    /// Sleeps once; true when there is something to tell.
    fn sleep(&self, ms: i32, ready: &mut Vec<u64>) -> bool {
        let alarm = self.0.alarm.as_raw_socket();
        let (watched, ms) = {
            let mut state = self.0.lock();
            state.sleeping = true;
            let ms = if state.woken || !state.rung.is_empty() { 0 } else { ms };
            (state.sockets.clone(), ms)
        };
        let entry = |source: u64, events| WSAPOLLFD { fd: source as SOCKET, events, revents: 0 };
        let mut entries = vec![entry(alarm, POLLRDNORM)];
        entries.extend(watched.iter().map(|one| entry(one.source.0, one.events)));
        let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        // SAFETY: that many entries, valid for writes.
        let got = unsafe { WSAPoll(entries.as_mut_ptr(), count, ms) };
        let mut state = self.0.lock();
        state.sleeping = false;
        if state.roused {
            let mut byte = [0];
            while self.0.alarm.recv(&mut byte).is_ok() {}
            state.roused = false;
        }
        let mut any = std::mem::take(&mut state.woken) || got == SOCKET_ERROR;
        let mut tell = |token: u64| {
            any = true;
            if !ready.contains(&token) {
                ready.push(token);
            }
        };
        std::mem::take(&mut state.rung).into_iter().for_each(&mut tell);
        for (entry, watched) in entries.iter().skip(1).zip(&watched) {
            // One that was closed meanwhile is told by POLLNVAL, and is not watched any more.
            let stays = || state.sockets.iter().any(|now| now.source == watched.source);
            if entry.revents & !POLLNVAL != 0 && stays() {
                tell(watched.token);
            }
        }
        any
    }
}

impl Waiter for Poller {
    fn watch(&self, source: Source, token: u64, edge: bool) -> Result<()> {
        if !edge {
            return self.watch_for(source, token, true, false);
        }
        let made = Registration::new(source, &self.0, token)
            .map_err(|e| Error::new(Kind::OutOfMemory, format!("event {source} cannot be watched: {e}")))?;
        let before = self.0.lock().bells.insert(source, made);
        if let Some(before) = before {
            before.end();
        }
        Ok(())
    }

    fn watch_for(&self, source: Source, token: u64, read: bool, write: bool) -> Result<()> {
        let events = if read { POLLRDNORM } else { 0 } | if write { POLLWRNORM } else { 0 };
        let now = Watched { source, token, events };
        let mut state = self.0.lock();
        match state.sockets.iter_mut().find(|watched| watched.source == source) {
            Some(watched) => *watched = now,
            None => state.sockets.push(now),
        }
        self.0.rouse(&mut state);
        Ok(())
    }

    fn unwatch(&self, source: Source) {
        self.0.forget(source);
    }

    fn wait(&self, timeout: Option<Duration>, ready: &mut Vec<u64>) {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            // Rounded up: a wait that ends early would spin until its time is over.
            let ms = left.map_or(-1, |t| i32::try_from(t.as_micros().div_ceil(1000)).unwrap_or(i32::MAX));
            if self.sleep(ms, ready) || left.is_some_and(|left| left.is_zero()) {
                return;
            }
        }
    }

    fn wake(&self) {
        let mut state = self.0.lock();
        state.woken = true;
        self.0.rouse(&mut state);
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        // Registrations hold what they ring.
        let bells = std::mem::take(&mut self.0.lock().bells);
        bells.into_values().for_each(Registration::end);
    }
}
