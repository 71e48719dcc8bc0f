//! Replaces a mapping under loom. Each word is one of loom's atomics, so that loom tracks the accesses of threads.
//! Double words are separate from words; no location is accessed as both.

use std::io;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::CounterSet;
use crate::sync::{AtomicU32, AtomicU64};

/// Only the first bytes of a mapping contain double words.
const DOUBLE_WORDS: usize = 16;

#[derive(Debug)]
pub(crate) struct Mapping {
    words: Vec<AtomicU32>,
    double_words: Vec<AtomicU64>,
}

impl Mapping {
    pub(crate) fn shared(_file: impl AsFd, len: usize) -> io::Result<Self> {
        Self::anonymous(len)
    }

    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        Ok(Self {
            words: (0..len.div_ceil(4)).map(|_| AtomicU32::new(0)).collect(),
            double_words: (0..DOUBLE_WORDS).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    pub(crate) fn u32_at(&self, offset: usize) -> &AtomicU32 {
        &self.words[offset / 4]
    }

    pub(crate) fn u64_at(&self, offset: usize) -> &AtomicU64 {
        &self.double_words[offset / 8]
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(4 - at % 4));
            let word = &self.words[at / 4];
            let mut value = [0; 4];
            if now.len() < 4 {
                value = word.load(Relaxed).to_ne_bytes();
            }
            value[at % 4..][..now.len()].copy_from_slice(now);
            word.store(u32::from_ne_bytes(value), Relaxed);
            at += now.len();
            rest = later;
        }
    }

    pub(crate) fn release(&self, _offset: usize, _len: usize) {}

    #[cfg(test)]
    pub(crate) fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let byte = |at: usize| self.words[at / 4].load(Relaxed).to_ne_bytes()[at % 4];
        (offset..offset + len).map(byte).collect()
    }
}

/// A separate counter set, which no reader sees.
#[derive(Debug)]
pub(crate) struct View<T>(Box<T>);

impl<T: CounterSet> View<T> {
    pub(crate) fn new(_mapping: &Arc<Mapping>, _offset: usize) -> Self {
        Self(Box::default())
    }
}

impl<T: CounterSet> Deref for View<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
