//! The worker's state, as `status` shows it.

/// The state of the worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// No worker exists.
    #[default]
    Stopped,
    /// The worker is starting.
    Starting,
    /// The worker serves requests.
    Running,
    /// The worker serves the requests in progress, and ends after the last one.
    Draining,
    /// The worker is being stopped.
    Stopping,
    /// The worker ended unexpectedly.
    Died,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Stopped => "stopped",
            State::Starting => "starting",
            State::Running => "running",
            State::Draining => "draining",
            State::Stopping => "stopping",
            State::Died => "died, (restarting)",
        }
    }
}
