//! The slot of a running transaction, with its memory. Both are recycled for the next transaction. They are large, so
//! they are boxed and keep their address.

use std::any::Any;
use std::sync::Arc;

use lacquer_params::Params;
use lacquer_shm::Log;

use crate::transaction_buffers::TransactionBuffers;

/// A transaction that runs in a slot.
pub trait Transaction: Sized {
    /// Returns the size of the workspace under these parameters.
    fn workspace(params: &Params) -> u64;

    /// Takes the memory of a transaction that has ended.
    fn take_buffers(&mut self) -> TransactionBuffers;
}

pub struct TransactionSlot<T>(Box<Inner<T>>);

struct Inner<T> {
    /// The memory; `None` while a transaction uses it.
    memory: Option<TransactionBuffers>,
    transaction: Option<T>,
}

impl<T> Default for TransactionSlot<T> {
    fn default() -> TransactionSlot<T> {
        TransactionSlot(Box::new(Inner { memory: None, transaction: None }))
    }
}

impl<T: Transaction> TransactionSlot<T> {
    pub fn new(log: &Arc<Log>, params: &Params) -> TransactionSlot<T> {
        let mut slot = TransactionSlot::default();
        slot.prepare(log, params);
        slot
    }

    /// Erases the type of the transaction.
    pub fn into_any(self) -> Box<dyn Any>
    where
        T: 'static,
    {
        self.0
    }

    /// Recovers a slot whose type was erased. Returns `None` if it is for another kind of transaction.
    pub fn from_any(erased: Box<dyn Any>) -> Option<TransactionSlot<T>>
    where
        T: 'static,
    {
        erased.downcast().ok().map(TransactionSlot)
    }

    /// Prepares the memory for a transaction under the current parameters, and returns it.
    pub fn prepare(&mut self, log: &Arc<Log>, params: &Params) -> &mut TransactionBuffers {
        let workspace = T::workspace(params);
        let memory = self.0.memory.get_or_insert_with(|| TransactionBuffers::new(log, params, workspace));
        memory.refresh(params, workspace);
        memory
    }

    /// Creates a transaction with the slot's memory. Returns `None` if the slot was not prepared.
    pub fn occupy(&mut self, make: impl FnOnce(TransactionBuffers) -> T) -> Option<&mut T> {
        let memory = self.0.memory.take()?;
        Some(self.0.transaction.insert(make(memory)))
    }

    pub fn transaction(&mut self) -> Option<&mut T> {
        self.0.transaction.as_mut()
    }

    /// Drops the finished transaction, and takes back its memory.
    pub fn vacate(&mut self) {
        if let Some(transaction) = &mut self.0.transaction {
            // Dropped in place, because it is too large to be moved.
            self.0.memory.insert(transaction.take_buffers()).shrink();
            self.0.transaction = None;
        }
    }
}
