//! A simulated device: writes that were not synced are lost, reordered and torn by a cut of power; reads and writes
//! fail when the test wants it.

use std::io;
use std::sync::Arc;

use lacquer_testing::Random;
use parking_lot::Mutex;

use crate::blocks::Blocks;

/// The unit in which writes are torn.
const SECTOR: usize = 512;

#[derive(Debug)]
struct State {
    durable: Vec<u8>,
    current: Vec<u8>,
    /// Writes since the last sync: position and bytes.
    writes: Vec<(u64, Vec<u8>)>,
    /// The number of writes and syncs until the power is cut.
    cut_after: Option<u64>,
    is_off: bool,
    /// How many of a thousand reads fail.
    failing_reads: u64,
    random: Random,
}

/// The device. Clones refer to the same.
#[derive(Clone, Debug)]
pub struct SimulatedDevice(Arc<Mutex<State>>);

fn broken() -> io::Error {
    io::Error::from_raw_os_error(5)
}

impl SimulatedDevice {
    pub fn new(size: u64, seed: u64) -> Self {
        let empty = vec![0; size as usize];
        Self(Arc::new(Mutex::new(State {
            durable: empty.clone(),
            current: empty,
            writes: Vec::new(),
            cut_after: None,
            is_off: false,
            failing_reads: 0,
            random: Random(seed),
        })))
    }

    /// Cuts the power after `n` more writes and syncs: these and later ones fail.
    pub fn cut_after(&self, n: u64) {
        self.0.lock().cut_after = Some(n);
    }

    /// Lets reads fail from now on: this number of a thousand.
    pub fn fail_reads(&self, of_thousand: u64) {
        self.0.lock().failing_reads = of_thousand;
    }

    pub fn is_off(&self) -> bool {
        self.0.lock().is_off
    }

    /// Cuts the power, and returns the device as it is after that. The old one fails.
    pub fn restart(&self) -> Self {
        let mut state = self.0.lock();
        state.is_off = true;
        let mut random = state.random.clone();
        let mut durable = state.durable.clone();
        let kept = random.below(4) * 33;
        let mut writes = std::mem::take(&mut state.writes);
        // Reordered.
        for i in (1..writes.len()).rev() {
            writes.swap(i, random.index(i + 1));
        }
        for (at, bytes) in writes {
            let is_kept = random.below(100) < kept;
            let is_torn = random.below(4) == 0;
            for (i, sector) in bytes.chunks(SECTOR).enumerate() {
                let is_kept = if is_torn { random.below(2) == 0 } else { is_kept };
                if is_kept {
                    let at = at as usize + i * SECTOR;
                    durable[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
        Self(Arc::new(Mutex::new(State {
            current: durable.clone(),
            durable,
            writes: Vec::new(),
            cut_after: None,
            is_off: false,
            failing_reads: 0,
            random,
        })))
    }

    /// Changes a bit.
    pub fn flip(&self, at: u64, bit: u8) {
        let mut state = self.0.lock();
        state.current[at as usize] ^= 1 << (bit % 8);
        state.durable[at as usize] ^= 1 << (bit % 8);
    }
}

impl State {
    fn change(&mut self) -> io::Result<()> {
        if let Some(left) = &mut self.cut_after {
            self.is_off |= *left == 0;
            *left = left.saturating_sub(1);
        }
        if self.is_off { Err(broken()) } else { Ok(()) }
    }
}

impl Blocks for SimulatedDevice {
    fn size(&self) -> u64 {
        self.0.lock().current.len() as u64
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut state = self.0.lock();
        let failing = state.failing_reads;
        if state.is_off || (failing > 0 && state.random.below(1000) < failing) {
            return Err(broken());
        }
        let at = at as usize;
        buffer.copy_from_slice(&state.current[at..at + buffer.len()]);
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.lock();
        let was_on = !state.is_off;
        let outcome = state.change();
        // A write that the cut interrupts may have an effect.
        if was_on && (outcome.is_ok() || state.cut_after == Some(0)) {
            state.writes.push((at, bytes.to_vec()));
        }
        outcome?;
        let at = at as usize;
        state.current[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        state.change()?;
        for (at, bytes) in std::mem::take(&mut state.writes) {
            let at = at as usize;
            state.durable[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(())
    }
}
