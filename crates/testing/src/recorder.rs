//! An origin server that records every request, byte for byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::wait::{LONGEST_HOLD, until_within};

pub struct Recorder {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    /// Starts an origin. `answer` returns the response, head and body, to a request.
    pub fn start(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Recorder {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("it is bound");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (kept, answer) = (seen.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (kept, answer) = (kept.clone(), answer.clone());
                std::thread::spawn(move || serve(&stream, &*answer, &kept));
            }
        });
        Recorder { address, seen }
    }

    /// Returns the requests since the last call, and removes them.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn serve(stream: &TcpStream, answer: &impl Fn(&str) -> Vec<u8>, kept: &Mutex<Vec<String>>) {
    let _ = stream.set_nodelay(true);
    let (mut input, mut output) = (BufReader::with_capacity(1 << 20, stream), stream);
    while let Some(request) = request(&mut input) {
        let text = String::from_utf8_lossy(&request).into_owned();
        let response = answer(&text);
        kept.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        if output.write_all(&response).is_err() {
            return;
        }
    }
}

/// Reads one request. Returns `None` at the end of the connection.
fn request(input: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        input.read_until(b'\n', &mut request).ok().filter(|&n| n > 0)?;
    }
    let head = String::from_utf8_lossy(&request).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    if head.contains("transfer-encoding: chunked") {
        while let start = request.len()
            && input.read_until(b'\n', &mut request).ok()? > 0
            && let line = String::from_utf8_lossy(&request[start..]).into_owned()
            && let Ok(size) = u64::from_str_radix(line.trim(), 16)
        {
            input.by_ref().take(size + 2).read_to_end(&mut request).ok()?;
            if size == 0 {
                break;
            }
        }
    } else if let Some(length) = length {
        input.by_ref().take(length).read_to_end(&mut request).ok()?;
    }
    Some(request)
}

/// Returns a cacheable response with this body.
pub fn ok(body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

/// Responses that an origin holds back.
#[derive(Clone, Default)]
pub struct Gate(Arc<AtomicBool>);

impl Gate {
    /// Starts an origin whose responses, which are not cacheable, wait for the gate.
    pub fn origin(&self) -> Recorder {
        let gate = self.0.clone();
        Recorder::start(move |_| {
            until_within(LONGEST_HOLD, || gate.load(Ordering::SeqCst));
            b"HTTP/1.1 200 OK\r\nCache-Control: private\r\nContent-Length: 4\r\n\r\nfine".to_vec()
        })
    }

    pub fn open(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
