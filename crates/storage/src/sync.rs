//! The atomics and the lock of a body. Under `--cfg loom` they are those of loom, which runs a test in every order
//! that the memory model allows. Under Miri the lock is that of the standard library, because Miri does not support
//! the system call that `parking_lot` makes for a contended lock.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence};
#[cfg(not(any(loom, miri)))]
pub(crate) use parking_lot::Mutex;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence};

#[cfg(loom)]
use loom::sync as locks;
#[cfg(all(miri, not(loom)))]
use std::sync as locks;

/// Orders the sequentially consistent operations before and after it in loom, which takes them for acquire and release.
#[inline]
pub(crate) fn order_in_loom() {
    #[cfg(loom)]
    fence(std::sync::atomic::Ordering::SeqCst);
}

/// A lock with the interface of `parking_lot`.
#[cfg(any(loom, miri))]
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(locks::Mutex<T>);

#[cfg(any(loom, miri))]
impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(locks::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> locks::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
