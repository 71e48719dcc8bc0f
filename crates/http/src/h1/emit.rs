//! Writes heads of requests and responses.

use crate::fixed_text_table::{OK_START, reason_of};
use crate::message::{Message, Slot, write_lines};
use crate::workspace::Workspace;

/// Writes a request line like "GET /x HTTP/1.1" and the headers. Returns the number of bytes.
pub fn write_request_head(msg: &Message, ws: &Workspace, out: &mut Vec<u8>) -> usize {
    write_head(msg, ws, [Slot::Method, Slot::Url, Slot::Proto], out)
}

/// Writes a status line like "HTTP/1.1 200 OK" and the headers. Returns the number of bytes.
pub fn write_response_head(msg: &Message, ws: &Workspace, out: &mut Vec<u8>) -> usize {
    write_head(msg, ws, [Slot::Proto, Slot::Status, Slot::Reason], out)
}

fn write_head(msg: &Message, ws: &Workspace, start: [Slot; 3], out: &mut Vec<u8>) -> usize {
    let before = out.len();
    if start.map(|slot| msg.text(slot)) == OK_START {
        out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    } else {
        for (slot, end) in start.into_iter().zip([&b" "[..], b" ", b"\r\n"]) {
            out.extend_from_slice(ws.get(msg.text(slot)));
            out.extend_from_slice(end);
        }
    }
    write_lines(msg.fields().iter(), ws, out);
    out.extend_from_slice(b"\r\n");
    out.len() - before
}

/// Writes a response that consists only of its status line, for malformed requests and for "100 Continue".
pub fn minimal_response(status: u16, out: &mut Vec<u8>) {
    let n = status % 1000;
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend([n / 100, n / 10 % 10, n % 10].map(|d| b'0' + d as u8));
    out.push(b' ');
    out.extend_from_slice(reason_of(status).as_bytes());
    out.extend_from_slice(b"\r\n\r\n");
}
