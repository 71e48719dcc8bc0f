//! The worker's state as `status` shows it.

/// The state of the worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// There is none.
    #[default]
    Stopped,
    /// On its way.
    Starting,
    /// Serving.
    Running,
    /// On its way out.
    Stopping,
    /// Ended by itself.
    Died,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Stopped => "stopped",
            State::Starting => "starting",
            State::Running => "running",
            State::Stopping => "stopping",
            State::Died => "died, (restarting)",
        }
    }
}
