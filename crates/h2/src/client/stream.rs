//! One stream: what was sent of its request, and what has arrived of its response.

use std::collections::VecDeque;

use super::failure::Failure;
use crate::flow::{ReceiveWindow, SendWindow};

/// The result of reading from a stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// This number of bytes.
    Bytes(usize),
    /// Nothing has arrived.
    Nothing,
    /// The response has ended.
    End,
    Failed(Failure),
}

/// The part of the response that was received.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum Progress {
    #[default]
    Nothing,
    /// The head of the final response.
    Head,
    /// All of it.
    End,
}

#[derive(Debug)]
pub struct Stream {
    pub send: SendWindow,
    pub receive: ReceiveWindow,
    /// No more of the request can be sent: it was sent, or the server has refused the rest.
    pub is_sent: bool,
    /// The number of bytes of the connection before its request.
    pub begins: u64,
    /// Nobody reads the response any more.
    pub is_released: bool,
    pub is_head_request: bool,
    pub progress: Progress,
    pub interim: u32,
    pub failure: Option<Failure>,
    /// The number of bytes of the body that have to follow, if it is known.
    pub expected: Option<u64>,
    pub arrived: Arrived,
}

/// The bytes that have arrived and were not read: the text of the heads, then the body. Then the lines of the trailers.
#[derive(Debug, Default)]
pub struct Arrived {
    pub head: VecDeque<u8>,
    pub body: VecDeque<u8>,
    pub trailers: Vec<u8>,
    /// The number of bytes that were read since the last WINDOW_UPDATE.
    uncredited: u32,
}

fn take(from: &mut VecDeque<u8>, out: &mut [u8]) -> usize {
    let (front, back) = from.as_slices();
    let first = front.len().min(out.len());
    out[..first].copy_from_slice(&front[..first]);
    let second = back.len().min(out.len() - first);
    out[first..first + second].copy_from_slice(&back[..second]);
    from.drain(..first + second);
    first + second
}

impl Arrived {
    /// Adds the data of a frame whose payload has `len` bytes with its padding, which is never read.
    pub fn add(&mut self, data: &[u8], len: u32) {
        self.body.extend(data);
        self.uncredited += len - data.len() as u32;
    }
}

impl Stream {
    pub fn new(send: u32, receive: u32, is_head_request: bool, is_sent: bool) -> Stream {
        Stream {
            send: SendWindow::new(send),
            receive: ReceiveWindow::new(receive),
            is_sent,
            begins: 0,
            is_released: false,
            is_head_request,
            progress: Progress::Nothing,
            interim: 0,
            failure: None,
            expected: None,
            arrived: Arrived::default(),
        }
    }

    /// Returns whether no more frames belong to it.
    pub fn is_over(&self) -> bool {
        self.failure.is_some() || (self.is_sent && self.progress == Progress::End)
    }

    /// Reads the head, or else the body. If the whole rest of the response has arrived and fits, it is read with the head.
    pub fn read(&mut self, out: &mut [u8]) -> Received {
        let mut n = take(&mut self.arrived.head, out);
        let is_whole = self.progress == Progress::End && self.arrived.body.len() <= out.len() - n;
        if self.arrived.head.is_empty() && (n == 0 || is_whole) {
            let body = take(&mut self.arrived.body, &mut out[n..]);
            self.arrived.uncredited += body as u32;
            n += body;
        }
        match &self.failure {
            _ if n > 0 || out.is_empty() => Received::Bytes(n),
            // The response is complete, whatever became of the request's rest.
            _ if self.progress == Progress::End => Received::End,
            Some(failure) => Received::Failed(failure.clone()),
            None => Received::Nothing,
        }
    }

    pub fn is_readable(&self) -> bool {
        let has_bytes = !self.arrived.head.is_empty() || !self.arrived.body.is_empty();
        has_bytes || self.progress == Progress::End || self.failure.is_some()
    }

    /// Returns whether the whole response has arrived and was read.
    pub fn is_drained(&self) -> bool {
        self.progress == Progress::End && self.arrived.head.is_empty() && self.arrived.body.is_empty()
    }

    /// Returns the credit to announce, once it is worth a frame.
    pub fn credit(&mut self, window: u32) -> Option<u32> {
        let arrived = &mut self.arrived;
        if self.progress == Progress::End || arrived.uncredited < window / 2 {
            return None;
        }
        let credit = std::mem::take(&mut arrived.uncredited);
        (self.receive.refill_within(u32::MAX, credit, window) > 0).then_some(credit)
    }

    /// Ends the stream with a failure.
    pub fn fail(&mut self, failure: Failure) {
        if self.failure.is_none() {
            self.failure = Some(failure);
        }
    }
}
