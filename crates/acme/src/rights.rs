//! The rights of the client's thread: it has those of the manager's user, and root's only while it uses its folder.

use std::fmt;

type With = dyn Fn(&mut dyn FnMut()) + Send;

/// How the thread gets root's rights for a moment, and the user of the operator's program.
pub struct Rights {
    with: Box<With>,
    user: Option<(u32, u32)>,
}

impl Rights {
    /// The rights that the process has, without a change.
    pub fn unchanged() -> Rights {
        Rights { with: Box::new(|work| work()), user: None }
    }

    /// `with` calls a function as root. The operator's program gets this user and group.
    pub fn new(with: impl Fn(&mut dyn FnMut()) + Send + 'static, user: Option<(u32, u32)>) -> Rights {
        Rights { with: Box::new(with), user }
    }

    /// Calls a function as root.
    pub(crate) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let (mut work, mut done) = (Some(work), None);
        (self.with)(&mut || done = work.take().map(|work| work()));
        done.expect("the function is called")
    }

    /// Returns user and group of the operator's program, if they differ from those of the process.
    pub(crate) fn user(&self) -> Option<(u32, u32)> {
        self.user
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rights").field("user", &self.user).finish_non_exhaustive()
    }
}
