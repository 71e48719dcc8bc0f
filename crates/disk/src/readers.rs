//! The threads that read.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

type Task = Box<dyn FnOnce() + Send>;

/// The tasks of the threads.
#[derive(Default)]
pub(crate) struct Readers {
    tasks: Mutex<VecDeque<Task>>,
    has_tasks: Condvar,
}

impl Readers {
    pub(crate) fn add(&self, task: impl FnOnce() + Send + 'static) {
        self.tasks.lock().push_back(Box::new(task));
        self.has_tasks.notify_one();
    }

    /// Performs the tasks that wait.
    pub(crate) fn run_waiting(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            task();
        }
    }

    /// Works without end.
    pub(crate) fn run(&self) {
        loop {
            let task = {
                let mut tasks = self.tasks.lock();
                loop {
                    match tasks.pop_front() {
                        Some(task) => break task,
                        None => self.has_tasks.wait(&mut tasks),
                    }
                }
            };
            task();
        }
    }
}
