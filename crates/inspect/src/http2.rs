//! One exchange over HTTP/2.

use std::io::{Read, Write};

use lacquer_h2::client::{Connection, Limits, Received, Request};
use lacquer_http::{Message, Slot, Workspace};

use crate::wire::Wire;

/// Maximum number of header lines of a request.
const MAX_LINES: usize = 1000;

/// Sends a request and passes the bytes of the response to `take`: its head as in HTTP/1, then its body. Ends with the
/// response, with the connection, or if `take` returns false. `head` is the head of the request as in HTTP/1.
pub fn exchange(
    wire: &mut Wire,
    head: &str,
    is_secure: bool,
    max_head: u32,
    take: &mut dyn FnMut(&Wire, &[u8]) -> bool,
) -> Result<(), String> {
    let mut connection = Connection::new(Limits { list: max_head });
    let mut ws = Workspace::new(head.len() * 2 + 4096);
    let message = message(head, &mut ws).ok_or("the request is too large")?;
    let request = Request { message: &message, ws: &ws, is_secure, ends: true, wants_trailers: false };
    let id = connection.open(request).map_err(|refused| refused.0.to_owned())?;
    let (mut input, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        while !connection.output().is_empty() {
            let length = wire.write(connection.output()).map_err(|error| error.to_string())?;
            connection.sent(length);
        }
        wire.flush().map_err(|error| error.to_string())?;
        loop {
            match connection.read(id, &mut buffer) {
                Received::Bytes(length) if take(wire, &buffer[..length]) => {}
                Received::Nothing => break,
                Received::Failed(failure) => return Err(failure.to_string()),
                Received::Bytes(_) | Received::End => return Ok(()),
            }
        }
        if !connection.output().is_empty() {
            continue;
        }
        match wire.read(&mut buffer) {
            Ok(0) | Err(_) => return Ok(()),
            Ok(length) => input.extend_from_slice(&buffer[..length]),
        }
        let used = connection.receive(&input);
        input.drain(..used);
    }
}

/// Parses a head that [`crate::request`] has made.
fn message(head: &str, ws: &mut Workspace) -> Option<Message> {
    let mut message = Message::new(MAX_LINES);
    let mut lines = head.lines();
    let mut words = lines.next()?.split(' ');
    for slot in [Slot::Method, Slot::Url] {
        let text = ws.copy(words.next()?.as_bytes()).ok()?;
        message.put(ws, slot, text);
    }
    for line in lines.filter(|line| !line.is_empty()) {
        message.append_line_copy(ws, line.as_bytes()).ok()?;
    }
    Some(message)
}
