//! The memory of a transaction, be it a request or a fetch, which the next one uses again.

use std::sync::Arc;

use lacquer_http::{Message, Workspace};
use lacquer_params::Params;
use lacquer_shm::{Log, TxLog};

pub struct TransactionBuffers {
    pub ws: Workspace,
    pub log: TxLog,
    /// The request as VCL sees and changes it.
    pub request: Message,
    /// The same as it was before, for restarts, retries and rollback.
    pub request0: Message,
    pub response: Message,
    /// For what is put together before it goes somewhere else.
    pub out: Vec<u8>,
    /// For a body that VCL makes.
    pub synth_body: Vec<u8>,
}

/// Buffers that grew longer are not kept for the next transaction.
const KEPT: usize = 64 * 1024;

impl TransactionBuffers {
    /// `workspace` is the parameter that says how many bytes the workspace has.
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

    /// Ready for a transaction under the parameters of now.
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

    /// Lets go of buffers that grew: it may be long until the next transaction.
    pub fn shrink(&mut self) {
        for buffer in [&mut self.out, &mut self.synth_body] {
            if buffer.capacity() > KEPT {
                *buffer = Vec::new();
            }
        }
    }
}
