//! The place of a running transaction, with its memory. The next transaction reuses both. They are large, so they stay
//! at their address and the slot is passed on by it.

use std::any::Any;
use std::sync::Arc;

use lacquer_params::Params;
use lacquer_shm::Log;

use crate::transaction_buffers::TransactionBuffers;

/// A transaction that takes a slot.
pub trait Transaction: Sized {
    /// Returns the size of its workspace under these parameters.
    fn workspace(params: &Params) -> u64;

    /// Returns the memory of a transaction that has ended.
    fn take_buffers(&mut self) -> TransactionBuffers;
}

pub struct TransactionSlot<T>(Box<Inside<T>>);

struct Inside<T> {
    /// The memory. While there is a transaction, it has the memory.
    memory: Option<TransactionBuffers>,
    transaction: Option<T>,
}

impl<T> Default for TransactionSlot<T> {
    fn default() -> TransactionSlot<T> {
        TransactionSlot(Box::new(Inside { memory: None, transaction: None }))
    }
}

impl<T: Transaction> TransactionSlot<T> {
    pub fn new(log: &Arc<Log>, params: &Params) -> TransactionSlot<T> {
        let mut slot = TransactionSlot::default();
        slot.prepare(log, params);
        slot
    }

    /// Erases the type of its transaction.
    pub fn hide(self) -> Box<dyn Any>
    where
        T: 'static,
    {
        self.0
    }

    /// Returns the slot that was hidden, if it is for this kind of transaction.
    pub fn found(hidden: Box<dyn Any>) -> Option<TransactionSlot<T>>
    where
        T: 'static,
    {
        hidden.downcast().ok().map(TransactionSlot)
    }

    /// Its memory, ready for a transaction under the parameters of now.
    pub fn prepare(&mut self, log: &Arc<Log>, params: &Params) -> &mut TransactionBuffers {
        let workspace = T::workspace(params);
        let memory = self.0.memory.get_or_insert_with(|| TransactionBuffers::new(log, params, workspace));
        memory.refresh(params, workspace);
        memory
    }

    /// A transaction made with this memory. There is one if the slot was prepared.
    pub fn occupy(&mut self, make: impl FnOnce(TransactionBuffers) -> T) -> Option<&mut T> {
        let memory = self.0.memory.take()?;
        Some(self.0.transaction.insert(make(memory)))
    }

    pub fn transaction(&mut self) -> Option<&mut T> {
        self.0.transaction.as_mut()
    }

    /// The transaction has ended.
    pub fn vacate(&mut self) {
        if let Some(transaction) = &mut self.0.transaction {
            // It ends where it lies: what is so large is not moved.
            self.0.memory.insert(transaction.take_buffers()).shrink();
            self.0.transaction = None;
        }
    }
}
