//! A job that is cancelled takes its memory back; other jobs' results on the same pages must not suffer.
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::abi;
use crate::core::admission::Load;
use crate::core::buffer::Lease;
use crate::core::config::Config;
use crate::core::error::{Error, Kind, Result};
use crate::core::fragment::Fragment;
use crate::core::home::Home;
use crate::core::job::{Class, FragmentInfo, Job, Mode, Replica, ResultInfo, Spec};
use crate::core::memory::Kind as Memory;
use crate::core::node::Node;

const CLASS: [u32; 4] = [9, 9, 9, 9];
const LONG: Duration = Duration::from_secs(20);
/// Chunks of one slab.
const SIZE: usize = 100;

fn node(host_id: u32) -> Arc<Node> {
    let config = Config { host_id, workers: 4, transports: vec!["shm".into()], ..Config::default() };
    Node::create(config, crate::backends(), abi::buffer::make).unwrap()
}

/// Fills its result slowly, half before the other job is cancelled and half after.
struct Slow;
impl Class for Slow {
    fn create(&self, _: &[u8]) -> Result<Box<dyn Replica>> {
        Ok(Box::new(Self))
    }
}
impl Replica for Slow {
    fn execute(&self, _: &FragmentInfo, fragment: &Arc<Fragment>) -> Result<Option<Lease>> {
        let lease = fragment.write_memory(SIZE as u64, -1)?;
        let span = lease.span(SIZE as u64)?;
        thread::sleep(Duration::from_millis(300));
        span.block.write(span.offset, &[7; SIZE])?;
        Ok(Some(lease))
    }
    fn execute_bytes(&self, _: &FragmentInfo, _: &Arc<Fragment>) -> Result<()> {
        Ok(())
    }
    fn cancel(&self) {}
}

#[derive(Default)]
struct Seen {
    results: Mutex<Vec<Vec<u8>>>,
    lent: AtomicU64,
    finished: Mutex<Option<Result<()>>>,
}

struct Small(Arc<Seen>);
impl Job for Small {
    fn runs_here(&self) -> bool {
        false
    }
    fn goes_away(&self) -> bool {
        true
    }
    fn execute(&self, _: &FragmentInfo) -> Result<()> {
        Ok(())
    }
    fn result_buffer(&self, home: &Arc<Home>, _: u64) -> Result<Option<Lease>> {
        self.0.lent.fetch_add(1, SeqCst);
        home.get(Memory::Shared, SIZE as u64, -1).map(Some)
    }
    fn receive(&self, lease: &Lease, _: &ResultInfo) -> Result<()> {
        let span = lease.span(SIZE as u64)?;
        let mut bytes = vec![0; SIZE];
        span.block.read(span.offset, &mut bytes)?;
        self.0.results.lock().unwrap().push(bytes);
        Ok(())
    }
    fn receive_bytes(&self, _: &[u8], _: &ResultInfo) -> Result<()> {
        Ok(())
    }
    fn assign_hosts(&self, slots: &mut [u32]) -> Result<()> {
        slots.fill(2);
        Ok(())
    }
    fn failed(&self, _: u64, _: &Error) {}
    fn cancel(&self) {}
    fn finished(&self, result: Result<()>) {
        *self.0.finished.lock().unwrap() = Some(result);
    }
}

fn wait(done: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !done() {
        assert!(start.elapsed() < LONG);
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_cancelled_job_leaves_the_results_of_others_alone() {
    let (a, b) = (node(1), node(2));
    let address = a.listen("unix:", None).unwrap();
    b.register_class(CLASS, Box::new(Slow)).unwrap();
    b.connect(&address).unwrap();
    let spec = Spec {
        class: CLASS,
        mode: Mode::UserDefined,
        priority: 0,
        thread_limit: 0,
        timeout: None,
        rerun_after_partial: false,
        load: Load::default(),
        loss_is_done: false,
    };
    let (kept, cancelled) = (Arc::new(Seen::default()), Arc::new(Seen::default()));
    let mut ids = Vec::new();
    for seen in [&kept, &cancelled] {
        let job = Box::new(Small(Arc::clone(seen)));
        a.execute_async(job, spec.clone(), 2, None, |id| ids.push(id)).unwrap();
        wait(|| seen.lent.load(SeqCst) == 2);
    }
    thread::sleep(Duration::from_millis(100));
    a.cancel(ids[1]).unwrap();
    for seen in [&kept, &cancelled] {
        wait(|| seen.finished.lock().unwrap().is_some());
    }
    assert_eq!(*kept.finished.lock().unwrap(), Some(Ok(())));
    let results = kept.results.lock().unwrap();
    assert_eq!(*results, [[7; SIZE]; 2]);
    let ended = cancelled.finished.lock().unwrap().clone().unwrap();
    assert_eq!(ended.unwrap_err().kind, Kind::Cancelled);
    a.shutdown(Some(LONG)).unwrap();
    b.shutdown(Some(LONG)).unwrap();
}
