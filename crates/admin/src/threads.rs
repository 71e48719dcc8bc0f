//! Threads and tasks that last as long as the process. A panic of one ends the process, and the manager starts another:
//! otherwise, the listener would accept no more connections, or serve figures that no longer change.

use std::io;
use std::process::exit;
use std::thread::{self, Builder};

/// Starts a thread.
pub fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    start_with(name, run, end_process)
}

/// Runs a task.
pub async fn task(name: &str, run: impl Future<Output = ()>) {
    let _guard = Guard { name: name.to_owned(), failed: end_process };
    run.await;
}

fn end_process(name: &str) {
    eprintln!("The admin listener: its part {name} has failed");
    exit(1)
}

fn start_with(
    name: &str,
    run: impl FnOnce() + Send + 'static,
    failed: impl Fn(&str) + Send + 'static,
) -> io::Result<()> {
    let own = name.to_owned();
    Builder::new().name(name.to_owned()).spawn(move || {
        let _guard = Guard { name: own, failed };
        run();
    })?;
    Ok(())
}

/// Reports a panic during which it is dropped.
struct Guard<F: Fn(&str)> {
    name: String,
    failed: F,
}

impl<F: Fn(&str)> Drop for Guard<F> {
    fn drop(&mut self) {
        if thread::panicking() {
            (self.failed)(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_panic_is_reported_and_an_end_is_not() {
        let (sender, failures) = channel();
        let reporter = |sender: &std::sync::mpsc::Sender<String>| {
            let sender = sender.clone();
            move |name: &str| drop(sender.send(name.to_owned()))
        };
        start_with("ends", || (), reporter(&sender)).expect("a thread begins");
        start_with("fails", || panic!("as the test requires"), reporter(&sender)).expect("a thread begins");
        drop(sender);
        assert_eq!(failures.iter().collect::<Vec<_>>(), ["fails"]);
    }
}
