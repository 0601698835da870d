//! How peers join a node and leave it, and the progress thread that watches over them.
use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::{Error, Kind, Result};
use super::home::Home;
use super::lead::TICK;
use super::log;
use super::node::{Node, PeerEvent};
use super::peer::{Identity, Peer};
use super::scheduler::{Work, become_progress, callback, survive};
use super::transport::{Attention, Control, Direct, Incoming, Link, Listener, Seat};
use super::wire::handshake::{self, Agreed, Policy, Side};
use super::wire::hello::Hello;

/// Connections whose handshake is under way at a time; more wait in the listener's queue.
const MOST_STRANGERS: u32 = 16;
/// How often a connection that came to nothing is logged at most.
const COMPLAINT: Duration = Duration::from_secs(1);
/// Pieces taken from one link before the next has its turn.
const BATCH: usize = 64;
/// Batches that the progress thread takes from one link before it looks at everything else.
const ROUNDS: usize = 64;
/// How long a listener rests that could not accept: for lack of descriptors, or with too many strangers about.
const REST: Duration = Duration::from_millis(50);
/// How often idle memory is looked at.
const DECAY: Duration = Duration::from_secs(1);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection whose other end has not proved itself; counted.
struct Stranger(Arc<Node>);

impl Drop for Stranger {
    fn drop(&mut self) {
        self.0.strangers.fetch_sub(1, Ordering::AcqRel);
        if !lock(&self.0.resting).is_empty() {
            self.0.progress.wake();
        }
    }
}

/// The right to become the peer of that host id and instance, held from the hello until the link is up or has
/// come to nothing: of two connections that are made at the same time one is refused before either counts.
struct Claim<'a> {
    node: &'a Node,
    held: Cell<Option<(u32, u64)>>,
}

impl<'a> Claim<'a> {
    fn new(node: &'a Node) -> Self {
        Self { node, held: Cell::new(None) }
    }

    /// Whether a proven node may become a peer.
    fn admit(&self, peer: &Hello) -> Result<()> {
        let node = self.node;
        node.check_running()?;
        if peer.instance == node.instance() {
            return Err(Error::new(Kind::Refused, "a node cannot connect to itself"));
        }
        if peer.host_id == node.host_id() {
            return Err(Error::new(
                Kind::Refused,
                format!("host id {} is that of both nodes; every node needs its own", peer.host_id),
            ));
        }
        let mut claims = lock(&node.claims);
        let known = node.peer(peer.host_id);
        if let Some(known) =
            known.filter(|known| node.decides(peer.instance) || known.instance != peer.instance)
        {
            return Err(Error::new(
                Kind::Refused,
                format!("host id {} is connected already ({})", known.host_id, known.name),
            ));
        }
        let same = |(host, instance): &(u32, u64)| {
            *host == peer.host_id && (node.decides(peer.instance) || *instance != peer.instance)
        };
        if claims.iter().any(same) {
            let text = format!("host id {} is being connected by another connection", peer.host_id);
            return Err(Error::new(Kind::Refused, text));
        }
        claims.push((peer.host_id, peer.instance));
        self.held.set(Some((peer.host_id, peer.instance)));
        Ok(())
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        let mut claims = lock(&self.node.claims);
        if let Some(at) = claims.iter().position(|claim| *claim == held) {
            claims.swap_remove(at);
        }
    }
}

impl Direct for Node {
    fn incoming(&self, token: u64, incoming: Incoming<'_>) -> Result<()> {
        let peer = self.read_peers().get(&token).cloned();
        peer.map_or(Ok(()), |peer| peer.incoming_at_once(incoming))
    }
}

impl Node {
    // ---- joining

    /// Listens on an address; the one to connect to, which must fit `room` with its NUL, if given.
    pub(crate) fn listen(self: &Arc<Self>, address: &str, room: Option<u64>) -> Result<String> {
        self.check_running()?;
        let network = self.network(address)?;
        let listener = match &self.config.interface {
            Some(interface) => network.listen_on(address, interface)?,
            None => network.listen(address)?,
        };
        if listener.is_exposed() {
            self.check_trust(&listener.bound())?;
        }
        let bound = listener.bound();
        if room.is_some_and(|room| bound.len() as u64 >= room) {
            return Err(Error::new(
                Kind::BufferTooSmall,
                format!("the address '{bound}' needs {} bytes of room with its NUL", bound.len() + 1),
            ));
        }
        let token = self.next();
        let source = listener.source();
        // Looked at with the lock held: a shutdown that began meanwhile has not seen this listener.
        let mut listeners = lock(&self.listeners);
        self.check_running()?;
        self.progress.watch(source, token, false)?;
        listeners.insert(token, Arc::from(listener));
        Ok(bound)
    }

    fn network(&self, address: &str) -> Result<&dyn super::transport::Network> {
        if address.is_empty() {
            return Err(Error::invalid("the address is empty; use host:port or unix:/path"));
        }
        self.backends.networks.iter().find(|n| n.handles(address)).map(AsRef::as_ref).ok_or_else(|| {
            Error::new(
                Kind::NotSupported,
                format!(
                    "address '{address}' is of no kind that this build knows; use host:port or unix:/path"
                ),
            )
        })
    }

    /// Connects to a listening node; its host id.
    pub(crate) fn connect(self: &Arc<Self>, address: &str) -> Result<u32> {
        self.check_running()?;
        let deadline = Instant::now() + self.config.connect_timeout;
        let mut control = self.network(address)?.connect(address, deadline)?;
        if control.is_remote() {
            self.check_trust(address)?;
        }
        let passage = self.passing.enter(control.as_ref());
        let claim = Claim::new(self);
        let agreed = self.shake_hands(control.as_mut(), deadline, &claim, handshake::connect);
        let peer = agreed.and_then(|agreed| self.admit_link(agreed, control, deadline));
        // A node that ends hangs up on its own.
        let peer = peer.map_err(|error| self.check_running().err().unwrap_or(error))?;
        drop((claim, passage));
        // So that both ends know each other when this returns.
        if let Err(error) = peer.wait_answer(deadline) {
            self.leave(&peer);
            return Err(error);
        }
        Ok(peer.host_id)
    }

    /// Whether this node decides which of several connections to that instance stays.
    fn decides(&self, instance: u64) -> bool {
        self.instance() < instance
    }

    /// Beyond this host nothing but a token tells friends from strangers.
    fn check_trust(&self, address: &str) -> Result<()> {
        if self.config.token.is_some() || self.config.insecure {
            return Ok(());
        }
        let text = format!(
            "{address} is open to other hosts, and there is no token to tell friends from strangers; give all \
             nodes the same auth_token or NRDMA_AUTH_TOKEN_FILE (nrdma token makes one), or use 127.0.0.1 or unix:"
        );
        Err(Error::new(Kind::Refused, text))
    }

    fn shake_hands(
        self: &Arc<Self>,
        control: &mut dyn Control,
        deadline: Instant,
        claim: &Claim<'_>,
        handshake: fn(&mut dyn Control, &Side<'_>, Instant) -> Result<Agreed>,
    ) -> Result<Agreed> {
        let own = Hello {
            name: self.config.name.clone(),
            instance: self.instance(),
            host_id: self.host_id(),
            credits: u32::try_from(self.config.workers).map_or(u32::MAX, |n| if n == 0 { 0 } else { n + 1 }),
            classes: self.class_ids(),
        };
        let cookie;
        let policy = match &self.config.token {
            _ if self.config.insecure => Policy::Insecure,
            Some(token) => Policy::Token(token),
            None => {
                cookie = (self.backends.cookie)()?;
                Policy::SameUser(&cookie)
            }
        };
        let admit = |peer: &Hello| claim.admit(peer);
        let side = Side { own: &own, policy, engines: &self.backends.engines, admit: &admit };
        handshake(control, &side, deadline)
    }

    /// Brings the link up and makes its other end a peer.
    fn admit_link(
        self: &Arc<Self>,
        agreed: Agreed,
        mut control: Box<dyn Control>,
        deadline: Instant,
    ) -> Result<Arc<Peer>> {
        let address = control.address();
        let token = self.next();
        let seat = Seat {
            token,
            leader: Arc::clone(&self.leader),
            progress: Arc::clone(&self.progress),
            direct: Arc::clone(self) as Arc<dyn Direct>,
        };
        let Agreed { peer, session, rounds } = agreed;
        let outcome = rounds.meet(control.as_mut(), &session, &seat, deadline)?;
        let link = outcome.met.start(control)?;
        let better = outcome.why_not.iter().map(|(engine, why)| format!("; {engine} not: {why}"));
        let Hello { name, instance, host_id, credits, classes } = peer;
        log::info!("host {host_id} ({name}) connected by {}{}", link.engine(), better.collect::<String>());
        self.join(Identity { host_id, name, address, instance, credits, classes }, token, link)
    }

    fn join(self: &Arc<Self>, identity: Identity, token: u64, link: Arc<dyn Link>) -> Result<Arc<Peer>> {
        let host_id = identity.host_id;
        let home = Home::new(Arc::clone(&self.shared), host_id, Some(Arc::clone(&link)));
        let peer = Peer::new(self, identity, token, link, home);
        let before = match self.add_peer(&peer) {
            Ok(before) => before,
            Err(error) => {
                peer.link.close();
                peer.home.close(peer.lost_error());
                return Err(error);
            }
        };
        if let Some(before) = before
            && before.die()
        {
            before.link.close();
            self.lose(&before, false, false);
        }
        self.hosts_changed();
        self.tell(&peer, PeerEvent::Joined);
        // What came before the peer was known has rung for nobody.
        self.look(&peer);
        Ok(peer)
    }

    /// Adds a peer; the one that it replaces, if any: the other node says that this earlier one is gone.
    fn add_peer(&self, peer: &Arc<Peer>) -> Result<Option<Arc<Peer>>> {
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        self.check_running()?;
        let before = peers.values().find(|other| other.host_id == peer.host_id).cloned();
        if let Some(before) = &before {
            if self.decides(peer.instance) || before.instance != peer.instance {
                let text = format!("host id {} is connected already ({})", before.host_id, before.name);
                return Err(Error::new(Kind::Refused, text));
            }
            peers.remove(&before.token);
        }
        peers.insert(peer.token, Arc::clone(peer));
        Ok(before)
    }

    fn accept(self: &Arc<Self>, token: u64) {
        let listener = lock(&self.listeners).get(&token).cloned();
        let Some(listener) = listener else { return };
        for _ in 0..MOST_STRANGERS {
            if self.strangers.load(Ordering::Acquire) >= MOST_STRANGERS {
                let why = format!("{MOST_STRANGERS} others have not proved themselves yet");
                return self.rest(token, listener.as_ref(), &why);
            }
            match listener.accept() {
                Ok(Some(control)) => {
                    lock(&self.in_trouble).retain(|other| *other != token);
                    self.greet(control);
                }
                Ok(None) => return,
                Err(error) => return self.rest(token, listener.as_ref(), &error.text),
            }
        }
    }

    /// Looks away from a listener for a while: what keeps it from accepting would wake us again and again.
    fn rest(&self, token: u64, listener: &dyn Listener, why: &str) {
        self.progress.unwatch(listener.source());
        lock(&self.resting).push(token);
        if lock(&self.in_trouble).contains(&token) {
            return;
        }
        // Not told now, it is tried again after the rest.
        if let Some(more) = self.may_complain() {
            lock(&self.in_trouble).push(token);
            log::warn!("connections to {} have to wait: {why}{more}", listener.bound());
        }
    }

    fn end_rests(&self) {
        for token in std::mem::take(&mut *lock(&self.resting)) {
            let listeners = lock(&self.listeners);
            if let Some(listener) = listeners.get(&token)
                && self.progress.watch(listener.source(), token, false).is_err()
            {
                lock(&self.resting).push(token);
            }
        }
    }

    /// Shakes hands with a stranger, in a thread of its own: it may be slow, and has no right to delay others.
    fn greet(self: &Arc<Self>, mut control: Box<dyn Control>) {
        self.strangers.fetch_add(1, Ordering::AcqRel);
        let stranger = Stranger(Arc::clone(self));
        let greeting = move || {
            let stranger = stranger;
            let node = Arc::clone(&stranger.0);
            let deadline = Instant::now() + handshake::TIME_LIMIT.min(node.config.connect_timeout);
            let from = control.address();
            survive("the thread of a new connection", || {
                let _passage = node.passing.enter(control.as_ref());
                let claim = Claim::new(&node);
                let proven = match control.claim(deadline) {
                    Ok(true) => Ok(None),
                    Ok(false) => {
                        node.shake_hands(control.as_mut(), deadline, &claim, handshake::accept).map(Some)
                    }
                    Err(error) => Err(error),
                };
                // No stranger any more: bringing the link up may need further connections, which are.
                drop(stranger);
                let joined = match proven {
                    Ok(Some(agreed)) => node.admit_link(agreed, control, deadline).map(drop),
                    Ok(None) => Ok(()),
                    Err(error) => Err(error),
                };
                if let Err(error) = joined
                    && node.check_running().is_ok()
                {
                    node.complain(&from, &error);
                }
            });
        };
        match std::thread::Builder::new().name("nrdma-hello".into()).spawn(greeting) {
            Ok(thread) => self.passing.keep(thread),
            Err(error) => self.complain(
                "a stranger",
                &Error::new(Kind::OutOfMemory, format!("no thread for a new connection: {error}")),
            ),
        }
    }

    /// Logs a connection that came to nothing, if it may.
    fn complain(&self, from: &str, error: &Error) {
        match self.may_complain() {
            Some(more) => log::warn!("the connection from {from} came to nothing: {error}{more}"),
            None => self.complaints.lock().unwrap_or_else(PoisonError::into_inner).1 += 1,
        }
    }

    /// Whether strangers may be logged again: no more often than every [`COMPLAINT`], so that nobody fills the log.
    /// In words, how many were not since.
    fn may_complain(&self) -> Option<String> {
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, unsaid) = &mut *complaints;
        if last.is_some_and(|last| last.elapsed() < COMPLAINT) {
            return None;
        }
        *last = Some(Instant::now());
        match std::mem::take(unsaid) {
            0 => Some(String::new()),
            more => Some(format!(" ({more} more before it)")),
        }
    }

    fn tell(self: &Arc<Self>, peer: &Arc<Peer>, event: PeerEvent) {
        let listener = self.callback.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(listener) = listener else { return };
        let (node, info) = (Arc::clone(self), self.peer_info(peer));
        let tell = move || callback(&node, 0, || listener(&info, event));
        self.deliverers.push(Work::Call(Box::new(tell)), 0);
    }

    // ---- leaving

    /// Takes note that a peer is lost; the progress thread does the rest. May be called with locks held.
    pub(crate) fn lose_later(&self, peer: &Arc<Peer>, error: Error) {
        if peer.die() {
            self.lost.lock().unwrap_or_else(PoisonError::into_inner).push((Arc::clone(peer), error));
            self.progress.wake();
        }
    }

    /// Hangs up on a peer.
    pub(crate) fn disconnect(self: &Arc<Self>, host_id: u32) -> Result<()> {
        let Some(peer) = self.peer(host_id) else {
            return Err(Error::invalid(format!("no host {host_id} is connected")));
        };
        peer.say_goodbye();
        self.leave(&peer);
        Ok(())
    }

    /// Ends the connection to a peer from this side.
    pub(super) fn leave(self: &Arc<Self>, peer: &Arc<Peer>) {
        if peer.die() {
            peer.link.close();
            self.lose(peer, true, false);
        }
    }

    fn take_losses(self: &Arc<Self>) {
        let lost = std::mem::take(&mut *self.lost.lock().unwrap_or_else(PoisonError::into_inner));
        for (peer, error) in lost {
            let confirmed = error.kind == Kind::PeerLost;
            if confirmed {
                // What it said before it hung up still counts.
                peer.drain();
            }
            let left = confirmed && peer.is_leaving();
            if !left {
                log::warn!("host {} ({}) is lost: {error}", peer.host_id, peer.name);
            }
            self.lose(&peer, left, confirmed);
        }
    }

    /// A peer is gone: in good order (`left`) or not; `confirmed`: once the link is closed it can no longer touch our
    /// memory.
    fn lose(self: &Arc<Self>, peer: &Arc<Peer>, left: bool, confirmed: bool) {
        self.peers.write().unwrap_or_else(PoisonError::into_inner).remove(&peer.token);
        peer.link.cut();
        // At once; what takes longer follows on another thread.
        peer.home.refuse(peer.lost_error());
        peer.abandon_jobs();
        let (node, gone) = (Arc::clone(self), Arc::clone(peer));
        let settle = move || {
            gone.link.close();
            for run in node.runs() {
                run.lose(&gone, confirmed);
            }
            gone.home.close(gone.lost_error());
            gone.drop_windows();
        };
        self.deliverers.push(Work::Call(Box::new(settle)), 0);
        self.tell(peer, if left { PeerEvent::Left } else { PeerEvent::Lost });
        self.hosts_changed();
        self.lead.forget_dead();
    }

    // ---- the progress thread

    /// Moves frames while nobody leads, accepts connections, keeps time. Runs no host code.
    pub(super) fn progress_loop(self: &Arc<Self>) {
        become_progress(self);
        let mut ready = Vec::new();
        let mut swept = 0;
        let mut left = 0;
        let mut decayed = Instant::now();
        let mut kept = decayed;
        while !self.progress_ends.load(Ordering::Acquire) {
            survive("the progress thread", || {
                ready.clear();
                self.progress.wait(Some(self.next_timer(decayed)), &mut ready);
                for token in &ready {
                    let peer = self.read_peers().get(token).cloned();
                    match peer {
                        Some(peer) => self.look(&peer),
                        None => self.accept(*token),
                    }
                }
                let sweeps = self.lead.sweeps();
                if sweeps != swept {
                    swept = sweeps;
                    self.peers_sorted().iter().for_each(|peer| self.look(peer));
                }
                self.lead.tick(self.progress.as_ref(), &mut left);
                self.take_losses();
                // While it ticks the loop runs a thousand times a second.
                if !self.lead.is_ticking() || kept.elapsed() >= 10 * TICK {
                    kept = Instant::now();
                    self.keep_time(&mut decayed);
                }
            });
        }
        survive("the progress thread", || self.take_losses());
    }

    /// Looks after one link.
    fn look(self: &Arc<Self>, peer: &Arc<Peer>) {
        peer.service();
        if peer.polled.load(Ordering::Acquire) && self.lead.is_taken() {
            // It is the leader's, but we were rung: the two of us crossed. Only the leader knows whether it
            // sleeps, so it must look and settle anew.
            self.lead.waiter().wake();
            return;
        }
        for _ in 0..ROUNDS {
            let found = peer.poll(BATCH);
            // What is left on a link that was closed stays there for ever.
            if !peer.is_alive() {
                return;
            }
            if found == 0 && !peer.link.attention(Attention::Progress) {
                // One that only says that it lives is not worth the leader's while.
                if peer.take_lively() {
                    self.lead.warm(peer);
                }
                return;
            }
        }
        // There is no end to it: the others first, then again.
        self.lead.ask_for_sweep();
        self.progress.wake();
    }

    fn next_timer(&self, decayed: Instant) -> Duration {
        if self.lead.is_ticking() {
            return TICK;
        }
        let now = Instant::now();
        let mut next = DECAY.saturating_sub(now.duration_since(decayed));
        if !self.read_peers().is_empty() {
            next = next.min(self.config.heartbeat);
            if let Some(timeout) = self.config.peer_timeout {
                next = next.min(timeout / 10);
            }
        }
        if let Some(patience) = self.admission.patience() {
            next = next.min(patience);
        }
        for run in self.runs() {
            if let Some(deadline) = run.deadline.filter(|_| !run.is_stopped()) {
                next = next.min(deadline.saturating_duration_since(now));
            }
        }
        if !lock(&self.resting).is_empty() {
            next = next.min(REST);
        }
        next.max(Duration::from_millis(1))
    }

    fn keep_time(self: &Arc<Self>, decayed: &mut Instant) {
        let now = Instant::now();
        self.end_rests();
        self.executors.revive();
        self.deliverers.revive();
        for run in self.runs() {
            run.check_deadline(now);
        }
        self.admission.relieve();
        let (interval, timeout) = (self.config.heartbeat, self.config.peer_timeout);
        for peer in self.peers_sorted() {
            if !peer.check_life(interval, timeout) {
                let quiet = timeout.unwrap_or_default().as_millis();
                let text = format!("nothing was heard from it for {quiet} ms");
                self.lose_later(&peer, Error::new(Kind::TimedOut, text));
            }
        }
        if now.duration_since(*decayed) >= DECAY {
            *decayed = now;
            self.shared.decay();
        }
    }
}
