#![allow(clippy::indexing_slicing, clippy::cast_possible_truncation)]
use super::*;

#[cfg(not(loom))]
mod plain {
    use super::*;
    use crate::core::error::Kind;

    fn pop<const N: usize>(reader: &mut Reader<N>, ring: &Ring<N>) -> Result<Option<(u8, Vec<u8>)>> {
        let mut buffer = EMPTY_RECORD;
        let head = reader.pop(ring, &mut buffer, &mut false)?;
        Ok(head.map(|head| (head.kind, buffer[..head.len].to_vec())))
    }

    fn pattern(len: usize, seed: usize) -> Vec<u8> {
        (0..len).map(|n| (n * 7 + seed * 13) as u8).collect()
    }

    #[test]
    fn records_of_every_length_go_round_many_times() {
        let ring = Box::new(Ring::<SLOTS>::new());
        // Just below the point where positions overflow.
        let start = 0_u32.wrapping_sub(3 * SLOTS as u32);
        let (mut writer, mut reader) = (Writer::starting_at(start), Reader::starting_at(start));
        ring.credit.0.store(start, Ordering::Relaxed);
        for len in 0..=MAX_RECORD {
            let bytes = pattern(len, len);
            let (first, second) = bytes.split_at(len / 3);
            assert!(writer.push(&ring, 1, first, second).unwrap());
            assert!(writer.push(&ring, 2, &bytes, &[]).unwrap());
            assert_eq!(pop(&mut reader, &ring).unwrap(), Some((1, bytes.clone())));
            assert_eq!(pop(&mut reader, &ring).unwrap(), Some((2, bytes)));
            assert_eq!(pop(&mut reader, &ring).unwrap(), None);
        }
        assert!(writer.next < start, "went past the overflow");
        assert!(writer.push(&ring, 1, &[0; MAX_RECORD], &[0]).is_err());
    }

    #[test]
    fn a_full_ring_refuses_and_the_reader_tells() {
        let ring = Box::new(Ring::<SLOTS>::new());
        let (mut writer, mut reader) = (Writer::starting_at(0), Reader::starting_at(0));
        let mut sent = 0;
        while writer.push(&ring, 1, &pattern(100, sent), &[]).unwrap() {
            sent += 1;
        }
        assert_eq!(sent, SLOTS / 2);
        let (mut buffer, mut starved, mut got) = (EMPTY_RECORD, false, 0);
        while !starved {
            let head =
                reader.pop(&ring, &mut buffer, &mut starved).unwrap().expect("told before it is empty");
            assert_eq!(buffer[..head.len], pattern(100, got));
            got += 1;
        }
        assert!(writer.push(&ring, 1, &pattern(100, sent), &[]).unwrap());
        // Told once.
        starved = false;
        while reader.pop(&ring, &mut buffer, &mut starved).unwrap().is_some() {}
        assert!(!starved);
    }

    #[test]
    fn impossible_credit_is_a_protocol_error() {
        for credit in [1, 2, 1000, u32::MAX, 1 << 31] {
            let ring = Box::new(Ring::<SLOTS>::new());
            let mut writer = Writer::starting_at(0);
            for _ in 0..SLOTS {
                assert!(writer.push(&ring, 1, b"x", &[]).unwrap());
            }
            ring.credit.0.store(credit, Ordering::Relaxed);
            let pushed = writer.push(&ring, 1, b"x", &[]);
            match credit {
                1 | 2 => assert!(pushed.unwrap()),
                _ => assert_eq!(pushed.unwrap_err().kind, Kind::ProtocolError, "{credit}"),
            }
        }
        // Backwards is impossible too.
        let ring = Box::new(Ring::<SLOTS>::new());
        let (mut writer, mut reader) = (Writer::starting_at(0), Reader::starting_at(0));
        for _ in 0..SLOTS {
            writer.push(&ring, 1, b"x", &[]).unwrap();
        }
        for _ in 0..10 {
            pop(&mut reader, &ring).unwrap();
        }
        assert!(writer.push(&ring, 1, b"x", &[]).unwrap());
        for _ in 0..9 {
            writer.push(&ring, 1, b"x", &[]).unwrap();
        }
        ring.credit.0.store(5, Ordering::Relaxed);
        assert_eq!(writer.push(&ring, 1, b"x", &[]).unwrap_err().kind, Kind::ProtocolError);
    }

    #[test]
    fn impossible_lengths_are_protocol_errors_and_wild_sequences_are_nothing() {
        for len in [MAX_RECORD + 1, 0xffff, 0xff_ffff] {
            let ring = Box::new(Ring::<SLOTS>::new());
            ring.slots[0].head.store(len as u32, Ordering::Relaxed);
            ring.slots[0].sequence.store(1, Ordering::Relaxed);
            assert_eq!(pop(&mut Reader::starting_at(0), &ring).unwrap_err().kind, Kind::ProtocolError);
        }
        for sequence in [2, 257, u32::MAX, 1 << 31] {
            let ring = Box::new(Ring::<SLOTS>::new());
            ring.slots[0].sequence.store(sequence, Ordering::Relaxed);
            assert_eq!(pop(&mut Reader::starting_at(0), &ring).unwrap(), None);
        }
    }

    /// Every word of the memory set to noise, over and over: no panic, no endless loop.
    #[test]
    fn noise_is_survived() {
        let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            noise
        };
        for _ in 0..200 {
            let ring = Box::new(Ring::<SLOTS>::new());
            for slot in &ring.slots {
                slot.head.store(next() as u32 & 0xff00_0fff, Ordering::Relaxed);
                slot.sequence.store(next() as u32 % 512, Ordering::Relaxed);
            }
            ring.slots[0].sequence.store(1, Ordering::Relaxed);
            ring.credit.0.store(next() as u32, Ordering::Relaxed);
            ring.attention.0.store(next() as u32, Ordering::Relaxed);
            let mut reader = Reader::starting_at(0);
            for _ in 0..SLOTS {
                let _ = pop(&mut reader, &ring);
            }
            let mut writer = Writer::starting_at(0);
            for _ in 0..2 * SLOTS {
                let _ = writer.push(&ring, 1, &[1; 200], &[]);
                ring.take_attention();
            }
        }
    }

    #[test]
    fn attention_is_taken_once() {
        let ring = Box::new(Ring::<SLOTS>::new());
        assert_eq!(ring.take_attention(), Attention::Polled);
        for who in [Attention::Leader, Attention::Progress] {
            assert!(!ring.set_attention(who, 0));
            assert_eq!(ring.take_attention(), who);
            assert_eq!(ring.take_attention(), Attention::Polled);
        }
        Writer::starting_at(0).push(&ring, 1, b"x", &[]).unwrap();
        assert!(ring.set_attention(Attention::Leader, 0));
        assert!(!ring.set_attention(Attention::Polled, 1));
    }
}

/// The very same code under loom: every interleaving, every value that the memory model allows.
#[cfg(loom)]
mod model {
    use super::*;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    /// An eventfd.
    struct Bell(Mutex<bool>, Condvar);
    impl Bell {
        fn new() -> Arc<Self> {
            Arc::new(Self(Mutex::new(false), Condvar::new()))
        }
        fn ring(&self) {
            *self.0.lock().unwrap() = true;
            self.1.notify_one();
        }
        /// Hangs (which loom reports as a deadlock) when the wake-up was lost.
        fn wait(&self) {
            let mut rung = self.0.lock().unwrap();
            while !*rung {
                rung = self.1.wait(rung).unwrap();
            }
            *rung = false;
        }
    }

    #[test]
    fn loom_no_wake_up_is_lost() {
        loom::model(|| {
            let ring = Arc::new(Ring::<2>::new());
            let bell = Bell::new();
            let writer = {
                let (ring, bell) = (Arc::clone(&ring), Arc::clone(&bell));
                thread::spawn(move || {
                    let mut writer = Writer::starting_at(0);
                    for value in 1..=2_u64 {
                        assert!(writer.push(&ring, 1, &value.to_le_bytes(), &[]).unwrap());
                        if ring.take_attention() != Attention::Polled {
                            bell.ring();
                        }
                    }
                })
            };
            let mut reader = Reader::starting_at(0);
            let mut buffer = EMPTY_RECORD;
            for value in 1..=2_u64 {
                loop {
                    if let Some(head) = reader.pop(&ring, &mut buffer, &mut false).unwrap() {
                        assert_eq!((head.len, &buffer[..8]), (8, &value.to_le_bytes()[..]));
                        break;
                    }
                    if !ring.set_attention(Attention::Leader, reader.position()) {
                        bell.wait();
                    }
                }
            }
            writer.join().unwrap();
        });
    }

    #[test]
    fn loom_a_starved_writer_is_told() {
        loom::model(|| {
            let ring = Arc::new(Ring::<1>::new());
            let bell = Bell::new();
            let writer = {
                let (ring, bell) = (Arc::clone(&ring), Arc::clone(&bell));
                thread::spawn(move || {
                    let mut writer = Writer::starting_at(0);
                    for value in 1..=2_u64 {
                        while !writer.push(&ring, 1, &value.to_le_bytes(), &[]).unwrap() {
                            bell.wait();
                        }
                    }
                })
            };
            let mut reader = Reader::starting_at(0);
            let mut buffer = EMPTY_RECORD;
            let mut got = 0;
            while got < 2 {
                let mut starved = false;
                if reader.pop(&ring, &mut buffer, &mut starved).unwrap().is_some() {
                    got += 1;
                    assert_eq!(buffer[0], got);
                } else {
                    thread::yield_now();
                }
                if starved {
                    bell.ring();
                }
            }
            writer.join().unwrap();
        });
    }
}
