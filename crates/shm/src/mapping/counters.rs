//! Counters as words of shared memory: the atomic cell, the trait of a struct that consists of such
//! cells only, the macro that defines one from its table, and the thread-local set.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

use crate::sync::AtomicU64;
use crate::vsc::SetDesc;

/// One 64-bit counter or gauge. Arithmetic wraps: adding `0 - n` subtracts n.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    #[inline]
    pub fn sub(&self, n: u64) {
        self.0.fetch_sub(n, Relaxed);
    }

    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Adds without a locked instruction. Correct only if there is one writer at a time.
    #[inline]
    pub(crate) fn add_as_only_writer(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }
}

/// A thread-local part of a counter, to be added to the shared counter later.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct LocalCounter(Cell<u64>);

impl LocalCounter {
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.set(self.0.get().wrapping_add(n));
    }

    #[inline]
    pub fn sub(&self, n: u64) {
        self.0.set(self.0.get().wrapping_sub(n));
    }

    /// Returns the sum since the last flush.
    #[inline]
    pub fn pending(&self) -> u64 {
        self.0.get()
    }
}

/// A set of counters and its description: a struct of `Counter` fields only.
///
/// # Safety
/// The type must be `repr(C)`, consist of `Counter` fields only and be described field by field, in order,
/// by `DESC`. Only the `counter_set!` macro implements it.
pub unsafe trait CounterSet: Sized + Default + Send + Sync + 'static {
    const DESC: &'static SetDesc;

    /// All counters, in the order of `DESC.counters`.
    fn counters(&self) -> &[Counter] {
        let n = size_of::<Self>() / size_of::<Counter>();
        // SAFETY: by the trait's contract `Self` has the layout of an array of counters.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), n) }
    }
}

/// The thread-local counterpart of a `CounterSet`.
///
/// # Safety
/// `repr(C)`, the same fields in the same order as `Shared`, each a `LocalCounter`.
pub unsafe trait LocalSet: Sized {
    type Shared: CounterSet;

    fn cells(&self) -> &[LocalCounter] {
        let n = size_of::<Self>() / size_of::<LocalCounter>();
        // SAFETY: by the trait's contract `Self` has the layout of an array of cells.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), n) }
    }

    /// Adds the pending sums to the shared counters and resets them.
    fn flush(&self, shared: &Self::Shared) {
        for (cells, counters) in self.cells().chunks(8).zip(shared.counters().chunks(8)) {
            // Most are zero most of the time, so eight of them are tested at once.
            if cells.iter().fold(0, |seen, cell| seen | cell.pending()) == 0 {
                continue;
            }
            for (cell, counter) in cells.iter().zip(counters) {
                let n = cell.0.take();
                if n != 0 {
                    counter.add(n);
                }
            }
        }
    }
}

/// Defines a counter set and its thread-local counterpart from their table. Each row has the form
/// `name: Semantics Level Format "one line" "documentation";`.
macro_rules! counter_set {
    (
        $(#[$meta:meta])*
        $set:ident / $local:ident {
            name: $name:literal, order: $order:literal, oneliner: $setline:literal, docs: $setdocs:literal
        }
        $( $field:ident : $sem:ident $level:ident $format:ident $line:literal $docs:literal; )+
    ) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        #[repr(C)]
        pub struct $set {
            $( #[doc = $line] pub $field: $crate::vsc::Counter, )+
        }

        #[doc = concat!("A thread's part of [`", stringify!($set), "`], flushed from time to time.")]
        #[derive(Debug, Default)]
        #[repr(C)]
        pub struct $local {
            $( #[doc = $line] pub $field: $crate::vsc::LocalCounter, )+
        }

        #[allow(unsafe_code)]
        // SAFETY: repr(C), fields of type `Counter` only, described in order.
        unsafe impl $crate::vsc::CounterSet for $set {
            const DESC: &'static $crate::vsc::SetDesc = &$crate::vsc::SetDesc {
                name: $name, order: $order, oneliner: $setline, docs: $setdocs,
                counters: &[ $( $crate::vsc::CounterDesc {
                    name: stringify!($field),
                    semantics: $crate::vsc::Semantics::$sem,
                    level: $crate::vsc::Level::$level,
                    format: $crate::vsc::Format::$format,
                    oneliner: $line,
                    docs: $docs,
                } ),+ ],
            };
        }

        #[allow(unsafe_code)]
        // SAFETY: repr(C), the same fields in the same order, each a `LocalCounter`.
        unsafe impl $crate::vsc::LocalSet for $local {
            type Shared = $set;
        }
    };
}
pub(crate) use counter_set;
