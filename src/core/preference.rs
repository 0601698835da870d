//! Which engines a node uses, by its settings.
use std::sync::Arc;

use super::error::{Error, Kind, Result};
use super::transport::{Candidate, Control, Engine, Session};

/// The engines that the names allow, in their order.
pub(super) fn engines(all: &[Arc<dyn Engine>], names: &[String]) -> Result<Vec<Arc<dyn Engine>>> {
    if names.is_empty() {
        return Ok(all.to_vec());
    }
    const KNOWN: [&str; 4] = ["inproc", "shm", "ucx", "tcp"];
    if let Some(odd) = names.iter().find(|name| !KNOWN.contains(&name.as_str())) {
        return Err(Error::invalid(format!("transport '{odd}' is not one of {}", KNOWN.join(", "))));
    }
    let find = |name: &String| all.iter().position(|engine| engine.name() == name);
    let places: Vec<usize> = names.iter().filter_map(find).collect();
    if places.is_empty() {
        let have: Vec<&str> = all.iter().map(|engine| engine.name()).collect();
        let text = format!(
            "none of the transports '{}' is in this build, which has {}",
            names.join(","),
            have.join(", ")
        );
        return Err(Error::new(Kind::NotSupported, text));
    }
    if let [only] = places.as_slice()
        && let Some(engine) = all.get(*only)
    {
        engine.insist();
    }
    Ok(with_left_out(all, &places))
}

/// The chosen ones in their order. Before each, those that are better by nature but were not chosen: both ends
/// shall be able to say why they are not used.
fn with_left_out(all: &[Arc<dyn Engine>], places: &[usize]) -> Vec<Arc<dyn Engine>> {
    let mut engines: Vec<Arc<dyn Engine>> = Vec::new();
    let mut seen = 0;
    for place in places {
        for (at, engine) in all.iter().enumerate().take(*place).skip(seen) {
            if !places.contains(&at) {
                engines.push(Arc::new(LeftOut(engine.name())));
            }
        }
        seen = seen.max(*place);
        engines.extend(all.get(*place).cloned());
    }
    engines
}

/// An engine that the node's settings exclude.
struct LeftOut(&'static str);

impl Engine for LeftOut {
    fn name(&self) -> &'static str {
        self.0
    }
    fn offer(&self, _: &Session, _: &dyn Control) -> Result<Box<dyn Candidate>> {
        Err(Error::new(Kind::NotSupported, "left out by its transports (NRDMA_TRANSPORTS)"))
    }
}
