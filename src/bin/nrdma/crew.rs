//! The worker processes, from start to end.
use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::worker::{GOODBYE, Report};

/// How the workers are started.
pub(crate) struct Plan<'a> {
    pub(crate) hosts: u32,
    pub(crate) address: &'a str,
    pub(crate) threads: u32,
    pub(crate) transports: Option<&'a str>,
}

/// Worker processes. None outlives the crew; should this process be killed, they see their input end.
pub(crate) struct Crew {
    workers: Vec<Mutex<Child>>,
}

impl Crew {
    /// Starts this executable again, as often as asked.
    pub(crate) fn start(plan: &Plan<'_>) -> io::Result<Self> {
        let executable = std::env::current_exe()?;
        let mut crew = Self { workers: Vec::new() };
        for number in 1..=plan.hosts {
            let mut command = Command::new(&executable);
            command.args(["worker", plan.address, "--name", &Self::name(number as usize)]);
            command.args(["--threads", &plan.threads.to_string()]);
            if let Some(transports) = plan.transports {
                command.args(["--transport", transports]);
            }
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            crew.workers.push(Mutex::new(command.spawn()?));
        }
        Ok(crew)
    }

    /// The name of the n-th worker, from 1.
    pub(crate) fn name(number: usize) -> String {
        format!("worker-{number}")
    }

    fn each(&self) -> impl Iterator<Item = (usize, MutexGuard<'_, Child>)> {
        let locked = self.workers.iter().map(|worker| worker.lock().unwrap_or_else(PoisonError::into_inner));
        (1..).zip(locked)
    }

    /// The first worker that has ended already.
    pub(crate) fn ended(&self) -> Option<(usize, ExitStatus)> {
        self.each().find_map(|(number, mut child)| match child.try_wait() {
            Ok(Some(status)) => Some((number, status)),
            _ => None,
        })
    }

    /// Kills the first worker, as `kill -9` does; returns its name.
    pub(crate) fn kill_first(&self) -> Option<String> {
        let (number, mut child) = self.each().next()?;
        child.kill().ok()?;
        Some(Self::name(number))
    }

    /// Ends the workers and collects what they counted; None for one that did not say.
    pub(crate) fn dismiss(&self) -> Vec<Option<Report>> {
        for (_, mut child) in self.each() {
            drop(child.stdin.take());
        }
        let deadline = Instant::now() + GOODBYE;
        self.each().map(|(_, mut child)| farewell(&mut child, deadline)).collect()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for (_, mut child) in self.each() {
            // Both fail only for one that has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits for a worker's end, with a limit, and reads its report.
fn farewell(child: &mut Child, deadline: Instant) -> Option<Report> {
    while let Ok(None) = child.try_wait() {
        if Instant::now() > deadline {
            let _ = child.kill();
            break;
        }
        thread::sleep(Duration::from_millis(2));
    }
    let mut line = String::new();
    child.stdout.take()?.read_to_string(&mut line).ok()?;
    Report::read(&line)
}
