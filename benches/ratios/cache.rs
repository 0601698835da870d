//! A warm get and release, through the virtual table.
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use crate::node::{Context, Failure, Node, Settings};
use crate::os;
use crate::report::{Measured, Skipped, Value, ratio, time};

const BYTES: usize = 1 << 20;
const ROUNDS: u32 = 200_000;

fn node() -> Result<Node, Failure> {
    os::unpin();
    Node::new(&Settings { name: "cache".to_owned(), worker_threads: 1, ..Settings::default() })
}

fn get_and_release(context: &Context) -> Result<(), Failure> {
    let buffer = context.read_memory(BYTES)?;
    black_box(buffer.address());
    Ok(())
}

/// Seconds for one get and release.
fn timed(context: &Context) -> Result<f64, Failure> {
    for _ in 0..1000 {
        get_and_release(context)?;
    }
    let start = Instant::now();
    for _ in 0..ROUNDS {
        get_and_release(context)?;
    }
    Ok(start.elapsed().as_secs_f64() / f64::from(ROUNDS))
}

pub(crate) fn against_malloc() -> Measured {
    let node = node()?;
    let context = node.context(0).ok_or("there is no context for this host")?;
    ratio(|| {
        let ours = timed(&context)?;
        for _ in 0..1000 {
            os::malloc_free(BYTES);
        }
        let start = Instant::now();
        for _ in 0..ROUNDS {
            os::malloc_free(BYTES);
        }
        let theirs = start.elapsed().as_secs_f64() / f64::from(ROUNDS);
        Ok((ours, theirs, format!("{} / {}", time(ours), time(theirs))))
    })
}

pub(crate) fn mallocs() -> Measured {
    const TIMES: u32 = 1000;
    let node = node()?;
    let context = node.context(0).ok_or("there is no context for this host")?;
    for _ in 0..100 {
        get_and_release(&context)?;
    }
    let before = os::allocations();
    for _ in 0..TIMES {
        get_and_release(&context)?;
    }
    let count = os::allocations() - before;
    Ok(Value { value: count as f64 / f64::from(TIMES), detail: format!("{count} in {TIMES}") })
}

pub(crate) fn two_threads() -> Measured {
    let node = node()?;
    ratio(|| {
        let one = on_threads(&node, 1)?;
        let two = on_threads(&node, 2)?;
        Ok((two, one, format!("{} / {}", time(two), time(one))))
    })
}

/// The slowest thread's time, while all run.
fn on_threads(node: &Node, count: usize) -> Result<f64, Skipped> {
    let start = Barrier::new(count);
    let times = thread::scope(|scope| {
        let run = || -> Result<f64, Skipped> {
            let context = node.context(0).ok_or("there is no context for this host");
            start.wait();
            Ok(timed(&*context?)?)
        };
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(run)).collect();
        threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(|_| Err(Skipped("a thread panicked".to_owned()))))
            .collect::<Vec<_>>()
    });
    let mut slowest = 0.0_f64;
    for time in times {
        slowest = slowest.max(time?);
    }
    Ok(slowest)
}
