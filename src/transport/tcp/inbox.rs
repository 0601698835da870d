//! What comes in on the two connections.
use std::ops::Range;

use super::record::{self, HEAD_BYTES, Head, MAX_RECORD, RECORD_HEAD, SIGNED};
use super::sys::{Moved, Stream};
use crate::core::error::Result;
use crate::core::transport::{Sealer, TAG_BYTES};

/// Room for records that came together.
const BUFFER: usize = 16 * 1024;
const _: () = assert!(BUFFER >= 2 * MAX_RECORD);

/// The control connection's incoming side.
pub(super) struct Records {
    buffer: Box<[u8]>,
    /// What is in it and not taken yet.
    filled: Range<usize>,
    sealer: Sealer,
    /// Records taken.
    pub(super) count: u64,
    /// The last read did not fill the buffer: the socket was empty.
    drained: bool,
    pub(super) ended: bool,
}

impl Records {
    pub(super) fn new(sealer: Sealer) -> Self {
        let buffer = vec![0; BUFFER].into_boxed_slice();
        Self { buffer, filled: 0..0, sealer, count: 0, drained: false, ended: false }
    }

    /// A new round of reading begins.
    pub(super) fn begin(&mut self) {
        self.drained = false;
    }

    /// The kind of the next record and where its body is. Reads from the socket once a round, or until it is empty.
    pub(super) fn next(&mut self, stream: &Stream) -> Result<Option<(u8, Range<usize>)>> {
        loop {
            if let Some((kind, whole)) = self.whole()? {
                let signed = whole.start..whole.end - TAG_BYTES;
                let bytes = self.buffer.get(signed.clone()).unwrap_or_default();
                let tag = self.buffer.get(signed.end..whole.end).unwrap_or_default();
                self.sealer.check(bytes, tag)?;
                self.filled.start = whole.end;
                self.count += 1;
                return Ok(Some((kind, signed.start + RECORD_HEAD..signed.end)));
            }
            if self.drained || self.ended || !self.fill(stream) {
                return Ok(None);
            }
        }
    }

    /// Whether a whole record waits in the buffer.
    pub(super) fn has_more(&self) -> bool {
        // A record that is none is told by the next poll.
        !matches!(self.whole(), Ok(None))
    }

    /// A body that [`Records::next`] told of.
    pub(super) fn body(&self, range: Range<usize>) -> &[u8] {
        self.buffer.get(range).unwrap_or_default()
    }

    fn whole(&self) -> Result<Option<(u8, Range<usize>)>> {
        let bytes = self.buffer.get(self.filled.clone()).unwrap_or_default();
        let Some(head) = bytes.first_chunk::<RECORD_HEAD>() else {
            return Ok(None);
        };
        let (kind, len) = record::parse_record_head(*head)?;
        let total = RECORD_HEAD + len + TAG_BYTES;
        let start = self.filled.start;
        Ok((bytes.len() >= total).then_some((kind, start..start + total)))
    }

    fn fill(&mut self, stream: &Stream) -> bool {
        if self.filled.is_empty() {
            self.filled = 0..0;
        } else if self.filled.end + MAX_RECORD > BUFFER {
            self.buffer.copy_within(self.filled.clone(), 0);
            self.filled = 0..self.filled.len();
        }
        let room = self.buffer.get_mut(self.filled.end..).unwrap_or_default();
        let most = room.len();
        match stream.receive(room) {
            Moved::Bytes(got) => {
                self.filled.end += got;
                self.drained = got < most;
                return true;
            }
            Moved::Later => self.drained = true,
            Moved::Gone => self.ended = true,
        }
        false
    }
}

/// The data connection's incoming side.
pub(super) struct Data {
    head: [u8; HEAD_BYTES],
    got: usize,
    sealer: Sealer,
    /// What is left of the chunk under way.
    pub(super) chunk: Option<Head>,
    pub(super) ended: bool,
}

impl Data {
    pub(super) fn new(sealer: Sealer) -> Self {
        Self { head: [0; HEAD_BYTES], got: 0, sealer, chunk: None, ended: false }
    }

    /// The chunk under way; reads the next head if there is none.
    pub(super) fn current(&mut self, stream: &Stream) -> Result<Option<Head>> {
        while self.chunk.is_none() && !self.ended {
            let room = self.head.get_mut(self.got..).unwrap_or_default();
            match stream.receive(room) {
                Moved::Bytes(got) => self.got += got,
                Moved::Later => return Ok(None),
                Moved::Gone => self.ended = true,
            }
            if self.got == HEAD_BYTES {
                let (signed, tag) = self.head.split_at(SIGNED);
                self.sealer.check(signed, tag)?;
                self.chunk = Some(Head::decode(signed)?);
                self.got = 0;
            }
        }
        Ok(self.chunk)
    }

    /// So many bytes of the chunk have been taken.
    pub(super) fn advance(&mut self, taken: usize) {
        let Some(chunk) = &mut self.chunk else { return };
        // Never more than the chunk has.
        let taken = u32::try_from(taken).unwrap_or(chunk.len).min(chunk.len);
        chunk.len -= taken;
        chunk.target.offset += u64::from(taken);
        if chunk.len == 0 {
            self.chunk = None;
        }
    }
}
