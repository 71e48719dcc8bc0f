//! The floor, a server with minimal cost: one fixed response, sent by write(), or with its body by sendfile().

use crate::options::Options;
use crate::server::{Answer, Body, Reply, Server};
use std::fs::File;
use std::io::Write;
use std::rc::Rc;
use std::time::Duration;

struct FixedResponse {
    close: bool,
    bytes: Rc<[u8]>,
    file: Option<Rc<Body>>,
}

impl Answer for FixedResponse {
    fn answer(&mut self, _request: &[u8]) -> Reply {
        Reply { bytes: self.bytes.clone(), file: self.file.clone(), delay: Duration::ZERO, close: self.close }
    }
}

pub fn run(options: &Options) -> Result<(), String> {
    let size: usize = options.number("size", 1400)?;
    let close = options.is_set("close");
    let connection = if close { "Connection: close\r\n" } else { "" };
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{connection}Content-Length: {size}\r\n\r\n");
    let body = vec![b'x'; size];
    let response = if options.is_set("sendfile") {
        let file =
            in_memory_file(&body).map_err(|error| format!("cannot create a file in memory: {error}"))?;
        FixedResponse {
            close,
            bytes: head.into_bytes().into(),
            file: Some(Rc::new(Body { file, size: size as u64 })),
        }
    } else {
        FixedResponse { close, bytes: [head.as_bytes(), &body].concat().into(), file: None }
    };
    let address = options.address("listen")?;
    Server::new(address, response).and_then(Server::run).map_err(|error| format!("{address}: {error}"))
}

fn in_memory_file(body: &[u8]) -> std::io::Result<File> {
    let fd = rustix::fs::memfd_create("floor", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = File::from(fd);
    file.write_all(body)?;
    Ok(file)
}
