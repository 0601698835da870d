//! A progress bar on stderr, only when somebody can see it.
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const WIDTH: u64 = 40;

/// Runs `work` with a bar that follows `done` up to `total` of something.
pub(crate) fn during<T>(what: &str, total: u64, done: &AtomicU64, work: impl FnOnce() -> T) -> T {
    if !io::stderr().is_terminal() {
        return work();
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let painter = scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                show(&bar(done.load(Ordering::Relaxed), total, what));
                thread::park_timeout(Duration::from_millis(80));
            }
            show(&bar(done.load(Ordering::Relaxed), total, what));
            show("\n");
        });
        let result = work();
        over.store(true, Ordering::Release);
        painter.thread().unpark();
        result
    })
}

/// The bar is an ornament: a terminal that refuses it is no failure.
fn show(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes());
    let _ = stderr.flush();
}

fn bar(done: u64, total: u64, what: &str) -> String {
    let filled = (done * WIDTH).checked_div(total).unwrap_or(WIDTH).min(WIDTH);
    let mark = |n: u64, c: &str| c.repeat(usize::try_from(n).unwrap_or(0));
    format!("\r[{}{}] {done}/{total} {what}", mark(filled, "#"), mark(WIDTH - filled, "."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills() {
        assert_eq!(bar(0, 60, "tiles").matches('#').count(), 0);
        assert_eq!(bar(30, 60, "tiles").matches('#').count(), 20);
        assert_eq!(bar(60, 60, "tiles").matches('.').count(), 0);
        assert_eq!(bar(61, 60, "tiles").matches('#').count(), 40);
        assert!(bar(0, 0, "tiles").contains("0/0"));
    }

    #[test]
    fn the_work_is_done_and_its_result_comes_back() {
        assert_eq!(during("x", 3, &AtomicU64::new(0), || 7), 7);
    }
}
