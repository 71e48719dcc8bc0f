//! The memory of a fetch that the next one uses again.

use std::rc::Rc;

use lacquer_http::{Message, Workspace};
use lacquer_shm::TxLog;

use super::Fetch;
use crate::deadlines::Deadline;
use crate::reactor::Reactor;

pub struct Memory {
    pub ws: Workspace,
    pub log: TxLog,
    pub bereq: Message,
    pub bereq0: Message,
    pub beresp: Message,
    /// For what is put together before it goes somewhere else.
    pub out: Vec<u8>,
    pub deadline: Rc<Deadline>,
}

impl Memory {
    pub fn new(reactor: &Reactor) -> Memory {
        let params = reactor.params();
        let max_hdr = params.http_max_hdr as usize;
        Memory {
            ws: Workspace::new(params.workspace_backend as usize),
            log: reactor.shared.log.transaction(),
            bereq: Message::new(max_hdr),
            bereq0: Message::new(max_hdr),
            beresp: Message::new(max_hdr),
            out: Vec::new(),
            deadline: reactor.deadlines.enlist(),
        }
    }

    /// Ready for a fetch under the parameters of now.
    pub fn refresh(&mut self, reactor: &Reactor) {
        let params = reactor.params();
        if self.ws.capacity() != params.workspace_backend as usize {
            self.ws.resize(params.workspace_backend as usize);
        }
        self.ws.reset();
        for message in [&mut self.bereq, &mut self.bereq0, &mut self.beresp] {
            message.clear();
            message.set_max_hdr(params.http_max_hdr as usize);
        }
        self.out.clear();
    }

    pub fn of(fetch: Fetch) -> Memory {
        Memory {
            ws: fetch.task.ws,
            log: fetch.task.log,
            bereq: fetch.bereq,
            bereq0: fetch.bereq0,
            beresp: fetch.beresp,
            out: fetch.out,
            deadline: fetch.deadline,
        }
    }
}
