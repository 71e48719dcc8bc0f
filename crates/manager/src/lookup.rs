//! Lookups of addresses on a thread: silent name servers must not stop the manager.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::Builder;

/// The addresses of a name, or the reason why there are none.
pub type Resolved = Result<Vec<SocketAddr>, String>;

/// At most one lookup that runs.
#[derive(Debug, Default)]
pub struct Lookup {
    running: Option<Receiver<Resolved>>,
}

impl Lookup {
    /// Runs `resolve` on a thread, unless a lookup runs already.
    pub fn start(&mut self, resolve: impl FnOnce() -> Resolved + Send + 'static) {
        if self.running.is_some() {
            return;
        }
        let (sender, receiver) = channel();
        let work = move || drop(sender.send(resolve()));
        // Without a thread, the sender is gone, which is the result.
        let _ = Builder::new().name("lookup".to_owned()).spawn(work);
        self.running = Some(receiver);
    }

    /// Returns whether a lookup runs, or has a result that was not taken.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Returns the result of a lookup that has ended since the last call.
    pub fn result(&mut self) -> Option<Resolved> {
        let result = match self.running.as_ref()?.try_recv() {
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err("the thread of the lookup has failed".to_owned()),
            Ok(result) => result,
        };
        self.running = None;
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_caller_does_not_wait_for_a_lookup() {
        let mut lookup = Lookup::default();
        assert_eq!(lookup.result(), None);
        let (release, wait) = channel::<()>();
        lookup.start(move || {
            let _ = wait.recv();
            Ok(vec!["192.0.2.1:1".parse().unwrap()])
        });
        lookup.start(|| panic!("one runs already"));
        assert_eq!(lookup.result(), None);
        release.send(()).unwrap();
        let result = loop {
            match lookup.result() {
                Some(result) => break result,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        assert_eq!(result, Ok(vec!["192.0.2.1:1".parse().unwrap()]));
        lookup.start(|| Err("no".to_owned()));
    }
}
