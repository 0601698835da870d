//! Control frames: what two nodes say to each other about jobs and fragments.
use crate::core::admission::Load;
use crate::core::buffer::Path;
use crate::core::error::{Error, Kind, Result};
use crate::core::transport::{MAX_FRAME, Place, RegionKey};

/// The class id of a job, as `mi::base::Uuid`.
pub(crate) type Uuid = [u32; 4];

/// Which part of a fragment's result a [`Frame::Result`] announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// An intermediate one (flush); answered by [`Frame::Ack`].
    Partial,
    /// The last one.
    Final,
    /// The last one, and nothing is delivered.
    Nothing,
}

/// How the responder is to hand over a fragment's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// As bytes: there is no result buffer.
    Bytes,
    /// A buffer that the peer cannot reach: send the bytes.
    Unreachable { capacity: u64 },
    /// A window of an announced region.
    Window { key: RegionKey, offset: u64, capacity: u64, alias: bool },
}

/// One control frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A job of which fragments will follow.
    JobOpen {
        job: u64,
        class: Uuid,
        count: u64,
        payload: u64,
        thread_limit: u64,
        priority: i32,
        depth: u32,
        load: Load,
    },
    /// No more fragments of the job will come: destroy the replica.
    JobClose { job: u64 },
    /// The job is abandoned: tell the replica.
    JobCancel { job: u64 },
    /// Execute this.
    Fragment { place: Place, target: Target },
    /// A result is in place.
    Result { place: Place, sequence: u32, part: Part, path: Path, size: u64 },
    /// The fragment failed.
    Failed { place: Place, kind: Kind, text: String },
    /// The requester's callback for an intermediate result has returned.
    Ack { place: Place, sequence: u32, ok: bool },
    /// The sender now has this class.
    ClassAdd { class: Uuid },
    /// The sender no longer has this class.
    ClassRemove { class: Uuid },
    /// The sender leaves in good order.
    Goodbye,
    /// Are you there? Echoed at once.
    Ping { stamp: u64 },
    /// The echo.
    Pong { stamp: u64 },
}

const KINDS: [Kind; 24] = [
    Kind::InvalidParameter,
    Kind::NotInFragment,
    Kind::InvalidPriority,
    Kind::OutOfMemory,
    Kind::MemlockLimit,
    Kind::NotSupported,
    Kind::DriverMissing,
    Kind::DriverError,
    Kind::BufferTooSmall,
    Kind::Unreachable,
    Kind::Refused,
    Kind::TimedOut,
    Kind::AuthFailed,
    Kind::VersionMismatch,
    Kind::ProtocolError,
    Kind::AddressInUse,
    Kind::PeerLost,
    Kind::Stale,
    Kind::FragmentFailed,
    Kind::Cancelled,
    Kind::ShutDown,
    Kind::NotRegistered,
    Kind::Panic,
    Kind::AfterFork,
];

/// Room for every frame without text.
const SMALL: usize = 80;

/// The bytes of a frame: on the stack unless they carry text.
pub(crate) enum Encoded {
    /// A fixed-size frame.
    Small { bytes: [u8; SMALL], len: usize },
    /// A frame with text.
    Large(Vec<u8>),
}

impl Encoded {
    fn new() -> Self {
        Self::Small { bytes: [0; SMALL], len: 0 }
    }
    fn push(&mut self, more: &[u8]) {
        if let Self::Small { bytes, len } = self {
            if let Some(room) = bytes.get_mut(*len..*len + more.len()) {
                room.copy_from_slice(more);
                *len += more.len();
                return;
            }
            let grown = bytes.get(..*len).unwrap_or_default().to_vec();
            *self = Self::Large(grown);
        }
        if let Self::Large(bytes) = self {
            bytes.extend_from_slice(more);
        }
    }
    /// A field of fixed width; folds to one store when the fields before it are fixed, too.
    #[inline(always)]
    fn field<const N: usize>(&mut self, field: [u8; N]) -> &mut Self {
        if let Self::Small { bytes, len } = self
            && let Some(room) = bytes.get_mut(*len..).and_then(<[u8]>::first_chunk_mut)
        {
            *room = field;
            *len += N;
        } else {
            self.push(&field);
        }
        self
    }
    #[inline(always)]
    fn byte(&mut self, v: u8) -> &mut Self {
        self.field([v])
    }
    #[inline(always)]
    fn u32(&mut self, v: u32) -> &mut Self {
        self.field(v.to_le_bytes())
    }
    #[inline(always)]
    fn u64(&mut self, v: u64) -> &mut Self {
        self.field(v.to_le_bytes())
    }
    fn uuid(&mut self, v: &Uuid) -> &mut Self {
        for word in v {
            self.u32(*word);
        }
        self
    }
    fn place(&mut self, v: &Place) -> &mut Self {
        self.u64(v.job).u64(v.index).u32(v.attempt)
    }
}
impl AsRef<[u8]> for Encoded {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Small { bytes, len } => bytes.get(..*len).unwrap_or_default(),
            Self::Large(bytes) => bytes,
        }
    }
}

/// Reads a frame from the front; every step is checked.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    #[inline(always)]
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let Some((head, rest)) = self.0.split_first_chunk::<N>() else {
            return Err(Error::protocol(format!("a frame ends {} bytes short", N - self.0.len())));
        };
        self.0 = rest;
        Ok(*head)
    }
    fn byte(&mut self) -> Result<u8> {
        Ok(self.take::<1>()?[0])
    }
    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.take()?))
    }
    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.take()?))
    }
    fn uuid(&mut self) -> Result<Uuid> {
        Ok([self.u32()?, self.u32()?, self.u32()?, self.u32()?])
    }
    fn place(&mut self) -> Result<Place> {
        Ok(Place { job: self.u64()?, index: self.u64()?, attempt: self.u32()? })
    }
    /// A place whose attempt comes first, to fill up a word.
    fn place_behind(&mut self) -> Result<Place> {
        let attempt = self.u32()?;
        Ok(Place { job: self.u64()?, index: self.u64()?, attempt })
    }
    fn key(&mut self) -> Result<RegionKey> {
        Ok(RegionKey { id: self.u64()?, generation: self.u32()? })
    }
}

impl Frame {
    /// The frame's bytes; text is cut so that they fit [`MAX_FRAME`].
    pub(crate) fn encode(&self) -> Encoded {
        let mut out = Encoded::new();
        match self {
            Self::JobOpen { job, class, count, payload, thread_limit, priority, depth, load } => {
                out.byte(1).u64(*job).uuid(class).u64(*count).u64(*payload).u64(*thread_limit);
                out.u32(priority.cast_unsigned()).u32(*depth).u32(load.cpu).u32(load.gpu);
            }
            Self::JobClose { job } => {
                out.byte(2).u64(*job);
            }
            Self::JobCancel { job } => {
                out.byte(3).u64(*job);
            }
            // In this and the next every field is aligned to its width: the ring moves words, and a load that spans
            // two of them has to wait for both.
            Self::Fragment { place: Place { job, index, attempt }, target } => {
                let target_kind = match target {
                    Target::Bytes => 0,
                    Target::Unreachable { .. } => 1,
                    Target::Window { alias, .. } => 2 + u8::from(*alias),
                };
                out.field([4, target_kind, 0, 0]).u32(*attempt).u64(*job).u64(*index);
                match target {
                    Target::Bytes => &mut out,
                    Target::Unreachable { capacity } => out.u64(*capacity),
                    Target::Window { key, offset, capacity, .. } => {
                        out.u64(*capacity).u64(*offset).u64(key.id).u32(key.generation)
                    }
                };
            }
            Self::Result { place: Place { job, index, attempt }, sequence, part, path, size } => {
                let part = match part {
                    Part::Partial => 0,
                    Part::Final => 1,
                    Part::Nothing => 2,
                };
                out.field([5, part, *path as u8, 0]).u32(*attempt).u64(*job).u64(*index);
                out.u64(*size).u32(*sequence);
            }
            Self::Failed { place, kind, text } => {
                let kind = KINDS.iter().position(|k| k == kind).and_then(|n| u8::try_from(n).ok());
                out.byte(6).place(place).byte(kind.unwrap_or_default());
                out.push(cut(text, MAX_FRAME - SMALL).as_bytes());
            }
            Self::Ack { place, sequence, ok } => {
                out.byte(7).place(place).u32(*sequence).byte(u8::from(*ok));
            }
            Self::ClassAdd { class } => {
                out.byte(8).uuid(class);
            }
            Self::ClassRemove { class } => {
                out.byte(9).uuid(class);
            }
            Self::Goodbye => {
                out.byte(10);
            }
            Self::Ping { stamp } => {
                out.byte(11).u64(*stamp);
            }
            Self::Pong { stamp } => {
                out.byte(12).u64(*stamp);
            }
        }
        out
    }

    /// Reads a frame; anything odd is an error, so that the peer is dropped and not guessed at.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut r = Reader(bytes);
        let frame = match r.byte()? {
            1 => Self::JobOpen {
                job: r.u64()?,
                class: r.uuid()?,
                count: r.u64()?,
                payload: r.u64()?,
                thread_limit: r.u64()?,
                priority: r.u32()?.cast_signed(),
                depth: r.u32()?,
                load: Load { cpu: r.u32()?, gpu: r.u32()? },
            },
            2 => Self::JobClose { job: r.u64()? },
            3 => Self::JobCancel { job: r.u64()? },
            4 => {
                let [target, 0, 0] = r.take()? else {
                    return Err(Error::protocol("a fragment's frame with unknown bytes"));
                };
                let place = r.place_behind()?;
                let target = match target {
                    0 => Target::Bytes,
                    1 => Target::Unreachable { capacity: r.u64()? },
                    n @ (2 | 3) => {
                        let (capacity, offset) = (r.u64()?, r.u64()?);
                        Target::Window { key: r.key()?, offset, capacity, alias: n == 3 }
                    }
                    n => return Err(Error::protocol(format!("unknown result target {n}"))),
                };
                Self::Fragment { place, target }
            }
            5 => {
                let [part, path, 0] = r.take()? else {
                    return Err(Error::protocol("a result's frame with unknown bytes"));
                };
                let part = match part {
                    0 => Part::Partial,
                    1 => Part::Final,
                    2 => Part::Nothing,
                    n => return Err(Error::protocol(format!("unknown result part {n}"))),
                };
                let path = Path::from_number(u32::from(path))
                    .ok_or_else(|| Error::protocol(format!("unknown path {path}")))?;
                let place = r.place_behind()?;
                Self::Result { place, size: r.u64()?, sequence: r.u32()?, part, path }
            }
            6 => {
                let place = r.place()?;
                let number = r.byte()?;
                let kind = KINDS.get(usize::from(number)).copied();
                let kind = kind.ok_or_else(|| Error::protocol(format!("unknown error kind {number}")))?;
                let text = String::from_utf8_lossy(r.0).into_owned();
                r.0 = &[];
                Self::Failed { place, kind, text }
            }
            7 => Self::Ack { place: r.place()?, sequence: r.u32()?, ok: r.byte()? != 0 },
            8 => Self::ClassAdd { class: r.uuid()? },
            9 => Self::ClassRemove { class: r.uuid()? },
            10 => Self::Goodbye,
            11 => Self::Ping { stamp: r.u64()? },
            12 => Self::Pong { stamp: r.u64()? },
            n => return Err(Error::protocol(format!("unknown frame {n}"))),
        };
        if r.0.is_empty() {
            Ok(frame)
        } else {
            Err(Error::protocol(format!("{} bytes after a frame", r.0.len())))
        }
    }
}

/// At most `limit` bytes of `text`, whole characters.
fn cut(text: &str, limit: usize) -> &str {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Frame> {
        let place = Place { job: 1, index: u64::MAX - 1, attempt: 3 };
        let key = RegionKey { id: 1 << 40, generation: 7 };
        vec![
            Frame::JobOpen {
                job: 9,
                class: [1, 2, 3, u32::MAX],
                count: 1 << 33,
                payload: 5,
                thread_limit: 0,
                priority: -3,
                depth: 2,
                load: Load { cpu: 1500, gpu: 1 },
            },
            Frame::JobClose { job: 1 },
            Frame::JobCancel { job: u64::MAX },
            Frame::Fragment { place, target: Target::Bytes },
            Frame::Fragment { place, target: Target::Unreachable { capacity: 1 << 40 } },
            Frame::Fragment {
                place,
                target: Target::Window { key, offset: 64, capacity: 1 << 35, alias: true },
            },
            Frame::Fragment { place, target: Target::Window { key, offset: 0, capacity: 1, alias: false } },
            Frame::Result { place, sequence: 4, part: Part::Partial, path: Path::Mapped, size: 1 << 34 },
            Frame::Result { place, sequence: 0, part: Part::Final, path: Path::Staged, size: 0 },
            Frame::Result { place, sequence: 0, part: Part::Nothing, path: Path::None, size: 0 },
            Frame::Failed { place, kind: Kind::Panic, text: "it broke: ü".into() },
            Frame::Ack { place, sequence: 1, ok: false },
            Frame::ClassAdd { class: [4; 4] },
            Frame::ClassRemove { class: [5; 4] },
            Frame::Goodbye,
            Frame::Ping { stamp: 5 },
            Frame::Pong { stamp: u64::MAX },
        ]
    }

    #[test]
    fn every_frame_survives_the_wire() {
        for frame in all() {
            let bytes = frame.encode();
            assert!(bytes.as_ref().len() <= MAX_FRAME);
            assert_eq!(Frame::decode(bytes.as_ref()).unwrap(), frame);
        }
    }

    #[test]
    fn a_fragment_fits_one_ring_slot() {
        let frame = &all()[5];
        assert!(frame.encode().as_ref().len() <= 56);
    }

    #[test]
    fn cut_or_padded_frames_are_refused() {
        for frame in all() {
            let bytes = frame.encode().as_ref().to_vec();
            let texts = matches!(frame, Frame::Failed { .. });
            for n in 0..bytes.len() {
                assert!(texts || Frame::decode(&bytes[..n]).is_err(), "{frame:?} cut to {n}");
            }
            let mut more = bytes.clone();
            more.push(0);
            assert!(texts || Frame::decode(&more).is_err());
        }
    }

    #[test]
    fn unknown_numbers_are_refused() {
        for n in [0, 13, 255] {
            assert_eq!(Frame::decode(&[n; 60]).unwrap_err().kind, Kind::ProtocolError);
        }
        assert!(Frame::decode(&[]).is_err());
    }

    #[test]
    fn long_text_is_cut_at_a_character() {
        let place = Place { job: 0, index: 0, attempt: 0 };
        let frame = Frame::Failed { place, kind: Kind::Panic, text: "ü".repeat(5000) };
        let bytes = frame.encode();
        assert!(bytes.as_ref().len() <= MAX_FRAME);
        let Frame::Failed { text, .. } = Frame::decode(bytes.as_ref()).unwrap() else {
            panic!("other frame")
        };
        assert!(text.len() > 1000 && text.chars().all(|c| c == 'ü'));
    }
}
