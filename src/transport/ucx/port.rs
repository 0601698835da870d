//! The worker with all sessions that use it; one thread at a time.
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::header::{Head, Kind, SessionId};
use super::inbox::Inbox;
use super::line::{CHANNEL, Line};
use super::pending::Pending;
use super::sys::{Caller, Data, EpId, Event, Worker};
use crate::core::error::{self, Error, Result};
use crate::core::log;
use crate::core::transport::{ChannelProof, Session};

/// How long whoever connected may take to prove himself.
const PROOF_LIMIT: Duration = Duration::from_secs(5);
/// Callers that have not proved themselves, at a time.
const MOST_STRANGERS: usize = 16;
/// Rounds in which a worker must come to rest, or its sleeper is woken at once.
const ROUNDS: usize = 16;

/// The worker with all sessions that use it.
pub(super) struct Port {
    pub(super) worker: Worker,
    expected: HashMap<SessionId, (Session, Arc<Inbox>)>,
    strangers: Vec<(EpId, Instant)>,
    lines: HashMap<SessionId, Line>,
    /// Endpoints whose end is under way.
    closing: HashSet<EpId>,
    /// The descriptor will tell of whatever comes; nothing was done since it was asked to.
    armed: bool,
    /// The session of whoever has his turn, and looks at what came for it himself.
    pub(super) quiet: Option<SessionId>,
}

impl Port {
    pub(super) fn new(worker: Worker) -> Self {
        Self {
            worker,
            expected: HashMap::new(),
            strangers: Vec::new(),
            lines: HashMap::new(),
            closing: HashSet::new(),
            armed: false,
            quiet: None,
        }
    }

    /// The session's part, to send and write with.
    pub(super) fn line(&mut self, session: &SessionId) -> Result<(&mut Line, &mut Worker)> {
        self.armed = false;
        match self.lines.get_mut(session) {
            Some(line) => Ok((line, &mut self.worker)),
            None => Err(Error::new(error::Kind::PeerLost, "the link was closed here")),
        }
    }

    // ---- meeting

    /// A session expects the other end to connect.
    pub(super) fn expect(&mut self, session: &Session, inbox: &Arc<Inbox>) {
        self.expected.insert(session.id, (session.clone(), Arc::clone(inbox)));
    }

    /// It does not any more.
    pub(super) fn give_up(&mut self, session: &SessionId) {
        self.expected.remove(session);
    }

    /// Connects for a session.
    pub(super) fn call(&mut self, session: &Session, to: SocketAddr, inbox: &Arc<Inbox>) -> Result<()> {
        let proof = ChannelProof::make(session, CHANNEL)?;
        self.call_with(session, to, inbox, proof.bytes().to_vec())
    }

    /// Connects for a session with these first words.
    pub(super) fn call_with(
        &mut self,
        session: &Session,
        to: SocketAddr,
        inbox: &Arc<Inbox>,
        words: Vec<u8>,
    ) -> Result<()> {
        self.armed = false;
        let ep = self.worker.connect(to)?;
        let mut line = Line::new(session, ep, Arc::clone(inbox))?;
        let greeted = line.greet(&mut self.worker, session, words);
        self.lines.insert(session.id, line);
        greeted
    }

    fn on_call(&mut self, caller: Caller) {
        if self.expected.is_empty() || self.strangers.len() >= MOST_STRANGERS {
            log::debug!("a UCX connection that no session expects was refused");
            return self.worker.reject(caller);
        }
        match self.worker.accept(caller) {
            Ok(ep) => self.strangers.push((ep, Instant::now())),
            Err(error) => log::debug!("a UCX connection was not taken: {error}"),
        }
    }

    /// The first words of a stranger. Whoever has the wrong ones is cut off.
    fn on_hello(&mut self, header: &[u8], bytes: &[u8], from: Option<EpId>) {
        let Some(at) = self.strangers.iter().position(|(ep, _)| Some(*ep) == from) else { return };
        let (ep, _) = self.strangers.swap_remove(at);
        if let Err(error) = self.prove(header, bytes, ep) {
            log::warn!("a UCX connection came to nothing: {error}");
            self.close(ep);
        }
    }

    fn prove(&mut self, header: &[u8], bytes: &[u8], ep: EpId) -> Result<()> {
        let refused = |why: &str| Error::new(error::Kind::AuthFailed, why.to_owned());
        let proof = ChannelProof::read(bytes).ok_or_else(|| refused("its first words are no proof"))?;
        let (session, inbox) = self
            .expected
            .get(&proof.session())
            .ok_or_else(|| refused("it proves to belong to a session that expects nobody (any more)"))?;
        if !proof.proves(session, CHANNEL)? {
            return Err(refused("its proof does not fit"));
        }
        let mut line = Line::new(session, ep, Arc::clone(inbox))?;
        line.check_hello(header, bytes)?;
        let answer = proof.answer(session, CHANNEL)?.to_vec();
        line.send(&mut self.worker, Kind::Answer, answer)?;
        // From here on nobody else can use it.
        self.expected.remove(&proof.session());
        line.inbox.open();
        self.lines.insert(proof.session(), line);
        Ok(())
    }

    // ---- events

    /// Moves things on; how much there was to do.
    pub(super) fn progress(&mut self) -> usize {
        let moved = self.worker.progress() as usize;
        if moved > 0 {
            self.armed = false;
        }
        moved + self.take_events()
    }

    /// Handles what has happened; how much it was.
    pub(super) fn take_events(&mut self) -> usize {
        let mut count = 0;
        while let Some(event) = self.worker.take() {
            count += 1;
            self.armed = false;
            self.handle(event);
        }
        count
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Called(caller) => self.on_call(caller),
            Event::Failed { ep, status } => {
                if let Some(at) = self.strangers.iter().position(|(stranger, _)| *stranger == ep) {
                    self.strangers.swap_remove(at);
                    self.close(ep);
                } else if let Some(line) = self.lines.values().find(|line| line.ep == ep) {
                    line.inbox.fail(format!("the peer hung up, or cannot be reached any more ({status})"));
                }
            }
            Event::Message { header, data, from } => self.on_message(header, data, from),
            Event::Over { what, bytes, status } => match what {
                Pending::Nothing => {}
                Pending::Sent { session, bytes } => {
                    if let Some(line) = self.lines.get_mut(&session) {
                        line.sent(bytes);
                    }
                }
                Pending::Write { session, write } => {
                    self.with(&session, |line, worker, quiet| line.wrote(worker, write, status, quiet));
                }
                Pending::Received { session, target } => self.with(&session, |line, _, quiet| {
                    line.received(target, bytes, status, quiet);
                    Ok(())
                }),
                Pending::Flushed { session } => {
                    if let Some(line) = self.lines.get_mut(&session) {
                        line.flushed = true;
                    }
                }
                Pending::Closed { ep } => drop(self.closing.remove(&ep)),
            },
        }
    }

    /// Does something for a session; an error ends it.
    fn with(&mut self, session: &SessionId, work: impl FnOnce(&mut Line, &mut Worker, bool) -> Result<()>) {
        let quiet = self.quiet == Some(*session);
        if let Some(line) = self.lines.get_mut(session)
            && let Err(error) = work(line, &mut self.worker, quiet)
        {
            line.break_off(&mut self.worker, error, quiet);
        }
    }

    fn on_message(&mut self, header: Vec<u8>, data: Data, from: Option<EpId>) {
        let head = Head::decode(&header).map(|(head, ..)| head);
        match (head, data) {
            (Some(Head { kind: Kind::Hello, .. }), Data::Bytes(bytes)) => {
                self.on_hello(&header, &bytes, from);
            }
            (Some(Head { session, .. }), data) if self.lines.contains_key(&session) => {
                self.with(&session, |line, worker, quiet| line.arrive(worker, header, data, quiet));
            }
            // Of no session that we know: not worth a word.
            (_, Data::Waiting(waiting)) => self.worker.refuse(waiting),
            _ => {}
        }
    }

    // ---- sleeping

    /// Has the descriptor tell of whatever comes. Looks again after that: what came in between would not be told.
    pub(super) fn settle(&mut self) {
        for _ in 0..ROUNDS {
            if !self.worker.arm() {
                self.progress();
            } else if self.progress() == 0 {
                self.armed = true;
                return;
            }
        }
        self.worker.signal();
    }

    /// Whether somebody who sleeps would be told.
    pub(super) fn is_armed(&self) -> bool {
        self.armed
    }

    /// Cuts off who connected and did not say who he is.
    pub(super) fn expire(&mut self) {
        let late: Vec<EpId> = self
            .strangers
            .iter()
            .filter(|(_, since)| since.elapsed() > PROOF_LIMIT)
            .map(|(ep, _)| *ep)
            .collect();
        self.strangers.retain(|(ep, _)| !late.contains(ep));
        late.into_iter().for_each(|ep| self.close(ep));
    }

    // ---- the end

    /// Begins to flush a session.
    pub(super) fn flush(&mut self, session: &SessionId) -> Result<()> {
        let (line, worker) = self.line(session)?;
        worker.flush(line.ep, Pending::Flushed { session: *session })
    }

    pub(super) fn is_flushed(&self, session: &SessionId) -> bool {
        self.lines.get(session).is_none_or(|line| line.flushed || line.inbox.failure().is_some())
    }

    /// Whether UCX has taken all that was sent.
    pub(super) fn is_sent(&self, session: &SessionId) -> bool {
        self.lines.get(session).is_none_or(|line| line.is_sent() || line.inbox.failure().is_some())
    }

    /// Takes a session out and begins to close its endpoint.
    pub(super) fn end(&mut self, session: &SessionId) -> Option<Ended> {
        self.armed = false;
        let line = self.lines.remove(session)?;
        let ep = line.ep;
        let (exposures, written) = line.end(&mut self.worker);
        self.close(ep);
        Some(Ended { ep, exposures, written })
    }

    fn close(&mut self, ep: EpId) {
        self.closing.insert(ep);
        if !self.worker.close(ep, Pending::Closed { ep }) {
            self.closing.remove(&ep);
        }
    }

    pub(super) fn is_closed(&self, ep: EpId) -> bool {
        !self.closing.contains(&ep)
    }
}

/// What is left of a session.
pub(super) struct Ended {
    pub(super) ep: EpId,
    pub(super) exposures: Vec<Arc<super::memory::Exposure>>,
    pub(super) written: Vec<crate::core::transport::Written>,
}
