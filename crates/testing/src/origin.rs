//! An origin server whose responses are written by a function, which may stop, send wrong data or send nothing.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};

pub struct Origin {
    pub address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

/// Writes the response for a path, or for a method and path as in `HEAD /path`, to the stream. Returns false to close
/// the connection.
pub trait Handler: Fn(&str, &mut TcpStream) -> bool + Send + Sync + 'static {}
impl<F: Fn(&str, &mut TcpStream) -> bool + Send + Sync + 'static> Handler for F {}

/// Returns an identifier of the connection that the calling handler serves. It is the thread's, because each connection
/// has its own thread and port numbers recur after some thousand connections.
pub fn this_connection() -> ThreadId {
    thread::current().id()
}

impl Origin {
    /// Starts an origin whose handler is called with the path.
    pub fn start(answers: impl Handler) -> Origin {
        Origin::by_method(move |request, stream| {
            answers(request.split(' ').nth(1).unwrap_or_default(), stream)
        })
    }

    /// Starts an origin whose handler is called with `METHOD /path`.
    pub fn by_method(answers: impl Handler) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("it is bound");
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = requests.clone();
        let answers = Arc::new(answers);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answers, counted) = (answers.clone(), counted.clone());
                thread::spawn(move || serve(stream, &*answers, &counted));
            }
        });
        Origin { address, requests }
    }

    /// Returns the number of requests that arrived; lines of bodies do not count.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn serve(mut stream: TcpStream, answers: &impl Handler, counted: &AtomicUsize) {
    let _ = stream.set_nodelay(true);
    let Ok(input) = stream.try_clone() else { return };
    let mut input = BufReader::new(input);
    loop {
        let mut first = String::new();
        if input.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        if !first.trim_end().ends_with("HTTP/1.1") {
            // A line of a body.
            continue;
        }
        counted.fetch_add(1, Ordering::SeqCst);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            if input.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
        }
        let request = first.rsplit_once(' ').map_or("", |(request, _)| request);
        if !answers(request, &mut stream) {
            return;
        }
    }
}

/// Serves `/SIZE/KIND/...` with SIZE bytes; the kinds `private` and `zero` are not cacheable.
pub fn sized(path: &str, stream: &mut TcpStream) -> bool {
    let mut words = path.split('/').skip(1);
    let size = words.next().and_then(|w| w.parse().ok()).unwrap_or(100);
    let control = match words.next() {
        Some("private") => "private",
        Some("zero") => "max-age=0",
        _ => "max-age=3600",
    };
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nCache-Control: {control}\r\n\r\n");
    stream.write_all(head.as_bytes()).is_ok() && stream.write_all(&vec![b'x'; size]).is_ok()
}
