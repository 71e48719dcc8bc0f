//! The locks of the cache. Under Miri they are those of the standard library with the interface of `parking_lot`,
//! because Miri does not support the system call that `parking_lot` makes for a contended lock.

#[cfg(not(miri))]
pub(crate) use parking_lot::{Mutex, RwLock};
#[cfg(miri)]
pub(crate) use standard::{Mutex, RwLock};

#[cfg(miri)]
mod standard {
    use std::sync::{self, MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard};

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct RwLock<T>(sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(PoisonError::into_inner)
        }

        pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(PoisonError::into_inner)
        }
    }
}

/// The lock of code that loom tests, with the interface of `parking_lot`.
#[cfg(loom)]
pub(crate) mod modeled {
    use std::sync::PoisonError;

    use loom::sync::{self, MutexGuard};

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }
}
