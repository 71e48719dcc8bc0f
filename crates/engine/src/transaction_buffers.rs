//! The memory of a transaction (a request or a fetch), which is recycled for the next one.

use std::sync::Arc;

use lacquer_http::{Message, Workspace};
use lacquer_params::Params;
use lacquer_shm::{Log, TxLog};

pub struct TransactionBuffers {
    pub ws: Workspace,
    pub log: TxLog,
    /// The request as VCL sees and changes it.
    pub request: Message,
    /// The request before VCL changed it, for restarts and rollbacks.
    pub request0: Message,
    pub response: Message,
    /// A buffer for assembling output.
    pub out: Vec<u8>,
    /// A buffer for a body that VCL sets.
    pub synth_body: Vec<u8>,
}

/// The largest capacity of a buffer that is kept for the next transaction.
const KEPT: usize = 64 * 1024;

impl TransactionBuffers {
    /// Allocates the memory. `workspace` is the size of the workspace in bytes.
    pub fn new(log: &Arc<Log>, params: &Params, workspace: u64) -> TransactionBuffers {
        let message = || Message::new(params.http_max_hdr as usize);
        TransactionBuffers {
            ws: Workspace::new(workspace as usize),
            log: log.transaction(),
            request: message(),
            request0: message(),
            response: message(),
            out: Vec::new(),
            synth_body: Vec::new(),
        }
    }

    /// Prepares the memory for a transaction under the current parameters.
    pub fn refresh(&mut self, params: &Params, workspace: u64) {
        if self.ws.capacity() != workspace as usize {
            self.ws.resize(workspace as usize);
        }
        self.ws.reset();
        for message in [&mut self.request, &mut self.request0, &mut self.response] {
            message.clear();
            message.set_max_hdr(params.http_max_hdr as usize);
        }
        self.out.clear();
        self.synth_body.clear();
    }

    /// Frees large buffers, because the next transaction may start much later.
    pub fn shrink(&mut self) {
        for buffer in [&mut self.out, &mut self.synth_body] {
            if buffer.capacity() > KEPT {
                *buffer = Vec::new();
            }
        }
    }
}
